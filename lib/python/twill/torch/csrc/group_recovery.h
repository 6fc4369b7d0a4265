/* SPDX-License-Identifier: Apache-2.0 */
/* Recovery without some ranks or with others (twill_recover.h), and splits and merges of groups. */
#ifndef TWILL_TORCH_GROUP_RECOVERY_H
#define TWILL_TORCH_GROUP_RECOVERY_H

#include "tensor_calls.h"

namespace twill_torch
{

/* Join the group `name` of a store and return its backend. Collective over its ranks. */
inline BackendRef make_backend(const StoreRef &store, const std::string &name, int rank, int size,
                               Milliseconds timeout)
{
    Membership group = join_group(store, name, rank, size);
    return c10::make_intrusive<Backend>(store, std::move(group), rank, size, timeout);
}

inline std::string Backend::make_handle()
{
    char text[TWILL_HANDLE_BYTES];
    twill_handle_destroy(handle_);
    handle_ = nullptr;
    twill_status status = twill_handle_create(&handle_, calls_->group().comm, nullptr, text);
    if (status != TWILL_OK)
        fail(std::string("twill: reconfigure: a handle: ") + twill_strerror(status));
    return text;
}

/* Make a group and a job of these handles' processes, and let later groups join the job. Throws if
 * twill fails. `old` may be nullptr. If `ordered`, ranks have the order of the list. `seconds`
 * limits each wait. */
inline Membership reconfigured(twill_comm *old, twill_handle *own,
                               const std::vector<std::string> &handles, bool ordered,
                               double seconds)
{
    std::vector<const char *> texts;
    for (const std::string &handle : handles)
        texts.push_back(handle.c_str());
    twill_reconfiguration how = {texts.data(), static_cast<int>(texts.size()), ordered ? 1 : 0,
                                 seconds, nullptr};
    char message[1024] = "";
    auto made = std::make_shared<Job>();
    Membership group;
    std::lock_guard<Mutex> lock(creation_mutex());
    twill_status status =
        twill_comm_reconfigure(&made->world, old, own, &how, message, sizeof(message));
    if (status == TWILL_OK) {
        made->context = twill_comm_context(made->world);
        made->rank = twill_comm_rank(made->world);
        made->size = twill_comm_size(made->world);
        /* the same on all ranks, whose lists may be in different orders */
        const std::string &first = *std::min_element(handles.begin(), handles.end());
        made->id = group.number = std::hash<std::string>()(first) | 1;
        status = twill_comm_dup(&group.comm, made->world);
    }
    if (status == TWILL_OK)
        status = twill_comm_set_timeout(made->world, 1e6);
    if (status != TWILL_OK)
        fail(std::string("twill: reconfigure: ") +
             (*message != 0 ? message : twill_strerror(status)));
    for (int r = 0; r < made->size; r++)
        group.in_job.push_back(r);
    group.job = made;
    Job::current() = made;
    return group;
}

/* Return the backend of a new group and job of these handles' processes, or throw. Uses up this
 * one's handle. */
inline BackendRef Backend::reconfigure(const std::vector<std::string> &handles, bool ordered,
                                       double seconds)
{
    if (handle_ == nullptr)
        refuse("reconfigure", "make_handle() comes first");
    std::unique_ptr<twill_handle, decltype(&twill_handle_destroy)> own(handle_,
                                                                       &twill_handle_destroy);
    handle_ = nullptr;
    Membership group;
    calls_->between([&](twill_comm *comm) {
        group = reconfigured(comm, own.get(), handles, ordered, seconds);
    });
    int rank = group.job->rank, size = group.job->size;
    return c10::make_intrusive<Backend>(store_, std::move(group), rank, size, timeout_.load());
}

/* Return the backend of a new group without the ranks `excluded`, which may be dead. All other
 * ranks call it. If `aborts`, this group's calls first fail on all ranks. If so, or if a call has
 * failed on any of these ranks, they form a new job in place of the old one. */
inline BackendRef Backend::without(const std::vector<int64_t> &excluded, bool aborts)
{
    job()->check_forked();
    std::vector<int> ranks;
    for (int r = 0; r < size_; r++)
        if (std::find(excluded.begin(), excluded.end(), r) == excluded.end())
            ranks.push_back(r);
    auto at = std::find(ranks.begin(), ranks.end(), rank_);
    if (at == ranks.end())
        refuse("shrink", "this rank is excluded, and must not call it");
    int rank = static_cast<int>(at - ranks.begin()), size = static_cast<int>(ranks.size());
    std::string name =
        "shrink" + std::to_string(calls_->group().number) + "/" + std::to_string(++shrinks_);
    if (aborts)
        end_calls();
    Rendezvous rendezvous(store_, name, rank, size);
    /* One rank's contribution, with its handle and whether its group has failed. */
    struct Told {
        int32_t failed;
        char handle[TWILL_HANDLE_BYTES];
    } told = {};
    std::string handle = make_handle();
    told.failed = aborts || calls_->failed();
    snprintf(told.handle, sizeof(told.handle), "%s", handle.c_str());
    std::vector<Told> all(ranks.size());
    rendezvous.gather(&told, all.data(), sizeof(told));
    bool failed = false;
    std::vector<std::string> handles;
    for (const Told &one : all) {
        failed = failed || one.failed != 0;
        handles.emplace_back(one.handle);
    }
    if (failed)
        return reconfigure(handles, true, limit(Milliseconds(0)));
    twill_handle_destroy(handle_);
    handle_ = nullptr;
    return make_backend(store_, name + "/group", rank, size, timeout_.load());
}

#if TWILL_TORCH_VERSION >= 210
/* Return the backend of a new group without the ranks `excluded`. All other ranks must call this.
 * If `flags` has SHRINK_ABORT, calls of this group fail on all ranks. Throws on an excluded
 * rank. */
inline c10::intrusive_ptr<c10d::Backend> Backend::shrink(const std::vector<int64_t> &excluded,
                                                         int flags,
                                                         const c10::intrusive_ptr<Options> &)
{
    constexpr int ABORT = 1; /* SHRINK_ABORT of torch.distributed */
    return without(excluded, (flags & ABORT) != 0);
}
#endif

#if TWILL_TORCH_VERSION >= 209
/* Return the group's time limit and the ranks of its members in the job. */
inline c10::intrusive_ptr<c10d::Backend::Options> Backend::getBackendOptions()
{
    auto options = c10::make_intrusive<Options>("twill", timeout_.load());
    for (int r : calls_->group().in_job)
        options->global_ranks_in_group.push_back(static_cast<uint64_t>(r));
    return options;
}

/* Return the backend of a group of `ranks`, or nullptr if this rank is none of them. */
inline c10::intrusive_ptr<c10d::Backend> Backend::split(const StoreRef &store,
                                                        const std::vector<int> &ranks,
                                                        const c10::intrusive_ptr<Options> &options)
{
    auto at = std::find(ranks.begin(), ranks.end(), rank_);
    if (at == ranks.end())
        return nullptr;
    return make_backend(store->clone(), "split", static_cast<int>(at - ranks.begin()),
                        static_cast<int>(ranks.size()),
                        options ? options->timeout : timeout_.load());
}

/* Return the backend of a new group of `size` processes that meet at a store. */
inline c10::intrusive_ptr<c10d::Backend> Backend::merge(const StoreRef &store,
                                                        const c10::intrusive_ptr<Options> &options,
                                                        const int &rank, const int &size)
{
    return make_backend(store->clone(), "merge", rank, size,
                        options ? options->timeout : timeout_.load());
}
#endif

} // namespace twill_torch
#endif
