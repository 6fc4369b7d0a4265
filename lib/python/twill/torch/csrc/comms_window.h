/* SPDX-License-Identifier: Apache-2.0 */
/* Works and windows of torch.comms. Windows are those of twill_window.h. */
#ifndef TWILL_TORCH_COMMS_WINDOW_H
#define TWILL_TORCH_COMMS_WINDOW_H

#include "group_recovery.h"
#include "list_calls.h"
#include "point_to_point.h"

#include <torch/csrc/comms/TorchCommBackend.hpp>
#include <twill_window.h>

namespace twill_torch
{

namespace comms = torch::comms;

using CommWorkRef = c10::intrusive_ptr<comms::TorchWork>;

/* Return options of torch.distributed for a call of torch.comms. */
template <class Options, class Given> Options asked(bool async, const Given &given)
{
    Options options;
    options.asyncOp = async;
    if (given.timeout.count() > 0)
        options.timeout = given.timeout;
    return options;
}

/* Runs the abort hooks of a communicator when its first call fails. Calls in progress share it. */
class Failures
{
  public:
    explicit Failures(std::function<void()> hooks) : hooks_(std::move(hooks))
    {
    }

    /* Run the hooks, unless they have run or are not to run any more. */
    void tell()
    {
        std::lock_guard<std::recursive_mutex> lock(mutex_);
        if (!std::exchange(told_, true))
            hooks_();
    }

    /* Do not run the hooks at later failures, or run them again at the next one. */
    void forget(bool told = true)
    {
        std::lock_guard<std::recursive_mutex> lock(mutex_);
        told_ = told;
    }

  private:
    std::recursive_mutex mutex_; /* hooks may abort the communicator */
    bool told_ = false;
    const std::function<void()> hooks_;
};

/* A call in progress. Its status changes in the thread that completes it or in one that waits. */
class CommWork : public comms::TorchWork
{
  public:
    /* Make a work that settle() completes. `block` waits for the call, or throws its error. */
    CommWork(std::function<void()> block, Milliseconds limit, std::shared_ptr<Failures> failures)
        : block_(std::move(block)), limit_(limit), failures_(std::move(failures))
    {
    }

    /* Return the work of a call, which is complete if `inner` is nullptr. */
    static CommWorkRef of(const WorkRef &inner, Milliseconds limit,
                          const std::shared_ptr<Failures> &failures)
    {
        std::function<void()> block;
        if (inner)
            block = [inner] { inner->wait(); };
        auto work = c10::make_intrusive<CommWork>(block, limit, failures);
        if (inner)
            inner->getFuture()->addCallback([work](c10::ivalue::Future &future) {
                work->settle(future.hasError() ? future.exception_ptr() : nullptr);
            });
        else
            work->settle(nullptr);
        return work;
    }

    void wait() override
    {
        runWaitPreHooks();
        waitBlocking();
        runWaitPostHooks();
    }

    void waitBlocking() override
    {
        begin();
        std::exception_ptr error;
        try {
            if (block_)
                block_();
        } catch (...) {
            error = std::current_exception();
        }
        settle(error);
        if (error)
            std::rethrow_exception(error);
    }

    Milliseconds getTimeout() const override
    {
        return limit_;
    }

    /* Set the final status, unless it is set. `error` is nullptr on success. */
    void settle(const std::exception_ptr &error)
    {
        begin();
        std::lock_guard<std::recursive_mutex> lock(mutex_);
        if (settled_)
            return;
        settled_ = true;
        if (error)
            failures_->tell();
        setStatus(!error ? WorkStatus::COMPLETED
                         : (late(error) ? WorkStatus::TIMEDOUT : WorkStatus::ERROR));
    }

  private:
    /* Set the status of a call in progress, at the first sign of it. */
    void begin()
    {
        std::lock_guard<std::recursive_mutex> lock(mutex_);
        if (status() == WorkStatus::NOT_STARTED)
            setStatus(WorkStatus::INPROGRESS);
    }

    /* Return whether an error is that of a time limit. */
    static bool late(const std::exception_ptr &error)
    {
        try {
            std::rethrow_exception(error);
        } catch (const std::exception &e) {
            return strstr(e.what(), "imed out") != nullptr;
        } catch (...) {
            return false;
        }
    }

    const std::function<void()> block_;
    const Milliseconds limit_;
    const std::shared_ptr<Failures> failures_;
    std::recursive_mutex mutex_; /* hooks may ask for the status */
    bool settled_ = false;
};

class Window;
using Windows = std::vector<std::weak_ptr<Window>>; /* of a communicator */

/* A window. It has a signal for each rank, which counts how often that rank has raised it. */
class Window : public comms::TorchCommWindow, public std::enable_shared_from_this<Window>
{
  public:
    Window(BackendRef backend, Milliseconds timeout, std::shared_ptr<Failures> failures,
           std::shared_ptr<Windows> all)
        : backend_(std::move(backend)), timeout_(timeout), failures_(std::move(failures)),
          all_(std::move(all))
    {
        buf_device_ = at::kCPU;
    }
    ~Window() override
    {
        without_gil([this] {
            try {
                close();
            } catch (const std::exception &) { /* the communicator has ended */
            }
        });
    }

