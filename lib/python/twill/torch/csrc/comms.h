/* SPDX-License-Identifier: Apache-2.0 */
/* twill as a backend of torch.comms. A communicator passes its calls to a Backend of
 * torch.distributed, which it owns. Windows are in comms_window.h.
 *
 * libtorch_python shows none of the symbols of torch.comms. So this file uses its inline functions
 * only, and PyTorch finds the backend by create_dynamic_loader_twill(). */
#ifndef TWILL_TORCH_COMMS_H
#define TWILL_TORCH_COMMS_H

#include "comms_setup.h"
#include "comms_window.h"

#include <set>

namespace twill_torch
{

/* A communicator. One thread at a time calls it, but for abort() and isAborted(). */
class Comm : public comms::TorchCommBackend
{
  public:
    Comm() = default;
    /* Make a communicator of a split, whose rank and size are known. */
    Comm(int rank, int size) : rank_(rank), size_(size)
    {
    }
    ~Comm() override
    {
        without_gil([this] {
            failures_->forget();
            try {
                end();
            } catch (const std::exception &) { /* it is broken, or has ended */
            }
        });
    }

    void init(at::Device device, const std::string &name,
              const comms::CommOptions &options) override;
    void finalize() override
    {
        if (finalized_)
            refuse("finalize", "the communicator is finalized already");
        end();
        finalized_ = true;
    }
    int getRank() const override
    {
        return rank_;
    }
    int getSize() const override
    {
        return size_;
    }
    std::string_view getBackendName() const override
    {
        return "twill";
    }
    std::string_view getBackendVersion() const override
    {
        return twill_version();
    }
    std::string_view getCommName() const override
    {
        return name_;
    }
    const comms::CommOptions &getOptions() const override
    {
        return *options_;
    }
    const at::Device &getDevice() const override
    {
        return device_;
    }

