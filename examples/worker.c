/* SPDX-License-Identifier: Apache-2.0 */
/* Train with a parameter server. Run it by twillrun -n 4 worker --mode async --layout nc --data
 * data/digits.csv
 *
 * The modes are sync, k-sync, k-batch-sync, k-async, k-batch-async, async, softsync, bounded and
 * groups. The layouts are cs, cc, nc and ncs. */
#include "worker.h"

/* Create a server of the network's tensors, or rebuild the one of the last round. */
static twill_status begin_round(struct worker_job *job, twill_server **server)
{
    if (*server != NULL)
        return twill_server_rebuild(server, job->across);
    twill_status status = twill_server_create(server, job->across, &job->options);
    for (int t = 0; t < EXAMPLE_TENSORS && status == TWILL_OK; t++)
        status = twill_server_add(*server, &job->tensor[t], NULL);
    return status == TWILL_OK ? twill_server_commit(*server) : status;
}

/* Push gradients and pull parameters. In a group of ranks only the first one has a server. */
static twill_status exchange(struct worker_job *job, twill_server *server)
{
    twill_status status = worker_gather(job);
    for (int t = EXAMPLE_TENSORS; t-- > 0 && status == TWILL_OK && server != NULL;)
        status = twill_server_push_pull(server, t);
    if (status == TWILL_OK && server != NULL)
        status = twill_server_wait(server, -1);
    return status == TWILL_OK ? worker_spread(job) : status;
}

int main(int argc, char **argv)
{
    struct worker_job job;
    twill_server *server = NULL;
    twill_status status = TWILL_OK;
    if (!worker_open(&job, argc, argv)) /* reads options, and makes communicators and the network */
        return 1;
    do { /* there is one round, or --rounds */
        status = job.across != NULL ? begin_round(&job, &server) : TWILL_OK;
        bool serves = (twill_server_role(server) & TWILL_SERVER_SERVES) != 0;
        if (twill_server_role(server) != TWILL_SERVER_SERVES)
            while (status == TWILL_OK && worker_compute(&job)) { /* gradients of a mini-batch */
                status = exchange(&job, server);
                worker_log(&job, server);
            }
        if (status == TWILL_OK && server != NULL)
            status = serves ? twill_server_serve(server) : twill_server_leave(server);
    } while (worker_goes_on(&job, &status));
    worker_report(&job, server, status);
    twill_server_destroy(server);
    return worker_close(&job, status);
}
