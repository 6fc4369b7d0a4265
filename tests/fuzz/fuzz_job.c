/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of two ranks as twill-info reads it from outside, their last events (flight recorder)
 * among it, damaged as the input says: five bytes of it change a word of 8 bytes in one rank's. */
#include "lib/base/trace.h"
#include "lib/report/job_view.h"
#include "tests/fuzz/fuzz_input.h"

#define RANKS   2
#define EVENTS  8
#define PAGE    ((size_t)4096)
#define AREA    ((sizeof(struct twill_node_area) + PAGE - 1) & ~(PAGE - 1))
#define BYTES   (AREA + TWILL_NODE_TRACE_BYTES + (1u << 20)) /* with what lies between them */
#define CHANGES 64

/* A rank's memory, as its owner has it. */
struct region {
    int fd;
    unsigned char *bytes;
    size_t trace_at;
};

/* Write what a rank would: that it is in its third call, and waits. */
static void write_region(struct region *region, uint32_t rank)
{
    const struct twill_call_record call = {.sequence = 3, .count = 4, .what = 0x201 + rank};
    struct twill_node_area *area = (struct twill_node_area *)(void *)region->bytes;
    struct twill_node node = {.size = 1, .area = &area};
    area->layout.magic = TWILL_NODE_MAGIC;
    area->layout.area_bytes = AREA;
    area->owner = (struct twill_node_owner){.job = 1,
                                            .ns = 1,
                                            .ticks = 1,
                                            .rank = rank,
                                            .size = RANKS,
                                            .job_rank = rank,
                                            .job_size = RANKS};
    fuzz_must(twill_node_find_trace(&node, &area->layout, BYTES));
    region->trace_at = node.trace_at;
    twill_node_enter_call(&node, &call, 1000);
    struct twill_trace trace = {.ring = twill_node_trace(&node, 0)};
    for (unsigned i = 0; i < 6; i++)
        twill_trace_emit(
            &trace, (struct twill_trace_event){.tick = 1000 + i,
                                               .bytes = 32,
                                               .sequence = 3,
                                               .peer = !rank,
                                               .what = call.what,
                                               .kind = TWILL_TRACE_CALL_BEGIN + (i > 0) * (3 + i)});
}

static struct region *make_regions(void)
{
    static struct region made[RANKS];
    for (uint32_t r = 0; r < RANKS && made[r].bytes == NULL; r++) {
        made[r].fd = memfd_create("region", MFD_CLOEXEC);
        fuzz_must(made[r].fd >= 0 && ftruncate(made[r].fd, (off_t)BYTES) == 0);
        made[r].bytes = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, made[r].fd, 0);
        fuzz_must(made[r].bytes != MAP_FAILED);
        write_region(&made[r], r);
    }
    return made;
}

/* Return the place of a word: in the first part of the area, or among the first events. */
static uint64_t *word_at(const struct region *region, const uint8_t *data)
{
    size_t place = (size_t)(data[0] / 4 << 8 | data[1]) * 8; /* 128 KiB */
    bool event = data[0] % 4 >= 2;
    place = event ? region->trace_at + place % 1024 : place % (AREA - 8);
    return (uint64_t *)(void *)(region->bytes + place);
}

static void add_region(struct twill_job_view *view, int fd)
{
    const char *why;
    uint64_t part = 0;
    struct twill_job_region *region = &view->region[view->regions];
    *region = (struct twill_job_region){.process = {.pid = 1, .state = 'S'}, .rate = 1};
    region->view = twill_node_view_open(fd, &part, &why);
    if (region->view == NULL)
        return;
    region->owner = twill_node_view_owner(region->view);
    const struct twill_node *node = &region->view->node;
    region->has_call = twill_node_read_last_call(node, 0, &region->record, &region->entered);
    region->in_call = region->has_call && twill_node_left_call(node, 0) < region->record.sequence;
    view->regions++;
}

static void read_job(const struct region *made)
{
    struct twill_job_view *view = calloc(1, sizeof(*view));
    fuzz_must(view != NULL);
    view->region = calloc(RANKS, sizeof(*view->region));
    fuzz_must(view->region != NULL);
    view->ticks = 1u << 20;
    for (int r = 0; r < RANKS; r++)
        add_region(view, made[r].fd);
    if (view->regions > 0) {
        twill_job_list(view, EVENTS);
        twill_job_find(view);
    }
    for (size_t i = 0; i < view->lines; i++) {
        fuzz_must(view->line[i] != NULL);
        free(view->line[i]);
    }
    for (size_t i = 0; i < view->regions; i++)
        twill_node_view_close(view->region[i].view);
    free(view->line);
    free(view->region);
    free(view);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const struct region *made = make_regions();
    uint64_t *word[CHANGES], before[CHANGES];
    size_t changes = 0;
    for (; size >= 5 && changes < CHANGES; data += 5, size -= 5) {
        word[changes] = word_at(&made[data[0] % RANKS], data);
        before[changes] = *word[changes];
        /* A small number, or three bytes somewhere in the word. */
        uint64_t value = (uint64_t)data[2] | (uint64_t)data[3] << 8;
        *word[changes++] =
            data[4] < 128 ? value : value << data[4] % 64 | UINT64_MAX << data[4] % 32;
    }
    read_job(made);
    while (changes-- > 0)
        *word[changes] = before[changes];
    return 0;
}
