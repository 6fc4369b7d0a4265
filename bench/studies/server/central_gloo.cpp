/* SPDX-License-Identifier: Apache-2.0 */
/* Make the exchange of server_exchange.c by Gloo over TCP on loopback. The arguments are LIST STEPS
 * MODE RANKS, with the modes of central_mpi.c. It starts RANKS processes. */
extern "C" {
#include "bench/common/gradient_list.h"
}
#include "bench/studies/server/exchange_values.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <memory>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace
{

using gloo_buffer = std::unique_ptr<gloo::transport::UnboundBuffer>;

/* The state of a rank, in main(). */
struct gloo_central {
    struct twill_bench_list list;
    int rank, ranks;
    std::string mode;
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::vector<float> gradient, sum, parameters; /* for all keys, at the offsets of the list */
    std::vector<float> received;                  /* on rank 0, the gradients of each worker */
    std::vector<gloo_buffer> pushes, pulls; /* rank 0 has [workers][keys], others have [keys] */
};

/* Return the buffer of messages of a key, whose values are in the array at `base`. */
gloo_buffer make_buffer(gloo_central &c, float *base, size_t key)
{
    return c.context->createUnboundBuffer(base + c.list.offsets[key],
                                          c.list.elements[key] * sizeof(float));
}

/* Size all arrays, fill the gradients and make the buffers of all messages of the exchanges. */
void make_buffers(gloo_central &c)
{
    const size_t extent = c.list.extent;
    c.gradient.resize(extent);
    c.sum.resize(extent);
    c.parameters.resize(extent);
    c.received.resize(c.rank == 0 ? extent * static_cast<size_t>(c.ranks) : 1);
    exchange_fill(&c.list, c.gradient.data(), c.rank);
    for (int w = 1; w < (c.rank == 0 ? c.ranks : 2); w++)
        for (size_t k = 0; k < c.list.keys; k++) {
            float *push = c.rank == 0 ? c.received.data() + static_cast<size_t>(w) * extent
                                      : c.gradient.data();
            c.pushes.push_back(make_buffer(c, push, k));
            c.pulls.push_back(make_buffer(c, c.parameters.data(), k));
        }
}

/* Update `count` parameters from `at` on by the sum of the gradients. */
void update(gloo_central &c, size_t at, size_t count)
{
    exchange_update(c.parameters.data() + at, c.sum.data() + at, count, c.ranks);
}

/* Make rank 0's part of one exchange in the mode "central". For each key, in the order in which
 * workers send them, sum the gradients of all ranks, update the parameters and send them to all.
 * Returns when all are sent. */
void serve(gloo_central &c)
{
    const size_t keys = c.list.keys;
    for (int w = 1; w < c.ranks; w++)
        for (size_t k = keys; k-- > 0;)
            c.pushes[static_cast<size_t>(w - 1) * keys + k]->recv(w, 2 * k);
    for (size_t k = keys; k-- > 0;) {
        const size_t at = c.list.offsets[k], count = c.list.elements[k];
        std::copy_n(c.gradient.begin() + static_cast<long>(at), count,
                    c.sum.begin() + static_cast<long>(at));
        for (int w = 1; w < c.ranks; w++) {
            c.pushes[static_cast<size_t>(w - 1) * keys + k]->waitRecv();
            const float *from = c.received.data() + static_cast<size_t>(w) * c.list.extent + at;
            for (size_t i = 0; i < count; i++)
                c.sum[at + i] += from[i];
        }
        update(c, at, count);
        for (int w = 1; w < c.ranks; w++)
            c.pulls[static_cast<size_t>(w - 1) * keys + k]->send(w, 2 * k + 1);
    }
    for (gloo_buffer &pull : c.pulls)
        pull->waitSend();
}

/* Make the part of a rank other than 0 of one exchange in the mode "central". Sends its gradients
 * to rank 0 and returns when the new parameters have arrived. */
void work(gloo_central &c)
{
    for (size_t k = c.list.keys; k-- > 0;) {
        c.pulls[k]->recv(0, 2 * k + 1);
        c.pushes[k]->send(0, 2 * k);
    }
    for (size_t k = c.list.keys; k-- > 0;) {
        c.pushes[k]->waitSend();
        c.pulls[k]->waitRecv();
    }
}

/* Sum a range of the gradient of all ranks into `sum`. */
void reduce(gloo_central &c, size_t at, size_t count)
{
    void (*add)(void *, const void *, const void *, size_t) = &gloo::sum<float>;
    gloo::AllreduceOptions options(c.context);
    options.setInput(c.gradient.data() + at, count);
    options.setOutput(c.sum.data() + at, count);
    options.setReduceFunction(add);
    gloo::allreduce(options);
}

/* Sum the gradients of all ranks and update the parameters once. The mode is "central" (rank 0 does
 * it for all), "allreduce" (each key is reduced by itself) or "buffer" (all keys at once). */
void exchange(gloo_central &c)
{
    if (c.mode == "central") {
        c.rank == 0 ? serve(c) : work(c);
        return;
    }
    if (c.mode == "buffer")
        reduce(c, 0, c.list.extent);
    else
        for (size_t k = c.list.keys; k-- > 0;)
            reduce(c, c.list.offsets[k], c.list.elements[k]);
    update(c, 0, c.list.extent);
}

/* Connect this rank, time the exchanges and print the result on rank 0. Returns 0, or throws. */
int run(gloo_central &c, int steps, const std::string &folder)
{
    gloo::transport::tcp::attr address("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(address);
    gloo::rendezvous::FileStore store(folder);
    c.context = std::make_shared<gloo::rendezvous::Context>(c.rank, c.ranks);
    c.context->connectFullMesh(store, device);
    make_buffers(c);
    for (int i = 0; i < 2; i++)
        exchange(c);
    gloo::BarrierOptions barrier(c.context);
    gloo::barrier(barrier);
    auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < steps; i++)
        exchange(c);
    double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    if (c.rank == 0)
        exchange_report(&c.list, c.parameters.data(), c.ranks, steps, seconds);
    gloo::barrier(barrier);
    return 0;
}

} // namespace

/* Start the ranks and time their exchanges. Returns 0, 1 after a failure, or 2 if misused. */
int main(int argc, char **argv)
{
    gloo_central c;
    char message[256] = "", folder[] = "/tmp/central_gloo.XXXXXX";
    if (argc != 5 || !twill_bench_list_read(&c.list, argv[1], message, sizeof(message)) ||
        mkdtemp(folder) == nullptr) {
        std::fprintf(stderr, "usage: central_gloo LIST STEPS central|allreduce|buffer RANKS %s\n",
                     message);
        return 2;
    }
    c.mode = argv[3];
    c.ranks = std::atoi(argv[4]);
    for (c.rank = 1; c.rank < c.ranks && fork() != 0;)
        c.rank++;
    c.rank %= c.ranks; /* the parent is rank 0 */
    int failed = 0, status;
    try {
        failed = run(c, std::atoi(argv[2]), folder);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "central_gloo: rank %d: %s\n", c.rank, error.what());
        failed = 1;
    }
    if (c.rank > 0) {
        std::fflush(stdout);
        _exit(failed);
    }
    while (wait(&status) > 0)
        failed |= status != 0;
    std::string remove = std::string("rm -rf ") + folder;
    return failed | (std::system(remove.c_str()) != 0);
}
