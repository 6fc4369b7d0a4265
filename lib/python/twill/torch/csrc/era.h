/* SPDX-License-Identifier: Apache-2.0 */
/* Differences between PyTorch 1.13 and 2.13, such as the class that a backend derives from. */
#ifndef TWILL_TORCH_ERA_H
#define TWILL_TORCH_ERA_H

#include <torch/version.h>

#define TWILL_TORCH_VERSION     (TORCH_VERSION_MAJOR * 100 + TORCH_VERSION_MINOR)
#define TWILL_TORCH_HAS_BACKEND (TWILL_TORCH_VERSION >= 200)

#if TWILL_TORCH_HAS_BACKEND
#include <torch/csrc/distributed/c10d/Backend.hpp>
#endif
#if TWILL_TORCH_VERSION >= 208 || !TWILL_TORCH_HAS_BACKEND
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <twill.h>
#include <twill_recover.h>

#include <string>

namespace twill_torch
{

#if TWILL_TORCH_HAS_BACKEND
using Base = c10d::Backend;
#else
using Base = c10d::ProcessGroup;
#endif

using WorkRef = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;

/* Throw RuntimeError, which Gloo also throws for a wrong argument. */
[[noreturn]] inline void refuse(const char *call, const std::string &why)
{
    C10_THROW_ERROR(Error, std::string("twill: ") + call + ": " + why);
}

/* Return the exception of a failed call: DistBackendError, or RuntimeError before 2.0. */
inline std::exception_ptr failure(const std::string &sentence)
{
    try {
#if TWILL_TORCH_HAS_BACKEND
        C10_THROW_ERROR(DistBackendError, sentence);
#else
        C10_THROW_ERROR(Error, sentence);
#endif
    } catch (...) {
        return std::current_exception();
    }
}

/* Throw the exception of a failed call. */
[[noreturn]] inline void fail(const std::string &sentence)
{
    std::rethrow_exception(failure(sentence));
}

/* Return whether the caller of a collective waits for it at once. It does if asyncOp in `options`
 * is false, a member that options have since PyTorch 2.7. */
template <class Options>
auto waits_at_once(const Options &options, int) -> decltype(!options.asyncOp)
{
    return !options.asyncOp;
}
/* Return false, because options without asyncOp do not say whether the caller waits at once. Called
 * with 0, which prefers the overload for int if options have asyncOp. */
template <class Options> bool waits_at_once(const Options &, long)
{
    return false;
}

/* Return whether PyTorch accepts no Work from a blocking call that is complete, as it does from
 * NCCL's backend. It does since 2.8, unless it is set to use Works as inputs of graphs. */
inline bool takes_nothing()
{
#if TWILL_TORCH_VERSION >= 208
    return !c10d::allow_inflight_collective_as_graph_input();
#else
    return false;
#endif
}

} // namespace twill_torch
#endif
