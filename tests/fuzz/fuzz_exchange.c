/* SPDX-License-Identifier: Apache-2.0 */
/* At the start of a job, ranks that have shown the key describe themselves in all-gathers. A rank
 * whose memory is damaged, or of another version, may be refused, but must not crash this one. The
 * first byte selects this rank and what is opened: the job, with its heap, levels and failure
 * detector; the memory of a node; or the transport between nodes with its rails. */
#include "tests/fuzz/fuzz_exchange.h"
#include "algorithms/select/tuning_file.h"
#include "fabric/detector/detector.h"
#include "fabric/rails/rails.h"
#include "fabric/shm/node_memory.h"
#include "fabric/shm/single_copy.h"
#include "fabric/transports.h"
#include "lib/comm/comm.h"
#include "lib/job/config.h"
#include "lib/job/find_levels.h"
#include "lib/job/job_internal.h"
#include "lib/job/rank_threads.h"
#include "lib/wait/wait.h"
#include "tests/fuzz/fuzz_socket.h"

#include "fabric/host/host_identity.h"
#include "fabric/host/interfaces.h"

#include <sys/epoll.h>

#define MACHINE "pack:2 [numa] l3:1 core:2 pu:1"

static struct fuzz_exchange exchange;

static void check_message(const struct twill_error *error)
{
    fuzz_must(memchr(error->message, '\0', sizeof(error->message)) != NULL);
}

static void check_outcome(twill_status status, const struct twill_error *error)
{
    fuzz_must(status <= 0 && status >= TWILL_STATUS_LOWEST);
    fuzz_must(status == TWILL_OK || error->message[0] != '\0');
    check_message(error);
}

/* --- in the place of the kernel's and of modules that exchange nothing ------------------------ */

FUZZ_REPLACED(twill_status, twill_links_read, struct twill_link **links, size_t *count,
              struct twill_error *error)
{
    *links = NULL;
    *count = 0;
    return TWILL_OK;
}

/* Reads /proc once. */
FUZZ_REPLACED(void, twill_host_describe, struct twill_host *host)
{
    static struct twill_host here;
    if (here.pid == 0)
        __real_twill_host_describe(&here);
    *host = here;
}

/* Of descriptors in memory, which the kernel does not know. */
FUZZ_REPLACED(int, epoll_ctl, int set, int operation, int fd, struct epoll_event *event)
{
    return 0;
}

FUZZ_REPLACED(void, twill_memory_claim, const struct twill_memory *memory,
              struct twill_memory_claim *claim)
{
    *claim = (struct twill_memory_claim){.nodes = 1, .free_bytes = UINT64_MAX};
}

FUZZ_REPLACED(void, twill_memory_limit, struct twill_memory *memory, uint64_t bytes)
{
}

/* No memory is promoted. */
bool twill_promoted_watch(const struct twill_preloaded *preloaded)
{
    return false;
}

void twill_promoted_unwatch(const struct twill_preloaded *preloaded)
{
}

void twill_context_note_of(struct twill_context *context, bool of_rank, const char *format, ...)
{
    char line[TWILL_DESCRIBE_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof(line), format, arguments);
    va_end(arguments);
}

size_t twill_context_shared_bytes(const struct twill_context *context)
{
    return 4096;
}

void twill_progress_place(struct twill_context *context, const struct twill_cpus *ranks, unsigned n,
                          unsigned me)
{
    bool own = false;
    if (ranks == NULL)
        return;
    int pu = twill_topology_helper(context->machine.topology, ranks, n, me, 1, 0, &own);
    fuzz_must(pu < TWILL_CPUS_MOST);
}

/* Threads for kernels, without any. */
uint32_t twill_threads_asked(struct twill_context *context)
{
    return 1;
}

twill_status twill_threads_offer(struct twill_context *context,
                                 struct twill_threads_opening *opening, const uint32_t *asked,
                                 struct twill_oob_batch *batch)
{
    const struct twill_context_job *job = &context->job;
    struct twill_cpus share;
    if (job->host_ranks > 0)
        fuzz_must(twill_topology_share(context->machine.topology, job->host_cpus, job->host_ranks,
                                       job->host_rank, &share) <= TWILL_CPUS_MOST);
    return TWILL_OK;
}

twill_status twill_threads_agree(struct twill_context *context,
                                 const struct twill_threads_opening *opening, twill_status status)
{
    fuzz_must(!opening->any);
    return status;
}

