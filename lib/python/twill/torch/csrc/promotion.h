/* SPDX-License-Identifier: Apache-2.0 */
/* Storages of tensors that ranks of a node access without a copy (twill_promote()). */
#ifndef TWILL_TORCH_PROMOTION_H
#define TWILL_TORCH_PROMOTION_H

#include "job.h"

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
    void *memory = storage.data();
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

} // namespace twill_torch
#endif
