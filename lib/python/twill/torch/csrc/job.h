/* SPDX-License-Identifier: Apache-2.0 */
/* A job is a twill context with the communicators that all groups of a process share. The first
 * group of a process makes the job, and later groups of its ranks join it. */
#ifndef TWILL_TORCH_JOB_H
#define TWILL_TORCH_JOB_H

#include "era.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <random>

namespace twill_torch
{

using StoreRef = c10::intrusive_ptr<c10d::Store>;

/* An all-gather over a store, for set-up. Each round has a key for each rank. A rank deletes its
 * key of the round before, which all have read once they have written the next. Keys of the last
 * round stay, as nothing shows that all have read them. */
class Rendezvous
{
  public:
    Rendezvous(StoreRef store, std::string name, int rank, int size)
        : store_(std::move(store)), name_(std::move(name)), rank_(rank), size_(size)
    {
    }

    /* A twill_exchange_fn. Does gather(). Returns 0, or 1 and keeps the failure for reason(). */
    static int exchange(void *user, const void *mine, void *all, size_t bytes)
    {
        auto *self = static_cast<Rendezvous *>(user);
        try {
            self->gather(mine, all, bytes);
            return 0;
        } catch (const std::exception &e) {
            self->reason_ = e.what();
            return 1;
        }
    }

    /* Gather `bytes` of each rank in all[size][bytes], or throw, also if lengths differ. */
    void gather(const void *mine, void *all, size_t bytes)
    {
        const auto *from = static_cast<const uint8_t *>(mine);
        store_->set(key(round_, rank_), std::vector<uint8_t>(from, from + bytes));
        std::vector<std::string> keys;
        for (int r = 0; r < size_; r++)
            keys.push_back(key(round_, r));
        std::vector<std::vector<uint8_t>> values = read_all(keys);
        for (int r = 0; r < size_; r++) {
            const std::vector<uint8_t> &got = values[static_cast<size_t>(r)];
            TORCH_CHECK(got.size() == bytes, "rank ", r, " sent ", got.size(), " bytes, not ",
                        bytes, ": do all ranks run the same version of twill?");
            memcpy(static_cast<uint8_t *>(all) + static_cast<size_t>(r) * bytes, got.data(), bytes);
        }
        if (round_ > 0) {
            try {
                store_->deleteKey(key(round_ - 1, rank_));
            } catch (const std::exception &) { /* some stores cannot delete keys */
            }
        }
        round_++;
    }

    /* Put a number, which is random and the same on all ranks, into the keys from the second round
     * on. A group may be made again with its name in the same store, which still has the keys of
     * its last round. With the number it reads none of these. */
    void tell_apart(uint64_t number)
    {
        number_ = std::to_string(number) + "/";
    }

    /* Return why exchange() has failed, or an empty text. */
    const std::string &reason() const
    {
        return reason_;
    }

  private:
    /* Wait for keys and return their values, in one request if the store can do that. */
    std::vector<std::vector<uint8_t>> read_all(const std::vector<std::string> &keys)
    {
#if TWILL_TORCH_VERSION >= 201
        if (store_->hasExtendedApi())
            return store_->multiGet(keys);
#endif
        std::vector<std::vector<uint8_t>> values;
        for (const std::string &key : keys)
            values.push_back(store_->get(key));
        return values;
    }

    /* Return the key in the store of a rank's part of a round. */
    std::string key(int round, int rank) const
    {
        return name_ + "/" + (round > 0 ? number_ : "") + std::to_string(round) + "/" +
               std::to_string(rank);
    }