    CommWorkRef send(const at::Tensor &tensor, int to, bool async,
                     const comms::SendOptions &options) override
    {
        return call(async, options, [&](Backend &backend) {
            Tensors list = {tensor};
            return backend.send_within(list, to, 0, options.timeout);
        });
    }
    CommWorkRef recv(at::Tensor &tensor, int from, bool async,
                     const comms::RecvOptions &options) override
    {
        return call(async, options, [&](Backend &backend) {
            Tensors list = {tensor};
            return backend.recv_within(list, from, 0, options.timeout);
        });
    }
    CommWorkRef batch_op_issue(const std::vector<comms::BatchSendRecv::P2POp> &ops, bool async,
                               const comms::BatchP2POptions &options) override;
    CommWorkRef broadcast(at::Tensor &tensor, int root, bool async,
                          const comms::BroadcastOptions &options) override
    {
        auto how = asked<c10d::BroadcastOptions>(async, options);
        how.rootRank = root;
        Tensors list = {tensor};
        return call(async, options, [&](Backend &b) { return b.broadcast(list, how); });
    }
    CommWorkRef all_reduce(at::Tensor &tensor, const comms::ReduceOp &op, bool async,
                           const comms::AllReduceOptions &options) override
    {
        auto how = asked<c10d::AllreduceOptions>(async, options);
        how.reduceOp = operation_of(op);
        Tensors list = {tensor};
        return call(async, options, [&](Backend &b) { return b.allreduce(list, how); });
    }
    CommWorkRef reduce(const at::Tensor &tensor, int root, const comms::ReduceOp &op, bool async,
                       const comms::ReduceOptions &options) override
    {
        auto how = asked<c10d::ReduceOptions>(async, options);
        how.reduceOp = operation_of(op);
        how.rootRank = root;
        Tensors list = {tensor};
        return call(async, options, [&](Backend &b) { return b.reduce(list, how); });
    }
    /* Gather tensors of any sizes, as all_gather_v() also does. */
    CommWorkRef all_gather(const Tensors &outputs, const at::Tensor &input, bool async,
                           const comms::AllGatherOptions &options) override
    {
        auto how = asked<c10d::AllgatherOptions>(async, options);
        std::vector<Tensors> lists = {outputs};
        Tensors list = {input};
        return call(async, options, [&](Backend &b) { return b.allgather(lists, list, how); });
    }
    CommWorkRef all_gather_v(const Tensors &outputs, const at::Tensor &input, bool async,
                             const comms::AllGatherOptions &options) override
    {
        return all_gather(outputs, input, async, options);
    }
    CommWorkRef all_gather_single(at::Tensor &output, const at::Tensor &input, bool async,
                                  const comms::AllGatherSingleOptions &options) override
    {
        auto how = asked<c10d::AllgatherOptions>(async, options);
        at::Tensor from = input;
        return call(async, options,
                    [&](Backend &b) { return b._allgather_base(output, from, how); });
    }
    /* Reduce and scatter tensors of any sizes, as reduce_scatter_v() also does. */
    CommWorkRef reduce_scatter(at::Tensor &output, const Tensors &inputs, const comms::ReduceOp &op,
                               bool async, const comms::ReduceScatterOptions &options) override
    {
        auto how = asked<c10d::ReduceScatterOptions>(async, options);
        how.reduceOp = operation_of(op);
        Tensors list = {output};
        std::vector<Tensors> lists = {inputs};
        return call(async, options, [&](Backend &b) { return b.reduce_scatter(list, lists, how); });
    }
    CommWorkRef reduce_scatter_v(at::Tensor &output, const Tensors &inputs,
                                 const comms::ReduceOp &op, bool async,
                                 const comms::ReduceScatterOptions &options) override
    {
        return reduce_scatter(output, inputs, op, async, options);
    }
    CommWorkRef reduce_scatter_single(at::Tensor &output, const at::Tensor &input,
                                      const comms::ReduceOp &op, bool async,
                                      const comms::ReduceScatterSingleOptions &options) override
    {
        auto how = asked<c10d::ReduceScatterOptions>(async, options);
        how.reduceOp = operation_of(op);
        at::Tensor from = input;
        return call(async, options,
                    [&](Backend &b) { return b._reduce_scatter_base(output, from, how); });
    }
    CommWorkRef all_to_all_single(at::Tensor &output, const at::Tensor &input, bool async,
                                  const comms::AllToAllSingleOptions &options) override
    {
        std::vector<int64_t> equal;
        return exchange(output, input, equal, equal, async, options);
    }
    CommWorkRef all_to_all_v_single(at::Tensor &output, const at::Tensor &input,
                                    const std::vector<uint64_t> &received,
                                    const std::vector<uint64_t> &sent, bool async,
                                    const comms::AllToAllvSingleOptions &options) override;
    CommWorkRef all_to_all(const Tensors &outputs, const Tensors &inputs, bool async,
                           const comms::AllToAllOptions &options) override
    {
        auto how = asked<c10d::AllToAllOptions>(async, options);
        Tensors to = outputs, from = inputs;
        return call(async, options, [&](Backend &b) { return b.alltoall(to, from, how); });
    }
    CommWorkRef barrier(bool async, const comms::BarrierOptions &options) override
    {
        auto how = asked<c10d::BarrierOptions>(async, options);
        return call(async, options, [&](Backend &b) { return b.barrier(how); });
    }
    CommWorkRef scatter(at::Tensor &output, const Tensors &inputs, int root, bool async,
                        const comms::ScatterOptions &options) override
    {
        auto how = asked<c10d::ScatterOptions>(async, options);
        how.rootRank = root;
        Tensors list = {output};
        std::vector<Tensors> lists(rank_ == root ? 1 : 0, inputs);
        return call(async, options, [&](Backend &b) { return b.scatter(list, lists, how); });
    }
    CommWorkRef gather(const Tensors &outputs, const at::Tensor &input, int root, bool async,
                       const comms::GatherOptions &options) override
    {
        auto how = asked<c10d::GatherOptions>(async, options);
        how.rootRank = root;
        std::vector<Tensors> lists(rank_ == root ? 1 : 0, outputs);
        Tensors list = {input};
        return call(async, options, [&](Backend &b) { return b.gather(lists, list, how); });
    }
    /* Gather along the first dimension of the root's output. */
    CommWorkRef gather_single(at::Tensor &output, const at::Tensor &input, int root, bool async,
                              const comms::GatherSingleOptions &options) override
    {
        Tensors parts;
        if (rank_ == root) {
            check_tensor("gather_single", output);
            check_divides("gather_single", output, size_);
            if (output.dim() > 0)
                parts = output.chunk(size_, 0);
        }
        comms::GatherOptions same;
        same.timeout = options.timeout;
        return gather(parts, input, root, async, same);
    }