    /* Make a window without memory, which ends at the latest with its communicator. */
    template <class... Arguments> static std::shared_ptr<Window> make(const Arguments &...arguments)
    {
        auto made = std::make_shared<Window>(arguments...);
        made->all_->push_back(made);
        return made;
    }

    /* Run a function with the communicator in the order of the group's calls, and wait for it.
     * Throws the error of a call of twill, or what the function throws. */
    template <class Run> static void at_once(Backend &backend, Milliseconds timeout, Run &&run)
    {
        c10d::AllgatherOptions options;
        options.asyncOp = false;
        if (timeout.count() > 0)
            options.timeout = timeout;
        if (WorkRef work = backend.submit(c10d::OpType::UNKNOWN, "comms", options, {}, {}, run))
            work->wait();
    }

    /* Make a tensor the memory of the window. Collective. Its storage moves into memory that ranks
     * of the node share, unless it is there. Refused for storages that PyTorch's own allocator has
     * not made, such as those of NumPy. */
    void tensor_register(const at::Tensor &tensor, bool owning) override;
    void tensor_deregister() override
    {
        if (window_ == nullptr)
            refuse("tensor_deregister", "no tensor is registered");
        close();
    }
    std::shared_ptr<TorchCommWindow> clone() override;

    CommWorkRef put(const at::Tensor &tensor, int to, size_t offset, bool async,
                    const comms::PutOptions &options) override;
    CommWorkRef signal(int peer, bool async, const comms::SignalOptions &options) override;
    CommWorkRef wait_signal(int peer, bool async, const comms::WaitSignalOptions &options) override;

    /* Return the tensor of this rank. Throws for other ranks, whose memory has no address here. */
    at::Tensor map_remote_tensor(int rank) override
    {
        check("map_remote_tensor", rank);
        if (rank != backend_->getRank())
            refuse("map_remote_tensor", "memory of another rank cannot be mapped: use put()");
        return at::from_blob(memory_, buf_shape_, at::TensorOptions().dtype(buf_dtype_));
    }
    std::shared_ptr<comms::TorchCommWindowAttr> get_attr(int peer) override
    {
        check("get_attr", peer);
        auto attr = std::make_shared<comms::TorchCommWindowAttr>();
        attr->accessType = peer == backend_->getRank()
                               ? comms::TorchCommWinAccessType::WIN_ACCESS_TYPE_UNIFIED
                               : comms::TorchCommWinAccessType::WIN_ACCESS_TYPE_SEPARATE;
        return attr;
    }

    /* End the window, after the waits in progress. All its ranks call it, unless it is broken. */
    void close();

  private:
    /* Throw if there is no window, or no such rank. */
    void check(const char *what, int rank) const
    {
        if (window_ == nullptr)
            refuse(what, "no tensor is registered");
        if (rank < 0 || rank >= backend_->getSize())
            refuse(what, "invalid rank: " + std::to_string(rank));
    }

    /* Throw unless a call on the window has succeeded. */
    void must(twill_status status) const
    {
        if (status != TWILL_OK)
            fail(std::string("twill: window: ") +
                 (status == TWILL_ERR_TIMEOUT ? "Timed out: " : "") +
                 twill_window_message(window_) + " (" + twill_strerror(status) + ")");
    }

    static void share(const std::shared_ptr<Job> &job, const at::Tensor &tensor);
    CommWorkRef run(bool async, Milliseconds asked, std::function<void()> function);

    const BackendRef backend_;
    const Milliseconds timeout_;
    const std::shared_ptr<Failures> failures_;
    const std::shared_ptr<Windows> all_;
    twill_window *window_ = nullptr;
    void *memory_ = nullptr;
    std::vector<uint64_t> taken_; /* signals of each rank that wait_signal() has waited for */
    std::mutex mutex_;
    std::condition_variable changed_;
    int running_ = 0; /* functions in threads that run() made */
};

/* Move the storage of a tensor into memory of twill_alloc(), unless it is there. What it had stays
 * with it, because the program may have its address. */
inline void Window::share(const std::shared_ptr<Job> &job, const at::Tensor &tensor)
{
    const c10::Storage &storage = tensor.storage();
    const c10::DataPtr &memory = storage.data_ptr();
    bool ours = memory.get_deleter() == &Allocated::release;
    if (ours && static_cast<Allocated *>(memory.get_context())->job == job)
        return;
    if (!ours && !may_move(storage))
        refuse("tensor_register",
               "the memory of the tensor is not PyTorch's own: pass its clone()");
    const void *from = storage.mutable_data(); // one that is copied on write is copied now
    Allocated *allocated = allocate_shared(job, storage.nbytes());
    if (allocated == nullptr)
        refuse("tensor_register", twill_context_message(job->context));
    if (storage.nbytes() > 0)
        memcpy(allocated->memory, from, storage.nbytes());
    allocated->before = storage.set_data_ptr(
        {allocated->memory, allocated, &Allocated::release, c10::Device(c10::kCPU)});
}

inline void Window::tensor_register(const at::Tensor &tensor, bool owning)
{
    static const char what[] = "tensor_register";
    if (window_ != nullptr)
        refuse(what, "another tensor is registered");
    check_tensor(what, tensor);
    if (!tensor.is_contiguous())
        refuse(what, "the tensor must be contiguous");
    size_t bytes = static_cast<size_t>(tensor.nbytes());
    at_once(*backend_, timeout_, [&](twill_comm *comm) {
        if (bytes > 0)
            share(backend_->job(), tensor);
        return twill_window_create(&window_, comm, bytes > 0 ? tensor.data_ptr() : nullptr, bytes,
                                   backend_->getSize());
    });
    memory_ = tensor.data_ptr();
    win_size_ = bytes;
    buf_dtype_ = tensor.scalar_type();
    buf_shape_ = tensor.sizes().vec();
    if (owning)
        buf_tensor_ = tensor;
    taken_.assign(static_cast<size_t>(backend_->getSize()), 0);
}

inline void Window::close()
{
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return running_ == 0; });
    if (window_ == nullptr || backend_->job()->forked())
        return;
    backend_->calls_->between([this](twill_comm *) { twill_window_destroy(window_); });
    window_ = nullptr;
    memory_ = nullptr;
    buf_tensor_.reset();
    win_size_ = 0;
}