    StoreRef store_;
    const std::string name_;
    const int rank_, size_;
    int round_ = 0;
    std::string number_, reason_; /* of tell_apart(); why exchange() failed */
};

using Mutex = std::recursive_mutex;

/* State that a forked child has separately from its parent. A process has one, that of
 * fork_state(). */
struct ForkState {
    Mutex *creation = new Mutex; /* a thread of the parent may hold the parent's mutex */
    unsigned forks = 0;          /* forks that led to this process */
};

/* Return this process's state. It is never destroyed, as groups may outlive static objects. */
inline ForkState &fork_state()
{
    static auto *state = new ForkState;
    static const int renewed = pthread_atfork(nullptr, nullptr, [] {
        state->creation = new Mutex;
        state->forks++;
    });
    (void)renewed;
    return *state;
}

/* Return the mutex under which contexts and communicators, also nested, are made and ended. */
inline Mutex &creation_mutex()
{
    return *fork_state().creation;
}

/* Throw the error with which a call of twill is refused in a forked child. */
[[noreturn]] inline void fail_forked()
{
    fail(std::string("twill: this process was forked after the group was created (") +
         twill_strerror(TWILL_ERR_FORKED) + ")");
}

/* Return a random number that is not 0. */
inline uint64_t random_number()
{
    std::random_device device;
    return (static_cast<uint64_t>(device()) << 32 | device()) | 1;
}

/* The twill context of a process and the communicator from which its groups are made. Its groups
 * share it, and the last of them ends it. Constant once made, but for `messages`. */
struct Job {
    twill_context *context = nullptr;
    twill_comm *world = nullptr;
    uint64_t id = 0; /* id of the job, the same on all ranks and never 0 */
    int rank = 0, size = 0;
    std::weak_ptr<void> messages; /* points to a Messages */
    const unsigned forks = fork_state().forks;

    Job() = default;
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;
    /* Leave the communicator and destroy the context. Does nothing in a forked child. */
    ~Job()
    {
        if (forked())
            return;
        std::lock_guard<Mutex> lock(creation_mutex());
        twill_comm_leave(world);
        twill_context_destroy(context);
    }

    /* Return whether this is a child of the process that made the job. It has none of the threads
     * of its parent, and may never get a lock that one of these holds. */
    bool forked() const
    {
        return fork_state().forks != forks;
    }

    /* Throw in a forked child. */
    void check_forked() const
    {
        if (forked())
            fail_forked();
    }

    /* Return the job, if any, that groups of this process join, under creation_mutex(). */
    static std::weak_ptr<Job> &current()
    {
        static auto *job = new std::weak_ptr<Job>;
        return *job;
    }
};

/* Share an object with threads, which a forked child does not destroy, having none of them. */
template <class Threaded> std::shared_ptr<Threaded> shared_but_in_children(Threaded *made)
{
    return std::shared_ptr<Threaded>(made, [](Threaded *last) {
        if (!last->forked())
            delete last;
    });
}

/* Memory of twill_alloc(), which keeps its job alive. The context of the DataPtr of a storage. */
struct Allocated {
    std::shared_ptr<Job> job;
    void *memory = nullptr;
    c10::DataPtr before; /* memory that the storage had, if it has moved here */