    std::shared_ptr<comms::TorchCommBackend> split(const std::vector<int> &ranks,
                                                   const std::string &name,
                                                   const comms::CommOptions &options) override;
    std::shared_ptr<comms::TorchCommWindow>
    new_window(const std::optional<at::Tensor> &tensor) override;

    AllGatherPHandle all_gather_p_init(at::Tensor &output,
                                       const comms::AllGatherPInitOptions &options) override;
    CommWorkRef all_gather_p_exec(AllGatherPHandle handle, const at::Tensor &input, bool async,
                                  const comms::AllGatherPExecOptions &options) override;
    void all_gather_p_free(AllGatherPHandle handle) override;

    bool supportsReconfigure() const override
    {
        return true;
    }
    bool isAbortSupported() const override
    {
        return true;
    }
    bool isAborted() const override
    {
        return aborted_;
    }
    bool isInitialized() const override
    {
        return backend_ && !aborted_ && !finalized_;
    }
    comms::InitHandle getInitHandle() const override;
    CommWorkRef reconfigure(const comms::ReconfigureOptions &options) override;
    void abort() override;

    /* Move the storage of a tensor into memory that ranks of the node share, if it has whole pages,
     * so that calls need no copy. Works as twill_promote(). */
    void tensor_register(const at::Tensor &tensor) override
    {
        check_tensor("tensor_register", tensor);
        (void)ready("tensor_register")->promote(tensor);
    }
    void tensor_deregister(const at::Tensor &tensor) override
    {
        check_tensor("tensor_deregister", tensor);
        (void)ready("tensor_deregister")->demote(tensor);
    }

  private:
    /* A persistent all-gather. It runs in place: exec() copies the input into the output first. */
    struct Persistent {
        at::Tensor output, own; /* all parts, and that of this rank */
        twill_request *request = nullptr;
    };

    /* Return the backend, or throw if calls are not permitted now. */
    BackendRef ready(const char *what) const
    {
        if (finalized_ || !backend_ || aborted_)
            refuse(what, finalized_  ? "the communicator is finalized"
                         : !backend_ ? "the communicator has no members before reconfigure()"
                                     : "the communicator is aborted until reconfigure()");
        return backend_;
    }

    /* Start a call and return its work. Waits for it unless `async`. */
    template <class Options, class Start>
    CommWorkRef call(bool async, const Options &options, Start &&start)
    {
        BackendRef backend = ready("call");
        Milliseconds limit = options.timeout.count() > 0 ? options.timeout : options_->timeout;
        WorkRef work;
        try {
            work = start(*backend);
            if (work && !async) {
                work->wait();
                work.reset();
            }
        } catch (const c10::DistBackendError &) {
            failures_->tell();
            throw;
        }
        return CommWork::of(work, limit, failures_);
    }
    template <class Options>
    CommWorkRef exchange(at::Tensor &output, const at::Tensor &input,
                         std::vector<int64_t> &received, std::vector<int64_t> &sent, bool async,
                         const Options &options)
    {
        auto how = asked<c10d::AllToAllOptions>(async, options);
        at::Tensor from = input;
        return call(async, options,
                    [&](Backend &b) { return b.alltoall_base(output, from, received, sent, how); });
    }

    void end();
    void drop_parts();

