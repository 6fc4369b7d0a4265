/* SPDX-License-Identifier: Apache-2.0 */
/* Bootstrap on Cray systems by variables of PALS (mpiexec and aprun of EX, Slurm's cray_shasta) and
 * ALPS (aprun of XC). NOT RUN ON HARDWARE, but tested with the documented variables. */
#include "fabric/bootstrap/tcp/bootstrap_tcp.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The head of the file that PALS_APINFO names, in versions 1 to 5, as read into a local variable.
 * Each table has a row size, an offset and a number of rows (Slurm's mpi/cray_shasta/apinfo.h). */
struct apinfo {
    int version;
    size_t total;
    struct {
        size_t bytes, offset;
        int rows;
    } profiles, commands, ranks, nodes;
};
/* A rank's row in the table `ranks` of the file that PALS_APINFO names, read into a local variable.
 * It has the rank's number on its node, and the numbers of its rows in the tables `commands` and
 * `nodes`. */
struct apinfo_rank {
    int local, command, node;
};
/* The first part of a row of the table `nodes` of the file that PALS_APINFO names, which describes
 * one host. Read into a local variable. */
struct apinfo_node {
    int number;    /* the host's number, not used */
    char host[64]; /* its name */
};

/* Read the first `want` bytes of row `row` of a table into `out`. The table has `rows` rows of
 * `bytes` each, from `offset` in the file on. Returns false if there is no such row or it is
 * shorter. */
static bool read_row(int fd, size_t bytes, size_t offset, int rows, int row, void *out, size_t want)
{
    return row >= 0 && row < rows && bytes >= want && bytes < 1 << 20 && offset < 1ul << 40 &&
           pread(fd, out, want, (off_t)(offset + (size_t)row * bytes)) == (ssize_t)want;
}

/* Set *ranks to the number of ranks and job->hosts to rank 0's host, from the file that PALS_APINFO
 * names. The host is 127.0.0.1 if all ranks are on one. Returns false if the file cannot be read or
 * is malformed. */
static bool read_apinfo(const char *path, struct twill_job *job, int *ranks)
{
    struct apinfo head;
    struct apinfo_rank rank;
    struct apinfo_node node;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    bool good = fd >= 0 && pread(fd, &head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
                head.version >= 1 &&
                read_row(fd, head.ranks.bytes, head.ranks.offset, head.ranks.rows, 0, &rank,
                         sizeof(rank)) &&
                read_row(fd, head.nodes.bytes, head.nodes.offset, head.nodes.rows, rank.node, &node,
                         sizeof(node)) &&
                memchr(node.host, '\0', sizeof(node.host)) && node.host[0];
    if (fd >= 0)
        close(fd);
    if (!good)
        return false;
    snprintf(job->hosts, sizeof(job->hosts), "%s", head.nodes.rows == 1 ? "127.0.0.1" : node.host);
    *ranks = head.ranks.rows;
    return true;
}

/* Return whether PALS_RANKID and PALS_APID are set. */
static bool pals_applies(const struct twill_bootstrap_params *params)
{
    return twill_launch_variable(params, "PALS_RANKID") &&
           twill_launch_variable(params, "PALS_APID");
}

/* Set rank, size and rank 0's host from PALS_RANKID and the file that PALS_APINFO names. PMI_SIZE
 * is the size if that cannot be read, and MASTER_ADDR, if set, the host. Returns TWILL_ERR_CONFIG
 * if one is missing or wrong. */
static twill_status find_pals(struct twill_job *job, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    const char *path = twill_launch_variable(params, "PALS_APINFO");
    const char *size = twill_launch_variable(params, "PMI_SIZE");
    char text[16] = "";
    int ranks = 0;
    bool known = path && read_apinfo(path, job, &ranks);
    job->source = "PALS_APINFO";
    if (known)
        snprintf(text, sizeof(text), "%d", ranks);
    TWILL_TRY(error,
              twill_launch_ranks(job, "PALS_RANKID", twill_launch_variable(params, "PALS_RANKID"),
                                 known ? "the size in PALS_APINFO" : "PMI_SIZE",
                                 known ? text : size, error));
    if (!twill_launch_master(job, params) && !known)
        return TWILL_FAIL(
            error, TWILL_ERR_CONFIG,
            "rank %d: PALS_APINFO=%.200s cannot be read, or does not say where rank 0 "
            "is: set MASTER_ADDR to its host",
            job->rank, path ? path : "");
    return TWILL_OK;
}

/* Set *oob to the job that PALS' variables describe, once all ranks have joined, or fail. */
static twill_status pals_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    struct twill_job job = {.listener = -1};
    const char *number = twill_launch_variable(params, "PALS_APID");
    const char *secret = twill_launch_variable(params, "PMI_SHARED_SECRET");
    TWILL_TRY(error, find_pals(&job, params, error));
    snprintf(job.identity, sizeof(job.identity), "pals %.80s", number ? number : "");
    if (secret) { /* of any form, so hash it into a key */
        twill_secret_digest(secret, strlen(secret), job.key.key);
        job.has_key = true;
    }
    TWILL_TRY(error, twill_launch_port(&job, params, error));
    snprintf(job.how, sizeof(job.how), "PALS: PALS_RANKID, rank %d of %d at %.72s", job.rank,
             job.size, TWILL_ADDRESS_AND_PORT(job.hosts, job.port));
    return twill_bootstrap_tcp_open(oob, &twill_bootstrap_pals, &job, params, error);
}

const struct twill_bootstrap_ops twill_bootstrap_pals = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "pals", .applies = pals_applies, .open = pals_open};

