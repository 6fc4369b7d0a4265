/* SPDX-License-Identifier: Apache-2.0 */
/* Storages of tensors that ranks of a node access without a copy (twill_promote()). */
#ifndef TWILL_TORCH_PROMOTION_H
#define TWILL_TORCH_PROMOTION_H

#include "job.h"

#include <cstdlib>

namespace twill_torch
{

/* The context of a promoted storage's DataPtr. A storage that is resized or freed drops it, and so
 * is demoted. It does not keep the job, whose end demotes all. */
struct Promoted {
    std::weak_ptr<Job> job;
    c10::DataPtr memory; /* the DataPtr that the storage had before */
};

/* Demote and free the memory of a storage. The deleter of its DataPtr. A forked child has private
 * memory. Without memory for private pages the storage is never freed, since malloc must not get
 * shared ones. */
inline void release_promoted(void *context)
{
    std::unique_ptr<Promoted> promoted(static_cast<Promoted *>(context));
    std::shared_ptr<Job> job = promoted->job.lock();
    if (job && !job->forked() &&
        twill_demote(job->context, promoted->memory.get()) == TWILL_ERR_MEMORY)
        new c10::DataPtr(std::move(promoted->memory));
}

/* Return what has promoted a storage, or nullptr. */
inline Promoted *promoted_of(const c10::Storage &storage)
{
    const c10::DataPtr &memory = storage.data_ptr();
    return memory.get_deleter() == &release_promoted ? static_cast<Promoted *>(memory.get_context())
                                                     : nullptr;
}

/* Promote the storage of a tensor, until it is demoted, resized or freed, or the job ends. Returns
 * whether it is promoted. */
inline bool promote_storage(const std::shared_ptr<Job> &job, const at::Tensor &tensor)
{
    if (!tensor.has_storage() || !tensor.device().is_cpu()) // sparse tensors have none
        return false;
    const c10::Storage &storage = tensor.storage();
    if (const Promoted *promoted = promoted_of(storage))
        return promoted->job.lock() == job;
#if TWILL_TORCH_VERSION >= 201
    void *memory = storage.mutable_data(); // one that is copied on write is copied now
#else
    void *memory = const_cast<void *>(static_cast<const void *>(storage.data()));
#endif
    if (twill_promote(job->context, memory, storage.nbytes()) != TWILL_OK)
        return false;
    auto *promoted = new Promoted{job, {}};
    promoted->memory =
        storage.set_data_ptr({memory, promoted, &release_promoted, c10::Device(c10::kCPU)});
    return true;
}

/* Undo promote_storage(). Returns whether the storage was promoted and no longer is. */
inline bool demote_storage(const std::shared_ptr<Job> &job, const at::Tensor &tensor)
{
    Promoted *promoted = tensor.has_storage() ? promoted_of(tensor.storage()) : nullptr;
    if (promoted == nullptr || promoted->job.lock() != job ||
        twill_demote(job->context, promoted->memory.get()) != TWILL_OK)
        return false;
    promoted->job.reset();
    (void)tensor.storage().set_data_ptr(std::move(promoted->memory)); // frees `promoted`
    return true;
}

/* Return whether PyTorch's own allocator has made a storage, on a host without CUDA, whose driver
 * may have registered the pages. */
inline bool may_move(const c10::Storage &storage)
{
    return !at::hasCUDA() &&
           storage.data_ptr().get_deleter() == c10::GetAllocator(c10::kCPU)->raw_deleter();
}

/* The storages of recent large calls of a group. With TORCH_TWILL_PROMOTE=1 one that comes back is
 * promoted, as its next calls then need no copy. Calls of a group run one after the other, so there
 * is no lock. */
class Returning
{
  public:
    explicit Returning(std::shared_ptr<Job> job) : job_(std::move(job))
    {
    }

    /* Return whether a call is to note this tensor when it runs. */
    bool is_noted(const at::Tensor &tensor) const
    {
        return on_ && static_cast<size_t>(tensor.nbytes()) >= LEAST;
    }

    /* Note that a call is about to use a tensor, alone. In the fourth call promote its storage, if
     * all of that is the tensor's. Else the program might write to the rest meanwhile. */
    void note(const at::Tensor &tensor)
    {
        if (!tensor.has_storage())
            return;
        const c10::Storage &storage = tensor.storage();
        if (storage.nbytes() != static_cast<size_t>(tensor.nbytes()) || !may_move(storage))
            return;
        const void *memory = storage.data_ptr().get();
        for (Entry &entry : entries_)
            if (entry.storage._unsafe_get_target() == storage.unsafeGetStorageImpl() &&
                entry.memory == memory) {
                if (++entry.calls == PROMOTING)
                    (void)promote_storage(job_, tensor);
                return;
            }
        if (entries_.size() == KEPT)
            entries_.erase(entries_.begin());
        entries_.push_back({storage.getWeakStorageImpl(), memory, 1});
    }

  private:
    static constexpr size_t LEAST = size_t(1) << 20, KEPT = 64; /* bytes; storages */
    static constexpr unsigned PROMOTING = 4;                    /* calls */

    /* A storage, which its weak reference tells apart from later ones at the same address. */
    struct Entry {
        c10::weak_intrusive_ptr<c10::StorageImpl> storage;
        const void *memory;
        unsigned calls;
    };

    const std::shared_ptr<Job> job_;
    const bool on_ = [] {
        const char *setting = getenv("TORCH_TWILL_PROMOTE");
        return setting != nullptr && strcmp(setting, "") != 0 && strcmp(setting, "0") != 0;
    }();
    std::vector<Entry> entries_;
};

/* Return a function of a call that notes up to two tensors of at least 1 MiB, then does `run`. */
template <class Run>
auto noting(const std::shared_ptr<Returning> &returning, const at::Tensor &one,
            const at::Tensor &other, Run run)
{
    bool notes_one = returning->is_noted(one),
         notes_other = !other.is_same(one) && returning->is_noted(other);
    return [returning = notes_one || notes_other ? returning : nullptr,
            one = notes_one ? one : at::Tensor(), other = notes_other ? other : at::Tensor(),
            run = std::move(run)](twill_comm *comm) {
        if (one.defined())
            returning->note(one);
        if (other.defined())
            returning->note(other);
        return run(comm);
    };
}

} // namespace twill_torch
#endif