void twill_threads_opening_end(struct twill_threads_opening *opening)
{
    fuzz_must(opening->all == NULL);
}

/* --- the job ---------------------------------------------------------------------------------- */

/* Return what contexts have in common. */
static const struct twill_context *first_context(void)
{
    static struct twill_config config;
    static struct twill_context context = {.config = &config};
    static const char *const settings[] = {"TWILL_TUNE=heap_limit=2M", NULL};
    struct twill_error error = {0};
    if (context.machine.topology != NULL)
        return &context;
    fuzz_must(twill_config_load(context.config, settings, &error) == TWILL_OK);
    fuzz_must(twill_tuning_create(&context.selection.tuning, NULL, NULL, "", &error) == TWILL_OK);
    fuzz_must(twill_topology_open(&context.machine.topology, MACHINE, &error) == TWILL_OK);
    return &context;
}

static void check_world(const struct twill_world *world)
{
    for (unsigned level = 0; level < TWILL_LEVEL_COUNT; level++)
        for (uint32_t r = 0; world->unit[level] != NULL && r < world->size; r++)
            fuzz_must(world->unit[level][r] < world->size);
    for (uint32_t r = 0; r < world->size; r++)
        fuzz_must(world->node[r] < world->nodes && world->order[r] < world->size);
}

static void check_detector(struct twill_context *context)
{
    const struct twill_detector *detector = context->health.detector;
    (void)twill_context_conclude_detector(context);
    for (uint32_t r = 0; r < FUZZ_RANKS; r++)
        fuzz_must(strlen(twill_detector_address(detector, r)) < TWILL_ADDRESS_TEXT);
}

static void open_job(uint8_t kind)
{
    struct twill_context context = *first_context();
    struct twill_context_memory memory = {.spilled = false};
    struct twill_config config = *context.config;
    char nodes[] = "2+1";
    context.memory = &memory;
    context.config = &config;
    context.job.oob = &exchange.base;
    if (kind % 2 != 0)
        context.config->text[TWILL_VARIABLE_NODES] = nodes;
    twill_status status = twill_context_open_job(&context);
    check_outcome(status, &context.error);
    if (status == TWILL_OK) {
        check_outcome(twill_levels_open(&context, context.job.level), &context.error);
        check_world(&context.job.world);
        check_detector(&context);
        twill_heap_destroy(&memory.heap);
    }
    twill_shm_region_close(memory.heap.region);
    twill_detector_close(context.health.detector);
    twill_world_destroy(&context.job.world);
    free(context.job.label);
    free(context.job.level);
    free(context.job.host_cpus);
}

/* --- a node ----------------------------------------------------------------------------------- */

static twill_status open_node(struct twill_node **node, struct twill_single_copy **copy,
                              const struct twill_world *world, struct twill_error *error)
{
    struct twill_oob *oob = &exchange.base;
    struct twill_oob_batch batch = {.oob = oob};
    uint32_t label[FUZZ_RANKS] = {0}, me = (uint32_t)oob->rank;
    const char *why = NULL;
    char how[240];
    twill_status status = twill_node_offer(node, oob, &batch, error);
    twill_status offers =
        twill_single_copy_offer(copy, me, world, TWILL_SINGLE_COPY_CMA, &batch, error);
    fuzz_must(status == TWILL_OK && offers == TWILL_OK);
    TWILL_TRY(error, twill_oob_batch_exchange(&batch, TWILL_OK, error));
    status =
        twill_node_attach(*node, oob, label, 4096, twill_shm_pair_bytes(), NULL, &batch, error);
    twill_single_copy_probe(*copy, me, world, &batch);
    TWILL_TRY(error, twill_oob_batch_exchange(&batch, status, error));
    TWILL_TRY(error, twill_node_conclude(*node, oob, label, &why, error));
    fuzz_must((*node)->size >= 1 && (*node)->size <= FUZZ_RANKS);
    for (uint32_t l = 0; l < (*node)->size; l++)
        fuzz_must((*node)->rank[l] < FUZZ_RANKS);
    twill_single_copy_conclude(copy, me, world, how, sizeof(how));
    return TWILL_OK;
}

