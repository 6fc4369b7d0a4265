/* SPDX-License-Identifier: Apache-2.0 */
/** \file twill.hpp
 * \brief twill for C++17 and later: owners for communicators, requests and memory, and typed spans.
 *
 * A thin header-only layer over twill.h. No function throws except twill::check(), which turns a
 * failed ::twill_status into an exception.
 *
 *     twill::comm world;
 *     if (world.init() != TWILL_OK)
 *         return 1;
 *     std::vector<float> gradients(n);
 *     twill_status status = world.allreduce(gradients, TWILL_AVG); // in place
 *
 * A span is made from anything with data() and size(), an array, or a pointer and a count. If a
 * span is too small, it is passed as NULL, so the call fails on all ranks and writes nothing. */
#ifndef TWILL_HPP
#define TWILL_HPP

#include <twill.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

#if defined(__cpp_exceptions)
#include <stdexcept>
#include <string>
#endif

namespace twill
{

/** \brief The ::twill_type of a C++ arithmetic type, as type_of<float> is ::TWILL_F32. Specialise
 * it for your own types that have the layout of one of twill's (half, bfloat16). */
template <class T> struct element {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool> && sizeof(T) <= 8,
                  "twill has no element type for this");
    static constexpr twill_type integer(std::size_t bytes, bool is_signed)
    {
        return bytes == 1   ? (is_signed ? TWILL_I8 : TWILL_U8)
               : bytes == 2 ? (is_signed ? TWILL_I16 : TWILL_U16)
               : bytes == 4 ? (is_signed ? TWILL_I32 : TWILL_U32)
                            : (is_signed ? TWILL_I64 : TWILL_U64);
    }
    static constexpr twill_type value = std::is_same_v<T, float> ? TWILL_F32
                                        : std::is_same_v<T, double>
                                            ? TWILL_F64
                                            : integer(sizeof(T), std::is_signed_v<T>);
};
template <class T> inline constexpr twill_type type_of = element<std::remove_cv_t<T>>::value;

/** \brief A view of contiguous elements, which it does not own. */
template <class T> class span
{
  public:
    constexpr span() = default;
    constexpr span(T *data, std::size_t size) : data_(data), size_(size)
    {
    }
    template <std::size_t N> constexpr span(T (&array)[N]) : data_(array), size_(N)
    {
    }
    /** Take a container: a vector, array, std::span, twill::buffer or twill::span. */
    template <class C,
              class = std::enable_if_t<std::is_convertible_v<
                  std::remove_pointer_t<decltype(std::declval<C &>().data())> (*)[], T (*)[]>>>
    constexpr span(C &&container) : data_(container.data()), size_(container.size())
    {
    }

    constexpr T *data() const
    {
        return data_;
    }
    constexpr std::size_t size() const
    {
        return size_;
    }
    constexpr T *begin() const
    {
        return data_;
    }
    constexpr T *end() const
    {
        return data_ + size_;
    }
    constexpr T &operator[](std::size_t i) const
    {
        return data_[i];
    }

  private:
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** \brief Owner of a nonblocking or persistent request. Its destructor waits for completion. */
class request
{
  public:
    request() = default;
    request(request &&other) noexcept : handle_(std::exchange(other.handle_, nullptr))
    {
    }
    request &operator=(request &&other) noexcept
    {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
        }
        return *this;
    }
    request(const request &) = delete;
    request &operator=(const request &) = delete;
    ~request()
    {
        reset();
    }

    [[nodiscard]] twill_status wait()
    {
        return twill_wait(&handle_);
    }
    [[nodiscard]] twill_status test(bool &done)
    {
        int complete = 0;
        twill_status status = twill_test(&handle_, &complete);
        done = complete != 0;
        return status;
    }
    [[nodiscard]] twill_status start()
    {
        return twill_request_start(handle_);
    }
    /** \brief Wait for the request and free it. */
    void reset() noexcept
    {
        if (handle_ != nullptr)
            (void)twill_wait(&handle_);
        if (handle_ != nullptr) /* persistent */
            (void)twill_request_free(&handle_);
    }
    /** \brief Return the address of the handle. Calls of twill.h may set it if it is NULL. */
    twill_request **get()
    {
        return &handle_;
    }

  private:
    twill_request *handle_ = nullptr;
};

