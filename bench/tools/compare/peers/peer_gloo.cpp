/* SPDX-License-Identifier: Apache-2.0 */
/* The program of twill-compare for Gloo over TCP, on loopback or between hosts, compiled when a
 * comparison runs. Its argument is ring (the default of Gloo), bcube, or halving (halving and
 * doubling of the older interface, only for allreduce in place and reduce_scatter). */
#include "peer.h"

#include <condition_variable>
#include <deque>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/math.h>
#include <gloo/reduce_scatter.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sys/stat.h>
#include <thread>
#include <vector>

namespace
{

struct step_queue;

/* What the program has of Gloo, from begin() to end(). `way` is the argument, ring, bcube or
 * halving. `persistent` is an object of Gloo's older interface, for halving. */
struct gloo_state {
    std::shared_ptr<gloo::rendezvous::Context> context;
    std::unique_ptr<gloo::Algorithm> persistent; /* from prepare() to release(), or null */
    std::string way;
    std::unique_ptr<step_queue> queue; /* from steps_open() to steps_close(), or null */
};

/* Reductions of a played step, which a thread makes in order. Calls of Gloo block, and programs
 * that overlap them with computing (PyTorch) use them in this way. The mutex protects `calls` and
 * the flags. */
struct step_queue {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<struct peer_call> calls;
    bool busy = false, failed = false, stop = false;
    std::thread thread;
};

/* Exchanges keys between hosts before ranks are connected. All ranks set keys in the same order, so
 * setting a key is an allgather of keys and values. */
class ExchangeStore : public gloo::rendezvous::Store
{
  public:
    explicit ExchangeStore(struct peer *peer) : peer_(peer)
    {
    }

    /* Store this rank's key and value, and those of all other ranks, in this object. All ranks must
     * call this together, because it exchanges them through the driver. Throws on failure. */
    void set(const std::string &key, const std::vector<char> &data) override
    {
        const size_t capacity = 16384;
        std::vector<char> mine(capacity), all(capacity * static_cast<size_t>(peer_->size));
        if (key.size() + 1 + sizeof(size_t) + data.size() > capacity)
            throw std::runtime_error("an address is too long");
        size_t bytes = data.size();
        memcpy(&mine[0], key.c_str(), key.size() + 1);
        memcpy(&mine[key.size() + 1], &bytes, sizeof(bytes));
        memcpy(&mine[key.size() + 1 + sizeof(bytes)], data.data(), bytes);
        if (peer_exchange(peer_, mine.data(), all.data(), capacity) != 0)
            throw std::runtime_error("the driver closed the connection");
        for (int rank = 0; rank < peer_->size; rank++) {
            const char *at = &all[capacity * static_cast<size_t>(rank)];
            const std::string its(at);
            memcpy(&bytes, at + its.size() + 1, sizeof(bytes));
            at += its.size() + 1 + sizeof(bytes);
            values_[its] = std::vector<char>(at, at + bytes);
        }
    }

    /* Return the value of a key. Does not wait, but throws if no rank has set the key. */
    std::vector<char> get(const std::string &key) override
    {
        wait(std::vector<std::string>(1, key));
        return values_[key];
    }

    /* Throw if no rank has set one of the keys. Does not wait. */
    void wait(const std::vector<std::string> &keys) override
    {
        for (const std::string &key : keys)
            if (values_.count(key) == 0)
                throw std::runtime_error("no rank has set " + key);
    }

