/* SPDX-License-Identifier: Apache-2.0 */
/* twill.hpp, call by call, on 2 ranks. Exit status 0: every value and every status was right. */
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <twill.hpp>
#include <vector>

static int faults;

static void expect(bool right, const char *what, int rank)
{
    if (right)
        return;
    faults++;
    std::printf("rank %d: %s is wrong\n", rank, what);
}

/* A type of the caller's own that is laid out as one of twill's. */
struct brain_float {
    std::uint16_t bits;
};
template <> struct twill::element<brain_float> {
    static constexpr twill_type value = TWILL_BF16;
};

static_assert(twill::type_of<float> == TWILL_F32 && twill::type_of<const double> == TWILL_F64);
static_assert(twill::type_of<long> == TWILL_I64 && twill::type_of<unsigned long long> == TWILL_U64);
static_assert(twill::type_of<int> == TWILL_I32 && twill::type_of<std::uint16_t> == TWILL_U16);
static_assert(twill::type_of<signed char> == TWILL_I8 && twill::type_of<brain_float> == TWILL_BF16);
static_assert(!std::is_copy_constructible_v<twill::comm> &&
              !std::is_copy_constructible_v<twill::request> &&
              !std::is_copy_constructible_v<twill::buffer<int>>);

static void collectives(const twill::comm &world, int me)
{
    const std::vector<int> src{me + 1, 10 * (me + 1)};
    std::array<int, 2> sum{};
    expect(world.allreduce(src, sum, TWILL_SUM) == TWILL_OK && sum[0] == 3 && sum[1] == 30,
           "allreduce", me);
    std::array<int, 2> most{};
    expect(world.reduce(src, most, TWILL_MAX, 1) == TWILL_OK && most[0] == (me == 1 ? 2 : 0),
           "reduce", me);
    std::vector<double> sent(100, me == 0 ? 0.5 : 0);
    expect(world.broadcast(sent, 0) == TWILL_OK && sent[99] == 0.5, "broadcast", me);
    int all[4] = {0};
    expect(world.allgather(src, all) == TWILL_OK && all[0] == 1 && all[3] == 20, "allgather", me);
    int shard[1] = {0};
    expect(world.reduce_scatter(src, shard, TWILL_SUM) == TWILL_OK && shard[0] == (me ? 30 : 3),
           "reduce_scatter", me);
    int gathered[4] = {0};
    expect(world.gather(src, gathered, 0) == TWILL_OK && gathered[3] == (me == 0 ? 20 : 0),
           "gather", me);
    expect(world.scatter(all, sum, 0) == TWILL_OK && sum[1] == 10 * (me + 1), "scatter", me);
    expect(world.alltoall(src, sum) == TWILL_OK && sum[0] == (me ? 10 : 1) &&
               sum[1] == (me ? 20 : 2),
           "alltoall", me);
    expect((me == 0 ? world.send(src, 1) : world.recv(sum, 0)) == TWILL_OK &&
               (me == 0 || sum[1] == 10),
           "send and recv", me);
    std::vector<brain_float> ones(8, brain_float{0x3f80});
    expect(world.allreduce(ones, TWILL_SUM) == TWILL_OK && ones[7].bits == 0x4000, "bf16", me);
    expect(world.barrier() == TWILL_OK, "barrier", me);
    expect(world.allreduce_team(src, sum, TWILL_SUM, 0, 1) == TWILL_OK && sum[0] == 3, "team", me);
    expect(world.broadcast_team(sum, 0, 0, 1) == TWILL_OK && world.barrier_team(0, 1) == TWILL_OK,
           "broadcast and barrier of a team", me);
    expect(world.allgather_team(src, all, 0, 1) == TWILL_OK && all[2] == 2, "allgather_team", me);
    expect(world.reduce_scatter_team(all, sum, TWILL_SUM, 0, 1) == TWILL_OK, "team's shards", me);
}

static void requests(const twill::comm &world, int me)
{
    std::vector<float> data(5000, 1.0f);
    twill::request call;
    bool done = false;
    expect(world.allreduce_start(data, TWILL_SUM, call) == TWILL_OK, "start", me);
    while (!done && call.test(done) == TWILL_OK)
        continue;
    expect(done && *call.get() == nullptr && data[4999] == 2, "test", me);
    {
        twill::request waits;
        expect(world.allreduce_start(data, TWILL_SUM, waits) == TWILL_OK, "start", me);
        twill::request moved(std::move(waits));
        expect(*waits.get() == nullptr, "a moved request", me);
    } /* waits here */
    expect(data[0] == 4 && data[4999] == 4, "the destructor of a request", me);
    twill::request again;
    expect(world.allreduce_init(data, TWILL_SUM, again) == TWILL_OK, "init", me);
    for (int i = 0; i < 3; i++)
        expect(again.start() == TWILL_OK && again.wait() == TWILL_OK, "persistent", me);
    expect(data[1] == 32, "persistent values", me);
}

static void owners(const twill::comm &world, int me)
{
    twill::comm alone, node, same;
    expect(world.split(alone, me, 0) == TWILL_OK && alone.size() == 1, "split", me);
    expect(world.split(node, TWILL_LEVEL_NODE) == TWILL_OK && node.size() == world.local_size(),
           "split by level", me);
    expect(world.dup(same) == TWILL_OK && same.size() == 2, "dup", me);
    twill::comm moved = std::move(same);
    expect(!same && moved.barrier() == TWILL_OK, "a moved communicator", me);
    twill::buffer<float> memory, taken;
    expect(memory.alloc(world.context(), 1 << 16) == TWILL_OK && memory.size() == 1 << 16, "alloc",
           me);
    for (float &value : memory)
        value = 1;
    taken = std::move(memory);
    expect(memory.data() == nullptr && world.allreduce(taken, TWILL_SUM) == TWILL_OK &&
               taken[65535] == 2,
           "allreduce of a buffer", me);
    expect(memory.alloc(world.context(), SIZE_MAX) == TWILL_ERR_MEMORY, "too large a buffer", me);
}

int main()
{
    twill::comm world;
    char why[200];
    setenv("TWILL_TIMEOUT", "soon", 1);
    if (world.init(why) != TWILL_ERR_CONFIG || std::strstr(why, "TWILL_TIMEOUT=soon") == nullptr)
        return 1;
    unsetenv("TWILL_TIMEOUT");
    if (world.init() != TWILL_OK || world.size() != 2)
        return 1;
    const int me = world.rank();
    collectives(world, me);
    requests(world, me);
    owners(world, me);

    /* A span that is too small on one rank: an error on both, and nothing is written behind it. */
    const int src[4] = {1, 2, 3, 4};
    int dst[4] = {7, 7, 7, 7};
    twill_status status = world.allreduce(src, twill::span<int>(dst, me == 0 ? 2 : 4), TWILL_SUM);
    expect(status != TWILL_OK && world.message()[0] != '\0', "too small a span", me);
    expect(me == 1 || (dst[0] == 7 && dst[3] == 7), "what is behind it", me);
#if defined(__cpp_exceptions)
    bool thrown = false;
    try {
        twill::check(world, world.barrier());
    } catch (const twill::error &error) {
        thrown = error.status() == TWILL_ERR_BROKEN && error.what()[0] != '\0';
    }
    expect(thrown, "an exception", me);
#endif
    return faults == 0 ? 0 : 1;
}
