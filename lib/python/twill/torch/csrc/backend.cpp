/* SPDX-License-Identifier: Apache-2.0 */
/* twill as a backend of torch.distributed. This is one translation unit, which
 * lib/python/twill/torch/build.py compiles against the PyTorch that is installed, 1.13 to 2.15. */
#include "backend.h"
#include "group_recovery.h"
#include "list_calls.h"
#include "point_to_point.h"
#include "tensor_calls.h"

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

/* torch.comms is in PyTorch's main branch, and in no release up to 2.15. */
#ifndef TWILL_TORCH_COMMS
#if __has_include(<torch/csrc/comms/TorchCommBackend.hpp>)
#define TWILL_TORCH_COMMS 1
#else
#define TWILL_TORCH_COMMS 0
#endif
#endif

namespace py = pybind11;

namespace twill_torch
{

/* Return the messages of a job, which its groups share. Makes them for the first group. */
inline std::shared_ptr<Messages> messages_of(const std::shared_ptr<Job> &job)
{
    std::lock_guard<Mutex> lock(creation_mutex());
    std::shared_ptr<Messages> messages = std::static_pointer_cast<Messages>(job->messages.lock());
    if (!messages) {
        messages = shared_but_in_children(new Messages(job));
        job->messages = messages;
    }
    return messages;
}

Backend::Backend(StoreRef store, Membership group, int rank, int size, Milliseconds timeout)
    : Base(rank, size), store_(std::move(store)),
      calls_(shared_but_in_children(new CallQueue(std::move(group)))),
      messages_(messages_of(job())), returning_(std::make_shared<Returning>(job())),
      timeout_(timeout)
{
#if TWILL_TORCH_VERSION < 200
    init();
#endif
}

/* Run a function that waits without the interpreter's lock, which the awaited thread may need. */
template <class Function> static void without_gil(Function &&function)
{
    if (!Py_IsInitialized() || !PyGILState_Check()) {
        function();
        return;
    }
    py::gil_scoped_release release;
    function();
}

/* End the group as close() does, which waits one second for calls in progress and then aborts them
 * on all ranks. If this was the last group of its job, also join the thread of messages. */
Backend::~Backend()
{
    without_gil([this] {
        close(Milliseconds(1000));
        scratch_.clear();
        coalesced_.clear();
        messages_.reset(); /* joins a thread */
        returning_.reset();
        calls_.reset();
    });
}

void Backend::close(Milliseconds patience)
{
    if (messages_ && !job()->forked())
        messages_->cancel(calls_->group().number);
    calls_->stop(patience);
    twill_handle_destroy(handle_);
    handle_ = nullptr;
}

std::vector<std::string> Backend::describe()
{
    std::vector<std::string> lines;
    for (size_t i = 0;; i++) {
        const char *line = twill_context_describe(job()->context, i);
        if (line == nullptr)
            return lines;
        lines.emplace_back(line);
    }
}

uint64_t Backend::calls()
{
    twill_counters counters = {};
    (void)twill_comm_counters(calls_->group().comm, &counters);
    return counters.calls;
}

uint64_t Backend::stop_requested()
{
    uint64_t after = 0;
    calls_->between([&](twill_comm *comm) {
        if (twill_comm_stop_requested(comm, &after) != TWILL_OK)
            fail(twill_comm_message(comm));
    });
    return after;
}

#if TWILL_TORCH_VERSION >= 207
/* An allocator of memory that the ranks of a node share. */
class Allocator : public c10::Allocator
{
  public:
    explicit Allocator(std::shared_ptr<Job> job) : job_(std::move(job))
    {
    }

    /* Return memory of twill_alloc(), which its last user frees. Throws if there is not enough. */
    c10::DataPtr allocate(size_t bytes) override
    {
        Allocated *allocated = allocate_shared(job_, bytes);
        TORCH_CHECK_WITH(OutOfMemoryError, allocated != nullptr,
                         "twill: ", twill_context_message(job_->context));
        return {allocated->memory, allocated, &Allocated::release, c10::Device(c10::kCPU)};
    }

    /* Return nullptr, as the memory cannot be freed by its address alone. */
    c10::DeleterFnPtr raw_deleter() const override
    {
        return nullptr;
    }

    void copy_data(void *to, const void *from, std::size_t bytes) const override
    {
        memcpy(to, from, bytes);
    }

  private:
    std::shared_ptr<Job> job_;
};

/* Return a new allocator of memory that the ranks of the node share. */
std::shared_ptr<c10::Allocator> Backend::getMemAllocator()
{
    return std::make_shared<Allocator>(job());
}
#endif

} // namespace twill_torch
#if TWILL_TORCH_COMMS
#include "comms.h"
#endif
namespace twill_torch
{

/* Make the group of a store and return its backend, for Python. Collective over its ranks. */
static c10::intrusive_ptr<Base> create(const StoreRef &store, int rank, int size,
                                       const std::chrono::duration<double> &timeout)
{
    return make_backend(store, "twill", rank, size,
                        std::chrono::duration_cast<Milliseconds>(timeout));
}

} // namespace twill_torch

/* Define the Python module, with create() and the class Backend. */
PYBIND11_MODULE(_twill_torch, m)
{
    using twill_torch::Backend;
    using Release = py::call_guard<py::gil_scoped_release>;
    m.def("create", &twill_torch::create, Release(), py::arg("store"), py::arg("rank"),
          py::arg("size"), py::arg("timeout"));
    m.attr("comms") = TWILL_TORCH_COMMS != 0; /* whether it has a backend of torch.comms */
    py::class_<Backend, twill_torch::Base, c10::intrusive_ptr<Backend>>(m, "Backend")
        .def("describe", &Backend::describe, "Lines that say what twill found and chose.")
#if TWILL_TORCH_VERSION >= 209
        .def_property_readonly("options", &Backend::getBackendOptions)
#endif
        .def("calls", &Backend::calls, "Collectives that have completed.")
        .def("set_timeout", [](Backend &self, std::chrono::milliseconds t) { self.set_timeout(t); })
        .def("_set_default_timeout",
             [](Backend &self, std::chrono::milliseconds t) { self.set_timeout(t); })
        .def("abort_calls", &Backend::end_calls, Release())
        .def(
            "close", [](Backend &self) { self.close(std::chrono::milliseconds(5000)); }, Release())
        .def("stop_requested", &Backend::stop_requested, Release())
        .def("promote", &Backend::promote, Release(), py::arg("tensor"))
        .def("demote", &Backend::demote, Release(), py::arg("tensor"))
        .def("average_narrow", &Backend::average_narrow, Release(), py::arg("tensor"))
        .def("allocate_like", &Backend::allocate, py::arg("count"), py::arg("like"))
        .def("without", &Backend::without, Release(), py::arg("excluded"), py::arg("abort") = false)
        .def("make_handle", &Backend::make_handle, Release())
        .def("reconfigure", &Backend::reconfigure, Release(), py::arg("handles"),
             py::arg("ordered") = true, py::arg("seconds") = 0.0);
}