  private:
    struct peer *peer_;
    std::map<std::string, std::vector<char>> values_;
};

/* Return the state of the program, which begin() has made. */
gloo_state *of(struct peer *peer)
{
    return static_cast<gloo_state *>(peer->own);
}

/* Connect all ranks. Returns 0, or 1 after peer_say(). */
int begin(struct peer *peer)
{
    if (peer_launched(peer) != 0)
        return 1;
    try {
        std::unique_ptr<gloo_state> made(new gloo_state);
        const bool hosts = !peer->link.local;
        gloo::transport::tcp::attr address(hosts ? peer->link.here : "127.0.0.1");
        auto device = gloo::transport::tcp::CreateDevice(address);
        made->way = peer->arguments[0] != NULL ? peer->arguments[0] : "ring";
        made->context = std::make_shared<gloo::rendezvous::Context>(peer->rank, peer->size);
        if (hosts) {
            ExchangeStore store(peer);
            made->context->connectFullMesh(store, device);
        } else {
            const std::string folder = std::string(peer->welcome.path) + ".store";
            mkdir(folder.c_str(), 0700); /* the first rank succeeds */
            gloo::rendezvous::FileStore store(folder);
            made->context->connectFullMesh(store, device);
        }
        peer->own = made.release();
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    peer_name(peer, "Gloo, TCP", peer->link.local ? " on loopback" : "");
    return 0;
}

/* Close the connections of Gloo and free what begin() made. */
void end(struct peer *peer)
{
    delete of(peer);
}

/* Wait until all ranks have called this. Returns 0, or 1 after peer_say(). */
int barrier(struct peer *peer)
{
    try {
        gloo::BarrierOptions options(of(peer)->context);
        gloo::barrier(options);
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    return 0;
}

/* For a call of Gloo's older interface, make the object that run() uses for each repetition. Other
 * calls need none. Returns 0, or 1 after peer_say(). */
int prepare(struct peer *peer, const struct peer_call *call)
{
    gloo_state *own = of(peer);
    std::vector<float *> buffers(1, call->dst);
    int count = static_cast<int>(call->count);
    try {
        if (call->collective == TWILL_COMPARE_ALLREDUCE && own->way == "halving")
            own->persistent.reset(
                new gloo::AllreduceHalvingDoubling<float>(own->context, buffers, count));
        if (call->collective == TWILL_COMPARE_REDUCE_SCATTER) {
            buffers[0] = const_cast<float *>(call->src); /* it works in place */
            own->persistent.reset(new gloo::ReduceScatterHalvingDoubling<float>(
                own->context, buffers, count * peer->size, std::vector<int>(peer->size, count)));
        }
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    return 0;
}

/* Free the object that prepare() made, if it made one. */
void release(struct peer *peer)
{
    of(peer)->persistent.reset();
}

/* Return whether the algorithm that the argument names has the collective. "halving" is of Gloo's
 * older interface, which has no allreduce out of place. */
int supports(struct peer *peer, enum twill_compare_collective collective)
{
    const std::string &way = of(peer)->way;
    if (way == "halving")
        return collective == TWILL_COMPARE_ALLREDUCE || collective == TWILL_COMPARE_REDUCE_SCATTER;
    if (way == "bcube")
        return collective <= TWILL_COMPARE_ALLREDUCE_OUT;
    return collective < TWILL_COMPARE_COMMON && collective != TWILL_COMPARE_REDUCE_SCATTER;
}

/* Sum call->count floats over all ranks into call->dst, by Gloo's ring or, if chosen, its bcube.
 * The input is call->src, which may be call->dst. Throws if Gloo fails. */
void allreduce(gloo_state *own, const struct peer_call *call)
{
    gloo::AllreduceOptions options(own->context);
    options.setAlgorithm(own->way == "bcube" ? gloo::AllreduceOptions::Algorithm::BCUBE
                                             : gloo::AllreduceOptions::Algorithm::RING);
    if (call->src != call->dst)
        options.setInput(const_cast<float *>(call->src), call->count);
    options.setOutput(call->dst, call->count);
    options.setReduceFunction(
        static_cast<void (*)(void *, const void *, const void *, size_t)>(&gloo::sum<float>));
    gloo::allreduce(options);
}

/* Broadcast call->count floats at call->dst from rank 0, in place. Throws if Gloo fails. */
void broadcast(gloo_state *own, const struct peer_call *call)
{
    gloo::BroadcastOptions options(own->context);
    options.setRoot(0);
    options.setOutput(call->dst, call->count);
    gloo::broadcast(options);
}

/* Gather call->count floats at call->src of each of the `size` ranks at call->dst of all ranks.
 * Throws if Gloo fails. */
void allgather(gloo_state *own, const struct peer_call *call, size_t size)
{
    gloo::AllgatherOptions options(own->context);
    options.setInput(const_cast<float *>(call->src), call->count);
    options.setOutput(call->dst, call->count * size);
    gloo::allgather(options);
}

/* Make a call. Returns 0, or 1 after peer_say(). */
int run(struct peer *peer, const struct peer_call *call)
{
    gloo_state *own = of(peer);
    size_t size = static_cast<size_t>(peer->size);
    try {
        if (own->persistent) {
            own->persistent->run();
            if (call->collective == TWILL_COMPARE_REDUCE_SCATTER)
                memcpy(call->dst, call->src, call->count * sizeof(float));
        } else if (call->collective == TWILL_COMPARE_BARRIER) {
            return barrier(peer);
        } else if (call->collective == TWILL_COMPARE_BROADCAST) {
            broadcast(own, call);
        } else if (call->collective == TWILL_COMPARE_ALLGATHER) {
            allgather(own, call, size);
        } else {
            allreduce(own, call);
        }
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    return 0;
}

/* Run the thread of a queue. Make the queued calls in order, wait while there are none, and set
 * queue->failed if one fails. Returns once queue->stop is set, without making the calls that are
 * left. */
void make_queued_calls(struct peer *peer, step_queue *queue)
{
    std::unique_lock<std::mutex> lock(queue->mutex);
    for (;;) {
        queue->changed.wait(lock, [queue] { return queue->stop || !queue->calls.empty(); });
        if (queue->stop)
            return;
        struct peer_call call = queue->calls.front();
        queue->calls.pop_front();
        queue->busy = true;
        lock.unlock();
        bool failed = run(peer, &call) != 0;
        lock.lock();
        queue->busy = false;
        queue->failed = queue->failed || failed;
        queue->changed.notify_all();
    }
}

/* Start the thread that makes the reductions of training steps, until steps_close(). Returns 0. */
int steps_open(struct peer *peer, const struct twill_compare_model *)
{
    step_queue *queue = new step_queue;
    of(peer)->queue.reset(queue);
    queue->thread = std::thread(make_queued_calls, peer, queue);
    return 0;
}

/* Wait for the call that the thread is making, if any, and stop the thread. Free the queue, with
 * the calls that are left. */
void steps_close(struct peer *peer)
{
    step_queue *queue = of(peer)->queue.get();
    {
        std::lock_guard<std::mutex> lock(queue->mutex);
        queue->stop = true;
    }
    queue->changed.notify_all();
    queue->thread.join();
    of(peer)->queue.reset();
}

/* Append an allreduce of a gradient to the queue. Returns 0. */
int steps_start(struct peer *peer, uint32_t, float *gradient, uint64_t count)
{
    step_queue *queue = of(peer)->queue.get();
    struct peer_call call = {TWILL_COMPARE_ALLREDUCE, gradient, gradient,
                             static_cast<size_t>(count)};
    std::lock_guard<std::mutex> lock(queue->mutex);
    queue->calls.push_back(call);
    queue->changed.notify_all();
    return 0;
}

/* Wait until the queue is empty. Returns 0, or 1 if one of its calls has failed. */
int steps_wait(struct peer *peer)
{
    step_queue *queue = of(peer)->queue.get();
    std::unique_lock<std::mutex> lock(queue->mutex);
    queue->changed.wait(lock, [queue] { return queue->calls.empty() && !queue->busy; });
    return queue->failed ? 1 : 0;
}

} // namespace

/* Run the program of twill-compare for Gloo. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_steps steps = {steps_open,  steps_close, NULL,
                                            steps_start, steps_wait,  NULL};
    static const struct peer_program program = {
        begin, end, run, barrier, prepare, release, NULL, NULL, supports, &steps, 0, NULL, NULL};
    return peer_main(argc, argv, &program);
}