/** \brief Owner of memory of twill_alloc(). It must be destroyed before its context. */
template <class T> class buffer
{
    static_assert(std::is_trivially_copyable_v<T>, "elements are moved as bytes");

  public:
    buffer() = default;
    buffer(buffer &&other) noexcept
    {
        swap(other);
    }
    buffer &operator=(buffer &&other) noexcept
    {
        buffer taken(std::move(other));
        swap(taken);
        return *this;
    }
    buffer(const buffer &) = delete;
    buffer &operator=(const buffer &) = delete;
    ~buffer()
    {
        (void)twill_free(context_, data_);
    }

    /** \brief Allocate \p size undefined elements, and free the old ones on success. */
    [[nodiscard]] twill_status alloc(twill_context *context, std::size_t size)
    {
        void *memory = nullptr;
        if (size > SIZE_MAX / sizeof(T))
            return TWILL_ERR_MEMORY;
        twill_status status = twill_alloc(context, &memory, size * sizeof(T));
        if (status == TWILL_OK) {
            *this = buffer();
            context_ = context;
            data_ = static_cast<T *>(memory);
            size_ = size;
        }
        return status;
    }

    T *data() const
    {
        return data_;
    }
    std::size_t size() const
    {
        return size_;
    }
    T *begin() const
    {
        return data_;
    }
    T *end() const
    {
        return data_ + size_;
    }
    T &operator[](std::size_t i) const
    {
        return data_[i];
    }

  private:
    void swap(buffer &other)
    {
        std::swap(context_, other.context_);
        std::swap(data_, other.data_);
        std::swap(size_, other.size_);
    }
    twill_context *context_ = nullptr;
    T *data_ = nullptr;
    std::size_t size_ = 0;
};

/** \brief Owner of a communicator. Its destructor is collective, as twill_comm_destroy(). A
 * communicator of init() also destroys its context, and must be destroyed last. */
class comm
{
  public:
    comm() = default;
    /** \brief Take ownership of a communicator from twill_comm_create(), twill_comm_split() ... */
    explicit comm(twill_comm *handle) : handle_(handle)
    {
    }
    comm(comm &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), whole_(std::exchange(other.whole_, false))
    {
    }
    comm &operator=(comm &&other) noexcept
    {
        if (this != &other) {
            reset();
            handle_ = std::exchange(other.handle_, nullptr);
            whole_ = std::exchange(other.whole_, false);
        }
        return *this;
    }
    comm(const comm &) = delete;
    comm &operator=(const comm &) = delete;
    ~comm()
    {
        reset();
    }

    /** \brief Create the communicator of all ranks of the job, by twill_init(). */
    [[nodiscard]] twill_status init()
    {
        reset();
        twill_status status = twill_init(&handle_);
        whole_ = handle_ != nullptr;
        return status;
    }
    /** \brief Do the same, but store the reason of a failure in \p why instead of printing it. */
    template <std::size_t N> [[nodiscard]] twill_status init(char (&why)[N])
    {
        reset();
        twill_status status = twill_init_with(&handle_, nullptr, nullptr, why, N);
        whole_ = handle_ != nullptr;
        return status;
    }
    void reset() noexcept
    {
        if (whole_)
            twill_finalize(handle_);
        else
            twill_comm_destroy(handle_);
        handle_ = nullptr;
        whole_ = false;
    }

    twill_comm *get() const
    {
        return handle_;
    }
    explicit operator bool() const
    {
        return handle_ != nullptr;
    }
    twill_context *context() const
    {
        return twill_comm_context(handle_);
    }
    int rank() const
    {
        return twill_comm_rank(handle_);
    }
    int size() const
    {
        return twill_comm_size(handle_);
    }
    int node() const
    {
        return twill_comm_node(handle_);
    }
    int nodes() const
    {
        return twill_comm_nodes(handle_);
    }
    int local_rank() const
    {
        return twill_comm_local_rank(handle_);
    }
    int local_size() const
    {
        return twill_comm_local_size(handle_);
    }
    const char *message() const
    {
        return twill_comm_message(handle_);
    }