    /* Free an allocation (`context`). The deleter of its DataPtr. */
    static void release(void *context)
    {
        std::unique_ptr<Allocated> allocated(static_cast<Allocated *>(context));
        (void)twill_free(allocated->job->context, allocated->memory);
    }
};

/* Return a new allocation of `bytes` bytes, or nullptr if twill_alloc() fails. */
inline Allocated *allocate_shared(const std::shared_ptr<Job> &job, size_t bytes)
{
    auto allocated = std::make_unique<Allocated>();
    allocated->job = job;
    bool made = twill_alloc(job->context, &allocated->memory, bytes) == TWILL_OK;
    return made ? allocated.release() : nullptr;
}

/* Return an uninitialised tensor of `count` elements in memory of twill_alloc(), or in other memory
 * if that fails. The memory is freed with the tensor. */
inline at::Tensor allocate_tensor(const std::shared_ptr<Job> &job, int64_t count,
                                  const at::TensorOptions &options)
{
    size_t bytes = static_cast<size_t>(count) * options.dtype().itemsize();
    Allocated *allocated = count < 0 ? nullptr : allocate_shared(job, bytes);
    if (allocated == nullptr)
        return at::empty({count}, options);
    return at::for_blob(allocated->memory, {count})
        .context(allocated, &Allocated::release)
        .options(options.device(at::kCPU))
        .make_tensor();
}

/* The data that each rank contributes when a group is made. */
struct Claim {
    uint64_t job;    /* id of its job, or 0 */
    uint64_t number; /* random; rank 0's becomes the number of the group and of a new job */
    int32_t rank;    /* rank in its job, or in the group if it has none */
    int32_t size;    /* size of its job, or of the group if it has none */
};

/* A group's communicator, job and number. Its CallQueue owns it. Constant until the group ends. */
struct Membership {
    std::shared_ptr<Job> job;
    twill_comm *comm = nullptr;
    uint64_t number = 0;     /* identifies the group in its job's messages */
    std::vector<int> in_job; /* rank in the job of each rank of the group */
};

/* Return the message for a group that could not be made. `said` is twill's, or nullptr. */
inline std::string creation_failure(const Rendezvous &rendezvous, const char *said)
{
    return std::string("twill: set-up: ") + (said != nullptr && *said != 0 ? said : "failed") +
           (rendezvous.reason().empty() ? "" : ": " + rendezvous.reason());
}

/* Make a job of all ranks of a rendezvous, set made.job and made.comm, and let later groups join
 * the job. Throws if twill fails. The caller has set made.number and made.in_job. */
inline void create_job(Membership &made, Rendezvous &rendezvous, int rank, int size)
{
    auto job = std::make_shared<Job>();
    twill_bootstrap bootstrap = {rank, size, Rendezvous::exchange, &rendezvous};
    job->id = made.number;
    job->rank = rank;
    job->size = size;
    twill_status status = twill_context_create(&job->context, &bootstrap, nullptr);
    if (status == TWILL_OK)
        status = twill_comm_create(&job->world, job->context);
    if (status == TWILL_OK) /* waits for messages have separate limits */
        status = twill_comm_set_timeout(job->world, 1e6);
    if (status == TWILL_OK)
        status = twill_comm_create_over(&made.comm, job->world, size, made.in_job.data(),
                                        Rendezvous::exchange, &rendezvous);
    if (status != TWILL_OK) {
        fail(creation_failure(rendezvous, job->context != nullptr
                                              ? twill_context_message(job->context)
                                              : twill_strerror(status)));
    }
    made.job = job;
    Job::current() = job;
}

/* Make the communicator of a group over a store, or throw. Collective over the group's ranks. If
 * they are not all in one job, they make a new one. */
inline Membership join_group(const StoreRef &store, const std::string &name, int rank, int size)
{
    Rendezvous rendezvous(store, name, rank, size);
    std::lock_guard<Mutex> lock(creation_mutex());
    Membership made;
    std::shared_ptr<Job> job = Job::current().lock();
    if (job && job->forked()) /* it belongs to the parent */
        job.reset();
    Claim mine = {0, random_number(), rank, size};
    if (job)
        mine = {job->id, mine.number, job->rank, job->size};
    std::vector<Claim> all(static_cast<size_t>(size));
    try {
        rendezvous.gather(&mine, all.data(), sizeof(mine));
    } catch (const std::exception &e) {
        fail(std::string("twill: set-up: the store of the group: ") + e.what());
    }
    bool joins = job != nullptr;
    for (const Claim &claim : all)
        joins = joins && claim.job == all[0].job && claim.job == job->id;
    made.number = all[0].number;
    rendezvous.tell_apart(made.number);
    for (int r = 0; r < size; r++)
        made.in_job.push_back(joins ? all[static_cast<size_t>(r)].rank : r);
    if (!joins) {
        create_job(made, rendezvous, rank, size);
        return made;
    }
    made.job = job;
    twill_status status = twill_comm_create_over(&made.comm, job->world, size, made.in_job.data(),
                                                 Rendezvous::exchange, &rendezvous);
    if (status != TWILL_OK)
        fail(creation_failure(rendezvous, twill_context_message(job->context)));
    return made;
}

} // namespace twill_torch
#endif