    at::Device device_{at::kCPU};
    std::string name_;
    std::optional<comms::CommOptions> options_;
    StoreRef store_;
    int rank_ = -1, size_ = -1;
    mutable std::mutex mutex_; /* of backend_, which abort() reads */
    BackendRef backend_;
    std::atomic<bool> aborted_{false}, finalized_{false};
    std::shared_ptr<Failures> failures_ = std::make_shared<Failures>([this] { runAbortHooks(); });
    mutable twill_handle *handle_ = nullptr; /* without a backend; otherwise that has it */
    mutable std::string handle_text_;        /* of getInitHandle(), until it is used */
    std::map<std::string, unsigned> splits_; /* number of splits with each name and members */
    const std::shared_ptr<Windows> windows_ = std::make_shared<Windows>();
    std::set<Persistent *> persistent_;
};

inline void Comm::init(at::Device device, const std::string &name,
                       const comms::CommOptions &options)
{
    static const char what[] = "new_comm";
    if (options_)
        refuse(what, "the communicator is initialized already");
    if (!device.is_cpu())
        refuse(what, "the device must be a CPU, not " + device.str());
    if (!options.enable_reconfigure && rank_ < 0)
        std::tie(rank_, size_) = rank_and_size();
    device_ = device;
    name_ = name;
    store_ = options.store;
    if (!options.enable_reconfigure) {
        StoreRef store = store_ ? store_ : store_of_environment(rank_, options.timeout);
        store_ = c10::make_intrusive<c10d::PrefixStore>("twill/" + name, store);
        backend_ = make_backend(store_, "comm", rank_, size_, options.timeout);
    }
    options_ = options;
    options_->store = nullptr;
}

/* Free what needs the communicator, on all ranks. Errors are those of a broken one, which needs no
 * agreement. */
inline void Comm::drop_parts()
{
    Windows windows;
    windows.swap(*windows_);
    for (const std::weak_ptr<Window> &one : windows)
        if (std::shared_ptr<Window> window = one.lock())
            window->close();
    for (Persistent *one : persistent_)
        if (one->request != nullptr)
            backend_->calls_->between(
                [&](twill_comm *) { (void)twill_request_free(&one->request); });
    persistent_.clear();
}

inline void Comm::end()
{
    twill_handle_destroy(handle_);
    handle_ = nullptr;
    if (!backend_ || finalized_)
        return;
    if (!backend_->job()->forked())
        drop_parts();
    backend_->close(Milliseconds(5000));
}

inline CommWorkRef Comm::batch_op_issue(const std::vector<comms::BatchSendRecv::P2POp> &ops,
                                        bool async, const comms::BatchP2POptions &options)
{
    if (ops.empty())
        refuse("batch_op_issue", "the batch is empty");
    return call(async, options, [&](Backend &backend) -> WorkRef {
        std::vector<WorkRef> works;
        for (const comms::BatchSendRecv::P2POp &op : ops) {
            Tensors list = {op.tensor};
            bool sends = op.type == comms::BatchSendRecv::P2POp::OpType::SEND;
            works.push_back(sends ? backend.send_within(list, op.peer, 0, options.timeout)
                                  : backend.recv_within(list, op.peer, 0, options.timeout));
        }
        auto joined = c10::make_intrusive<Joined>(rank_, std::move(works));
        joined->watch();
        return joined;
    });
}

/* Exchange rows. Splits may have fewer rows in all than the tensors, whose last rows then stay. */
inline CommWorkRef Comm::all_to_all_v_single(at::Tensor &output, const at::Tensor &input,
                                             const std::vector<uint64_t> &received,
                                             const std::vector<uint64_t> &sent, bool async,
                                             const comms::AllToAllvSingleOptions &options)
{
    static const char what[] = "all_to_all_v_single";
    auto used = [&](const at::Tensor &tensor, const std::vector<uint64_t> &splits) {
        check_tensor(what, tensor);
        int64_t rows = tensor.dim() > 0 ? tensor.size(0) : 0, sum = 0;
        bool fits = splits.size() == static_cast<size_t>(size_);
        for (uint64_t split : splits) {
            fits = fits && split <= static_cast<uint64_t>(rows - sum);
            sum += fits ? static_cast<int64_t>(split) : 0;
        }
        if (!fits)
            refuse(what, "there must be a split for each rank, and " + std::to_string(rows) +
                             " rows in all at most");
        return sum < rows ? tensor.narrow(0, 0, sum) : tensor;
    };
    at::Tensor to = used(output, received), from = used(input, sent);
    std::vector<int64_t> in(received.begin(), received.end()), out(sent.begin(), sent.end());
    return exchange(to, from, in, out, async, options);
}

/* Make a communicator of some ranks, in the order of the list. They all call this with the same
 * list, and other ranks with their own or an empty one, for which it returns nullptr. */
inline std::shared_ptr<comms::TorchCommBackend> Comm::split(const std::vector<int> &ranks,
                                                            const std::string &name,
                                                            const comms::CommOptions &options)
{
    static const char what[] = "split";
    (void)ready(what);
    std::string members;
    for (int rank : ranks) {
        if (rank < 0 || rank >= size_ || std::count(ranks.begin(), ranks.end(), rank) != 1)
            refuse(what, "invalid or repeated rank: " + std::to_string(rank));
        members += "-" + std::to_string(rank);
    }
    if (ranks.empty())
        return nullptr;
    auto at = std::find(ranks.begin(), ranks.end(), rank_);
    if (at == ranks.end())
        refuse(what, "rank " + std::to_string(rank_) + " calls it, but is not in the list");
    comms::CommOptions how = options;
    if (!how.store && !store_)
        refuse(what, "no store: pass one to new_comm(), or in the options");
    if (!how.store)
        how.store = store_;
    std::string key = "split" + members + "/" + name;
    key += "/" + std::to_string(splits_[key]++);
    how.store = c10::make_intrusive<c10d::PrefixStore>(key, how.store);
    auto made = std::make_shared<Comm>(static_cast<int>(at - ranks.begin()),
                                       static_cast<int>(ranks.size()));
    made->init(device_, name, how);
    return made;
}

inline std::shared_ptr<comms::TorchCommWindow>
Comm::new_window(const std::optional<at::Tensor> &tensor)
{
    auto window = Window::make(ready("new_window"), options_->timeout, failures_, windows_);
    if (tensor)
        window->tensor_register(*tensor, true);
    return window;
}

inline Comm::AllGatherPHandle Comm::all_gather_p_init(at::Tensor &output,
                                                      const comms::AllGatherPInitOptions &options)
{
    static const char what[] = "all_gather_p_init";
    BackendRef backend = ready(what);
    check_tensor(what, output);
    if (!output.is_contiguous() || output.numel() % size_ != 0)
        refuse(what, "the output must be contiguous, with a part of equal size for each rank");
    auto made = std::make_unique<Persistent>();
    int64_t each = output.numel() / size_;
    made->output = output;
    made->own = output.view({-1}).narrow(0, each * rank_, each);
    Window::at_once(*backend, options.timeout, [&](twill_comm *comm) {
        return twill_allgather_init(comm, bytes_of(made->own), bytes_of(made->output),
                                    static_cast<size_t>(made->own.nbytes()), TWILL_U8,
                                    &made->request);
    });
    persistent_.insert(made.get());
    return made.release();
}

inline CommWorkRef Comm::all_gather_p_exec(AllGatherPHandle handle, const at::Tensor &input,
                                           bool async, const comms::AllGatherPExecOptions &options)
{
    static const char what[] = "all_gather_p_exec";
    auto *one = static_cast<Persistent *>(handle);
    if (persistent_.count(one) == 0)
        refuse(what, "the handle is not one of all_gather_p_init(), or from before reconfigure()");
    check_alike(what, input, one->own);
    if (input.numel() != one->own.numel())
        refuse(what, "the input must have " + std::to_string(one->own.numel()) + " elements");
    auto how = asked<c10d::AllgatherOptions>(async, options);
    Flat from(input, true);
    return call(async, options, [&](Backend &backend) {
        return backend.submit(
            c10d::OpType::_ALLGATHER_BASE, "all_gather_p", how, {input}, {one->output},
            [from, request = one->request, own = one->own](twill_comm *) mutable {
                if (own.numel() > 0 && from.data() != bytes_of(own))
                    memmove(bytes_of(own), from.data(), static_cast<size_t>(own.nbytes()));
                twill_status status = twill_request_start(request);
                return status == TWILL_OK ? twill_wait(&request) : status;
            });
    });
}

/* Free a handle, when no call uses it. Local. */
inline void Comm::all_gather_p_free(AllGatherPHandle handle)
{
    std::unique_ptr<Persistent> one(static_cast<Persistent *>(handle));
    if (persistent_.erase(one.get()) > 0 && one->request != nullptr)
        backend_->calls_->between([&](twill_comm *) { (void)twill_request_free(&one->request); });
}

/* Return this process's handle for one reconfigure(), the same at each call until then. */
inline comms::InitHandle Comm::getInitHandle() const
{
    if (handle_text_.empty() && backend_) {
        handle_text_ = backend_->make_handle();
    } else if (handle_text_.empty()) {
        char text[TWILL_HANDLE_BYTES];
        twill_status status = twill_handle_create(&handle_, nullptr, nullptr, text);
        if (status != TWILL_OK)
            fail(std::string("twill: a handle: ") + twill_strerror(status));
        handle_text_ = text;
    }
    return handle_text_;
}

/* Replace the members by the processes of these handles. All of them call this, after they have
 * exchanged what getInitHandle() returned. Returns a work that is complete, or throws. Windows and
 * persistent calls of the old members end. */
inline CommWorkRef Comm::reconfigure(const comms::ReconfigureOptions &options)
{
    static const char what[] = "reconfigure";
    if (finalized_ || !options_)
        refuse(what, "the communicator is finalized, or not made by new_comm()");
    if (handle_text_.empty())
        refuse(what, "getInitHandle() comes first");
    bool ordered = std::holds_alternative<std::vector<std::string>>(options.handles);
    std::vector<std::string> handles;
    std::visit([&](const auto &given) { handles.assign(given.begin(), given.end()); },
               options.handles);
    if (std::find(handles.begin(), handles.end(), handle_text_) == handles.end())
        refuse(what, "the handle of this process is not in the list");
    double seconds = static_cast<double>(options.timeout.value_or(options_->timeout).count()) / 1e3;
    BackendRef made;
    handle_text_.clear();
    if (backend_) {
        if (aborted_ || backend_->calls_->failed() || !windows_->empty())
            backend_->end_calls(); /* so that the end of a window waits for no lost rank */
        drop_parts();
        made = backend_->reconfigure(handles, ordered, seconds);
    } else {
        std::unique_ptr<twill_handle, decltype(&twill_handle_destroy)> own(handle_,
                                                                           &twill_handle_destroy);
        handle_ = nullptr;
        Membership group = reconfigured(nullptr, own.get(), handles, ordered, seconds);
        int rank = group.job->rank, size = group.job->size;
        made =
            c10::make_intrusive<Backend>(store_, std::move(group), rank, size, options_->timeout);
    }
    if (store_)
        store_ = c10::make_intrusive<c10d::PrefixStore>(std::to_string(options.uuid), store_);
    rank_ = made->getRank();
    size_ = made->getSize();
    {
        std::lock_guard<std::mutex> lock(mutex_);
        made.swap(backend_);
        aborted_ = false;
        failures_->forget(false);
    }
    made.reset();
    return CommWork::of(nullptr, options_->timeout, failures_);
}

/* Make calls in progress and all later ones fail on all ranks, until reconfigure(). Any thread may
 * call this. Does not wait. */
inline void Comm::abort()
{
    std::lock_guard<std::mutex> lock(mutex_);
    aborted_ = true;
    failures_->forget();
    if (backend_)
        backend_->end_calls();
}

} // namespace twill_torch

/* The one function of this class that is not inline. It makes the compiler emit the table of
 * virtual functions here, as that of libtorch_python may be hidden. */
void torch::comms::TorchWork::markCompleted(c10::intrusive_ptr<c10::ivalue::Future> future,
                                            std::vector<at::Tensor> outputs)
{
    future->markCompleted(c10::IValue(std::move(outputs)));
}

/* Return the functions by which torch.comms makes and destroys communicators, with the version of
 * its interface that this was compiled for. torch.comms refuses a library of another version. */
extern "C" __attribute__((visibility("default"))) torch::comms::DynamicLoaderInterface
create_dynamic_loader_twill()
{
    return {[]() -> torch::comms::TorchCommBackend * { return new twill_torch::Comm; },
            [](torch::comms::TorchCommBackend *comm) { delete comm; },
            [] { return torch::comms::TORCHCOMM_BACKEND_ABI_VERSION; }};
}

#endif