    [[nodiscard]] twill_status dup(comm &made) const
    {
        return make(made, [&](twill_comm **to) { return twill_comm_dup(to, handle_); });
    }
    [[nodiscard]] twill_status split(comm &made, int colour, int key) const
    {
        return make(made,
                    [&](twill_comm **to) { return twill_comm_split(to, handle_, colour, key); });
    }
    [[nodiscard]] twill_status split(comm &made, twill_level level, int key = 0) const
    {
        return make(
            made, [&](twill_comm **to) { return twill_comm_split_level(to, handle_, level, key); });
    }

    /* Collectives, which work in place if given one span. dst of allgather and gather, src of
     * reduce_scatter and scatter, and both of alltoall have a shard for each rank. */
    [[nodiscard]] twill_status barrier() const
    {
        return twill_barrier(handle_);
    }
    template <class S, class D>
    [[nodiscard]] twill_status allreduce(const S &src, D &&dst, twill_op op) const
    {
        auto [from, to] = both(src, dst);
        return twill_allreduce(handle_, from.data(), fit(to, from.size()), from.size(), type(from),
                               op);
    }
    template <class D> [[nodiscard]] twill_status allreduce(D &&data, twill_op op) const
    {
        auto all = view(data);
        return twill_allreduce(handle_, all.data(), all.data(), all.size(), type(all), op);
    }
    template <class D>
    [[nodiscard]] twill_status allreduce_start(D &&data, twill_op op, request &call) const
    {
        auto all = view(data);
        call.reset();
        return twill_allreduce_start(handle_, all.data(), all.data(), all.size(), type(all), op,
                                     call.get());
    }
    template <class D>
    [[nodiscard]] twill_status allreduce_init(D &&data, twill_op op, request &call) const
    {
        auto all = view(data);
        call.reset();
        return twill_allreduce_init(handle_, all.data(), all.data(), all.size(), type(all), op,
                                    call.get());
    }
    template <class S, class D>
    [[nodiscard]] twill_status reduce(const S &src, D &&dst, twill_op op, int root) const
    {
        auto [from, to] = both(src, dst);
        return twill_reduce(handle_, from.data(), rank() == root ? fit(to, from.size()) : nullptr,
                            from.size(), type(from), op, root);
    }
    template <class D> [[nodiscard]] twill_status broadcast(D &&data, int root) const
    {
        auto all = view(data);
        return twill_broadcast(handle_, all.data(), all.data(), all.size(), type(all), root);
    }
    template <class S, class D> [[nodiscard]] twill_status allgather(const S &src, D &&dst) const
    {
        auto [from, to] = both(src, dst);
        return twill_allgather(handle_, from.data(), fit(to, from.size() * shards()), from.size(),
                               type(from));
    }
    template <class S, class D>
    [[nodiscard]] twill_status reduce_scatter(const S &src, D &&dst, twill_op op) const
    {
        auto [from, to] = both(src, dst);
        return twill_reduce_scatter(handle_, fit(from, to.size() * shards()), to.data(), to.size(),
                                    type(from), op);
    }
    template <class S, class D>
    [[nodiscard]] twill_status gather(const S &src, D &&dst, int root) const
    {
        auto [from, to] = both(src, dst);
        return twill_gather(handle_, from.data(),
                            rank() == root ? fit(to, from.size() * shards()) : nullptr, from.size(),
                            type(from), root);
    }
    template <class S, class D>
    [[nodiscard]] twill_status scatter(const S &src, D &&dst, int root) const
    {
        auto [from, to] = both(src, dst);
        return twill_scatter(handle_, rank() == root ? fit(from, to.size() * shards()) : nullptr,
                             to.data(), to.size(), type(from), root);
    }
    template <class S, class D> [[nodiscard]] twill_status alltoall(const S &src, D &&dst) const
    {
        auto [from, to] = both(src, dst);
        std::size_t count = from.size() / (shards() > 0 ? shards() : 1);
        return twill_alltoall(handle_, from.data(), fit(to, count * shards()), count, type(from));
    }
    /* Team calls, which all threads of a rank make (twill_allreduce_team() etc.) */
    [[nodiscard]] twill_status barrier_team(int thread, int threads) const
    {
        return twill_barrier_team(handle_, thread, threads);
    }
    template <class S, class D>
    [[nodiscard]] twill_status allreduce_team(const S &src, D &&dst, twill_op op, int thread,
                                              int threads) const
    {
        auto [from, to] = both(src, dst);
        return twill_allreduce_team(handle_, from.data(), fit(to, from.size()), from.size(),
                                    type(from), op, thread, threads);
    }
    template <class D>
    [[nodiscard]] twill_status allreduce_team(D &&data, twill_op op, int thread, int threads) const
    {
        auto all = view(data);
        return twill_allreduce_team(handle_, all.data(), all.data(), all.size(), type(all), op,
                                    thread, threads);
    }
    template <class D>
    [[nodiscard]] twill_status broadcast_team(D &&data, int root, int thread, int threads) const
    {
        auto all = view(data);
        return twill_broadcast_team(handle_, all.data(), all.data(), all.size(), type(all), root,
                                    thread, threads);
    }
    template <class S, class D>
    [[nodiscard]] twill_status allgather_team(const S &src, D &&dst, int thread, int threads) const
    {
        auto [from, to] = both(src, dst);
        return twill_allgather_team(handle_, from.data(), fit(to, from.size() * shards()),
                                    from.size(), type(from), thread, threads);
    }
    template <class S, class D>
    [[nodiscard]] twill_status reduce_scatter_team(const S &src, D &&dst, twill_op op, int thread,
                                                   int threads) const
    {
        auto [from, to] = both(src, dst);
        return twill_reduce_scatter_team(handle_, fit(from, to.size() * shards()), to.data(),
                                         to.size(), type(from), op, thread, threads);
    }