static void share_node(void)
{
    static const uint32_t label[FUZZ_RANKS];
    struct twill_error error = {0};
    struct twill_world world;
    struct twill_node *node = NULL;
    struct twill_single_copy *copy = NULL;
    fuzz_must(twill_world_create(&world, FUZZ_RANKS, label, &error) == TWILL_OK);
    check_outcome(open_node(&node, &copy, &world, &error), &error);
    twill_single_copy_close(copy);
    twill_node_close(node);
    twill_world_destroy(&world);
}

/* --- between nodes ---------------------------------------------------------------------------- */

static const char *setting_of(const void *settings, const char *variable)
{
    return strcmp(variable, "TWILL_RAILS") == 0 ? settings : NULL;
}

static twill_status two_rails(const struct twill_transport_params *params, const char *name,
                              struct twill_rail *rails, size_t most, size_t *count,
                              struct twill_error *error)
{
    for (*count = 0; *count < twill_min(most, 2); ++*count) {
        struct twill_rail *rail = &rails[*count];
        *rail = (struct twill_rail){.network = 1 + *count, .mbits = 1000};
        snprintf(rail->name, sizeof(rail->name), "%s", name != NULL ? name : "eth");
    }
    return TWILL_OK;
}

static void choose_rails(const struct twill_transport_params *params, uint8_t kind)
{
    static const char *const settings[] = {NULL, "3", "eth0,eth1,eth2", "8"};
    const struct twill_transport_ops ops = {.name = "rails", .rails = two_rails};
    struct twill_transport_params own = *params;
    struct twill_oob_batch batch = {.oob = params->oob};
    struct twill_rails_opening *opening;
    struct twill_rails_choice *choice = NULL;
    struct twill_error error = {0};
    own.setting = setting_of;
    own.settings = settings[kind % 4];
    twill_status status = twill_rails_offer(&opening, &ops, &own, &batch, &error);
    status = twill_oob_batch_exchange(&batch, status, &error);
    if (status == TWILL_OK)
        status = twill_rails_conclude(opening, &own, &choice, &error);
    check_outcome(status, &error);
    if (choice != NULL) {
        fuzz_must(choice->count >= 1 && choice->count <= TWILL_RAILS_MOST);
        for (uint32_t k = 0; k < choice->count; k++)
            fuzz_must(choice->way[k].weight > 0);
        choice->common.close(&choice->common);
    }
    twill_rails_opening_end(opening);
}

static void choose_internode(struct twill_transport_params *params)
{
    struct twill_oob_batch batch = {.oob = params->oob};
    struct twill_internode_choice choice;
    struct twill_error error = {0};
    char why[320];
    params->provider = "tcp";
    twill_status status = twill_internode_offer(params, &choice, &batch, &error);
    status = twill_oob_batch_exchange(&batch, status, &error);
    check_outcome(status, &error);
    if (status == TWILL_OK)
        twill_internode_conclude(params, &choice, why, sizeof(why));
    free(choice.all);
}

static void open_tcp(const struct twill_transport_params *params)
{
    struct twill_error error = {0};
    struct twill_transport *transport = NULL;
    twill_status status = twill_tcp_transport.open(&transport, params, &error);
    check_outcome(status, &error);
    fuzz_must((transport != NULL) == (status == TWILL_OK));
    for (uint32_t r = 0; transport != NULL && r < FUZZ_RANKS; r++)
        if (r != (uint32_t)params->oob->rank)
            (void)twill_tcp_transport.connect(transport, r, &error);
    if (transport != NULL)
        twill_tcp_transport.close(transport);
}

static void open_transport(uint8_t kind)
{
    static const uint32_t label[FUZZ_RANKS] = {0, 1, 2};
    struct twill_world world;
    struct twill_error error = {0};
    fuzz_must(twill_world_create(&world, FUZZ_RANKS, label, &error) == TWILL_OK);
    struct twill_transport_params params = {.oob = &exchange.base, .world = &world, .comm = 1};
    if (kind % 8 < 4)
        choose_rails(&params, kind);
    else if (kind % 8 < 6)
        choose_internode(&params);
    else
        open_tcp(&params);
    twill_world_destroy(&world);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    fuzz_sockets_unix(size % 8 != 0);
    fuzz_exchange_begin(&exchange, data[0] % FUZZ_RANKS, data + 1, size - 1);
    uint8_t kind = data[0] / FUZZ_RANKS;
    if (kind % 4 == 0)
        open_job(kind / 4);
    else if (kind % 4 == 1)
        share_node();
    else
        open_transport(kind / 4);
    fuzz_sockets_reset();
    return 0;
}