/* Make a window of the same ranks with a copy of the tensor. Collective if there is one. */
inline std::shared_ptr<comms::TorchCommWindow> Window::clone()
{
    std::shared_ptr<Window> made = make(backend_, timeout_, failures_, all_);
    if (window_ == nullptr)
        return made;
    at::Tensor tensor = map_remote_tensor(backend_->getRank());
    at::Tensor copy = allocate_tensor(backend_->job(), tensor.numel(), tensor.options());
    copy = copy.view(tensor.sizes());
    copy.copy_(tensor);
    made->tensor_register(copy, true);
    return made;
}

/* Run a function of a call on the window, in a thread of its own if `async`. */
inline CommWorkRef Window::run(bool async, Milliseconds asked, std::function<void()> function)
{
    Milliseconds limit = asked.count() > 0 ? asked : timeout_;
    if (!async) {
        try {
            function();
        } catch (const c10::DistBackendError &) {
            failures_->tell();
            throw;
        }
        return CommWork::of(nullptr, limit, failures_);
    }
    auto promise = std::make_shared<std::promise<void>>();
    std::shared_future<void> done = promise->get_future();
    auto work = c10::make_intrusive<CommWork>([done] { done.get(); }, limit, failures_);
    {
        std::lock_guard<std::mutex> lock(mutex_);
        running_++;
    }
    std::thread([self = shared_from_this(), function = std::move(function), promise, work] {
        std::exception_ptr error;
        try {
            function();
            promise->set_value();
        } catch (...) {
            error = std::current_exception();
            promise->set_exception(error);
        }
        work->settle(error);
        std::lock_guard<std::mutex> lock(self->mutex_);
        self->running_--;
        self->changed_.notify_all();
    }).detach();
    return work;
}

/* Put a tensor at element `offset` of the window of a rank. The work is complete when the tensor
 * may be changed. Only a signal tells the target that it has arrived. */
inline CommWorkRef Window::put(const at::Tensor &tensor, int to, size_t offset, bool async,
                               const comms::PutOptions &options)
{
    static const char what[] = "put";
    check(what, to);
    check_tensor(what, tensor);
    if (tensor.scalar_type() != buf_dtype_)
        refuse(what, "the tensor and the window have different types");
    Flat from(tensor, true);
    must(twill_put(window_, from.data(), static_cast<size_t>(tensor.nbytes()), to,
                   offset * tensor.element_size(), TWILL_NO_SIGNAL));
    return run(async, options.timeout, [this, from] { must(twill_window_flush(window_)); });
}

/* Tell a rank that all that this rank has put there so far has arrived. */
inline CommWorkRef Window::signal(int peer, bool, const comms::SignalOptions &options)
{
    check("signal", peer);
    return run(false, options.timeout,
               [this, peer] { must(twill_signal(window_, peer, backend_->getRank())); });
}

/* Wait for one more signal of a rank. */
inline CommWorkRef Window::wait_signal(int peer, bool async,
                                       const comms::WaitSignalOptions &options)
{
    check("wait_signal", peer);
    uint64_t wanted = ++taken_[static_cast<size_t>(peer)];
    Milliseconds asked = options.timeout;
    return run(async, asked, [this, peer, wanted, asked] {
        auto until = std::chrono::steady_clock::now() + asked;
        uint64_t count = 0;
        if (asked.count() <= 0) /* the communicator's limit */
            must(twill_wait_signal(window_, peer, wanted, &count));
        for (unsigned tries = 0; count < wanted; tries++) {
            must(twill_wait_signal(window_, peer, 0, &count));
            if (count < wanted && std::chrono::steady_clock::now() > until)
                fail("twill: window: Timed out waiting " + std::to_string(asked.count()) +
                     "ms: no signal from rank " + std::to_string(peer));
            if (tries < 1000)
                std::this_thread::yield();
            else
                std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
    });
}

} // namespace twill_torch
#endif