    template <class S> [[nodiscard]] twill_status send(const S &src, int to) const
    {
        auto from = view(src);
        return twill_send(handle_, from.data(), from.size(), type(from), to);
    }
    template <class D> [[nodiscard]] twill_status recv(D &&dst, int from) const
    {
        auto to = view(dst);
        return twill_recv(handle_, to.data(), to.size(), type(to), from);
    }

  private:
    template <class C> static auto view(C &container)
    {
        using T = std::remove_reference_t<decltype(*std::data(container))>;
        return span<T>(container);
    }
    template <class S, class D> static auto both(const S &src, D &dst)
    {
        auto from = view(src);
        auto to = view(dst);
        static_assert(type_of<std::remove_reference_t<decltype(from[0])>> ==
                          type_of<std::remove_reference_t<decltype(to[0])>>,
                      "src and dst have elements of one type");
        return std::pair(from, to);
    }
    template <class T> static constexpr twill_type type(const span<T> &)
    {
        return type_of<T>;
    }
    /* Return the buffer, or nullptr if it has fewer than `size` elements. */
    template <class T> static T *fit(const span<T> &buffer, std::size_t size)
    {
        return buffer.size() < size ? nullptr : buffer.data();
    }
    std::size_t shards() const
    {
        return handle_ != nullptr ? static_cast<std::size_t>(size()) : 0;
    }
    template <class Make> static twill_status make(comm &made, Make &&create)
    {
        twill_comm *handle = nullptr;
        twill_status status = create(&handle);
        made = comm(handle);
        return status;
    }

    twill_comm *handle_ = nullptr;
    bool whole_ = false; /* created with its context by init() */
};

#if defined(__cpp_exceptions)
/** \brief The exception of a failed call, with its status, and its message as what(). */
class error : public std::runtime_error
{
  public:
    error(twill_status status, const std::string &what) : std::runtime_error(what), status_(status)
    {
    }
    twill_status status() const noexcept
    {
        return status_;
    }

  private:
    twill_status status_;
};

/** \brief Throw twill::error if the call failed, as in twill::check(world, world.barrier()). */
inline void check(const comm &on, twill_status status)
{
    if (status == TWILL_OK)
        return;
    const char *words = on ? on.message() : "";
    throw error(status, words[0] != '\0' ? words : twill_strerror(status));
}
#endif

} // namespace twill

#endif
