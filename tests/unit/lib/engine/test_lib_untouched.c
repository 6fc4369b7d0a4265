/* SPDX-License-Identifier: Apache-2.0 */
/* twill_run_populate(): pages of a large result that was never touched are mapped at once, and no
 * others. */
#include "lib/comm/comm.h"
#include "lib/engine/engine_internal.h"
#include "tests/support/unit.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

enum { BYTES = 2 * TWILL_POPULATE_FROM };

struct untouched {
    struct twill_comm comm;
    struct twill_request run;
    unsigned char *memory;
    size_t page;
};

static int set_up(void **state)
{
    static struct untouched storage; /* aligned as its members need */
    struct untouched *it = &storage;
    memset(it, 0, sizeof(*it));
    it->page = (size_t)sysconf(_SC_PAGESIZE);
    it->comm.tuning.timeout_ns = UINT64_MAX;
    it->memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(it->memory, MAP_FAILED);
    it->run.engine = &it->comm.engine;
    it->run.buffers.side[TWILL_DST] =
        (struct twill_side){.base = it->memory, .bytes = BYTES, .has = true};
    *state = it;
    return 0;
}

static int tear_down(void **state)
{
    struct untouched *it = *state;
    munmap(it->memory, BYTES);
    return 0;
}

static size_t pages(const struct untouched *it)
{
    static unsigned char resident[BYTES >> 12];
    size_t count = 0;
    assert_int_equal(mincore(it->memory, BYTES, resident), 0);
    for (size_t i = 0; i < BYTES / it->page; i++)
        count += resident[i] & 1;
    return count;
}

TWILL_TEST_BETWEEN(test_populated, set_up, tear_down)
{
    struct untouched *it = *state;
    if (madvise(it->memory, it->page, MADV_POPULATE_WRITE) != 0)
        skip();                   /* before Linux 5.14 */
    twill_run_populate(&it->run); /* its first page is there, as an allocator's header would be */
    assert_int_equal(pages(it), BYTES / it->page);
}

TWILL_TEST_BETWEEN(test_left_alone, set_up, tear_down)
{
    struct untouched *it = *state;
    struct twill_side *dst = &it->run.buffers.side[TWILL_DST];
    const size_t offsets[2] = {0, BYTES / 2};
    dst->offset = offsets; /* there may be gaps */
    twill_run_populate(&it->run);
    assert_int_equal(pages(it), 0);
    dst->offset = NULL;
    dst->bytes = TWILL_POPULATE_FROM - 1;
    twill_run_populate(&it->run);
    assert_int_equal(pages(it), 0);
    dst->bytes = BYTES;
    it->comm.tuning.pool = (struct twill_thread_pool *)(void *)it; /* several threads */
    twill_run_populate(&it->run);
    assert_int_equal(pages(it), 0);
    it->comm.tuning.pool = NULL;
    dst->base = NULL; /* this rank has no result */
    twill_run_populate(&it->run);
    assert_int_equal(pages(it), 0);
}

/* Other ranks wait meanwhile, and may time out: without time for it most is left to the stores. */
TWILL_TEST_BETWEEN(test_much, set_up, tear_down)
{
    struct untouched *it = *state;
    const size_t bytes = (size_t)1 << 30;
    unsigned char resident = 1;
    unsigned char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(memory, MAP_FAILED);
    it->run.buffers.side[TWILL_DST] =
        (struct twill_side){.base = memory, .bytes = bytes, .has = true};
    it->comm.tuning.timeout_ns = 0;
    twill_run_populate(&it->run);
    assert_int_equal(mincore(memory + bytes - it->page, 1, &resident), 0);
    assert_int_equal(resident & 1, 0);
    munmap(memory, bytes);
}

/* In place: a root that broadcasts a mapped file does not write to it. */
TWILL_TEST_BETWEEN(test_in_place, set_up, tear_down)
{
    struct untouched *it = *state;
    it->run.buffers.side[TWILL_SRC] = it->run.buffers.side[TWILL_DST];
    twill_run_populate(&it->run);
    assert_int_equal(pages(it), 0);
}

/* The middle tells whether memory has been used; what is not there then is left to the stores. */
TWILL_TEST_BETWEEN(test_touched, set_up, tear_down)
{
    struct untouched *it = *state;
    it->memory[BYTES / 2] = 1;
    twill_run_populate(&it->run);
    assert_in_range(pages(it), 1, BYTES / it->page - 1);
}

/* A root that gathers short shards in place does not write its own one again. */
TWILL_TEST_BETWEEN(test_own_shard, set_up, tear_down)
{
    struct untouched *it = *state;
    enum { EACH = 4, SLOT = 64 };
    const size_t counts[] = {EACH, EACH}, offsets[] = {0, EACH};
    struct twill_world world = {.size = 2};
    unsigned char slot[4 * SLOT] = {0};
    struct twill_slots slots = {.carried = &it->run, .memory = slot, .bytes = SLOT};
    it->comm.engine.world = &world;
    it->run.layout.element = 1;
    it->run.call.vector = true;
    it->run.buffers.slots = &slots;
    it->run.buffers.side[TWILL_DST].count = counts;
    it->run.buffers.side[TWILL_DST].offset = offsets;
    it->run.buffers.side[TWILL_SRC] =
        (struct twill_side){.base = it->memory, .even = EACH, .has = true, .own = true};
    twill_slots_pack(&slots);
    for (int p = 0; p < 2; p++) {
        memcpy(slot + (2 + p) * SLOT, slot, TWILL_SLOT_HEADER);
        memset(slot + (2 + p) * SLOT + TWILL_SLOT_HEADER, 7, EACH);
    }
    assert_int_equal(twill_slots_unpack(&slots), TWILL_OK);
    assert_int_equal(it->memory[0], 0);
    assert_int_equal(it->memory[EACH], 7);
}