/* Return whether ALPS_APP_PE is set. */
static bool alps_applies(const struct twill_bootstrap_params *params)
{
    return twill_launch_variable(params, "ALPS_APP_PE") != NULL;
}

/* Set `host` to the first node of Cobalt's list. It has numbers of nodes, as "12,40-43", and host
 * names are "nid" and five digits, such as nid00012. Returns false for other lists. */
static bool first_node(const char *list, char *host, size_t bytes)
{
    char *end;
    unsigned long number = strtoul(list, &end, 10);
    if (end == list || !strchr(",-", *end) || number > 99999)
        return false;
    snprintf(host, bytes, "nid%05lu", number);
    return true;
}

/* Set rank, size and rank 0's host from ALPS_APP_PE, WORLD_SIZE and MASTER_ADDR or, if that is not
 * set, COBALT_PARTNAME. Returns TWILL_ERR_CONFIG if one is missing or wrong. */
static twill_status find_alps(struct twill_job *job, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    const char *list = twill_launch_variable(params, "COBALT_PARTNAME");
    const char *rank = twill_launch_variable(params, "ALPS_APP_PE");
    if (!twill_is_set(params->world_size))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "ALPS_APP_PE=%.16s: ALPS does not say how many ranks there are: set it, "
                          "as in aprun -n 64 -e WORLD_SIZE=64",
                          rank ? rank : "");
    TWILL_TRY(error, twill_launch_ranks(job, "ALPS_APP_PE", rank, "WORLD_SIZE", params->world_size,
                                        error));
    if (twill_launch_master(job, params))
        return TWILL_OK;
    job->source = "COBALT_PARTNAME";
    job->guessed = true; /* wrong with aprun -L, or for the second of two concurrent apruns */
    if (!list || !first_node(list, job->hosts, sizeof(job->hosts)))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "rank %d: ALPS does not say where rank 0 is%s: set it, as in "
                          "aprun -e MASTER_ADDR=$(aprun -q -b -n 1 hostname)",
                          job->rank, list ? ", and COBALT_PARTNAME names no node" : "");
    return TWILL_OK;
}

/* Set *oob to the job that ALPS' variables describe, once all ranks have joined, or fail. */
static twill_status alps_open(struct twill_oob **oob, const struct twill_bootstrap_params *params,
                              struct twill_error *error)
{
    struct twill_job job = {.listener = -1};
    const char *number = twill_launch_variable(params, "ALPS_APP_ID");
    TWILL_TRY(error, find_alps(&job, params, error));
    snprintf(job.identity, sizeof(job.identity), "alps %.80s", number ? number : "");
    TWILL_TRY(error, twill_launch_port(&job, params, error));
    snprintf(job.how, sizeof(job.how), "ALPS: ALPS_APP_PE, rank %d of %d at %.72s", job.rank,
             job.size, TWILL_ADDRESS_AND_PORT(job.hosts, job.port));
    return twill_bootstrap_tcp_open(oob, &twill_bootstrap_alps, &job, params, error);
}

const struct twill_bootstrap_ops twill_bootstrap_alps = {
    TWILL_BOOTSTRAP_BY_TCP, .name = "alps", .applies = alps_applies, .open = alps_open};
