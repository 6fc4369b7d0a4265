/* SPDX-License-Identifier: Apache-2.0 */
/* Training with a parameter server: twillrun -n 4 worker --mode async --layout nc --data
 * data/wdbc.csv Modes sync, k-sync, k-batch-sync, k-async, k-batch-async, async, softsync and
 * bounded; layouts cs, cc, nc and ncs. */
#include "worker.h"

int main(int argc, char **argv)
{
    struct worker_job job;
    twill_server *server = NULL;
    if (!worker_open(&job, argc, argv)) /* options, communicator, data, network */
        return 1;
    twill_status status = twill_server_create(&server, job.comm, &job.options);
    for (int t = 0; t < EXAMPLE_TENSORS && status == TWILL_OK; t++) {
        twill_tensor tensor = {.name = example_network_tensor(t),
                               .count = job.network.count[t],
                               .type = TWILL_F32,
                               .parameters = job.network.weights[t]};
        status = twill_server_add(server, &tensor, NULL);
    }
    if (status == TWILL_OK)
        status = twill_server_commit(server);
    for (int t = 0; t < EXAMPLE_TENSORS && status == TWILL_OK; t++)
        job.network.gradient[t] = twill_server_gradient(server, t);
    if (twill_server_role(server) == TWILL_SERVER_SERVES && status == TWILL_OK)
        status = twill_server_serve(server);
    else
        for (size_t step = 0; step < job.steps && status == TWILL_OK; step++) {
            worker_compute(&job, step); /* gradients of a mini-batch */
            for (int t = EXAMPLE_TENSORS; t-- > 0 && status == TWILL_OK;)
                status = twill_server_push_pull(server, t);
            if (status == TWILL_OK)
                status = twill_server_wait(server, -1);
            worker_log(&job, step, server);
        }
    if (status == TWILL_OK && twill_server_role(server) != TWILL_SERVER_SERVES)
        status = twill_server_leave(server);
    if (status != TWILL_OK)
        fprintf(stderr, "worker: %s: %s\n", twill_strerror(status),
                server != NULL ? twill_server_message(server) : twill_comm_message(job.comm));
    worker_report(&job, server, status);
    twill_server_destroy(server);
    return worker_close(&job, status);
}
