/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text, one step a line, and back:
 *
 *     schedule shards 1 blocks 4 tmp 0 shared 4 peer_src 0 peer_dst 0
 *     lane
 *     copy SHARED[1]x3 = SRC[1]
 *     signal
 *     await 1 of 1 2 3
 *     reduce DST[0] = @SHARED[0] of 0 1 2 3 own_src final
 *     send DST[0] to 5
 *     wait
 *
 * The PEER bit is @; the head of an eager schedule ends with the word eager. What follows from the
 * steps (lanes, counts, most_posted) is not printed. */
#include "algorithms/schedule/step_table.h"
#include "tests/support/schedules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct flag_name {
    const char *name;
    uint8_t flag;
} flag_names[] = {{"imm", TWILL_STEP_IMM},
                  {"acc", TWILL_STEP_ACC},
                  {"first", TWILL_STEP_FIRST},
                  {"own_src", TWILL_STEP_OWN_SRC},
                  {"final", TWILL_STEP_FINAL},
                  {"partial", TWILL_STEP_PARTIAL},
                  {"partial_own", TWILL_STEP_PARTIAL_OWN}};

/* Text under construction; `length` keeps counting when the buffer is full, as snprintf() does. */
struct text_buffer {
    char *at;
    size_t capacity, length;
};

static void TWILL_PRINTF(2, 3) print_text(struct text_buffer *text, const char *format, ...)
{
    size_t left = text->capacity > text->length ? text->capacity - text->length : 0;
    va_list arguments;
    va_start(arguments, format);
    int length =
        twill_print_list(left > 0 ? text->at + text->length : NULL, left, format, arguments);
    va_end(arguments);
    text->length += length > 0 ? (size_t)length : 0;
}

static void put_operand(struct text_buffer *text, twill_operand operand)
{
    print_text(text, " %s%s[%u]", twill_operand_is_peer(operand) ? "@" : "",
               twill_space_name(twill_operand_space(operand)), twill_operand_block(operand));
}

static void put_step(struct text_buffer *text, const struct twill_step *step)
{
    const struct twill_step_shape *shape = twill_step_shape(step->op);
    unsigned peers = twill_step_peers(step);
    print_text(text, "%s", shape->name);
    if (shape->dst != 0)
        put_operand(text, step->dst);
    if ((shape->dst != 0 || shape->src != 0) && step->blocks != 1 && shape->dst != 0)
        print_text(text, "x%u", step->blocks);
    if (shape->dst != 0 && shape->src != 0)
        print_text(text, " =");
    if (shape->src != 0)
        put_operand(text, step->src);
    if (shape->dst == 0 && shape->src != 0 && step->blocks != 1)
        print_text(text, "x%u", step->blocks);
    if (step->ordinal != 0)
        print_text(text, " %u", step->ordinal);
    if (peers > 0)
        print_text(text, " %s", shape->peers);
    for (unsigned i = 0; i < peers; i++)
        print_text(text, " %u", step->peer[i]);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(flag_names); i++)
        if ((step->flags & flag_names[i].flag) != 0)
            print_text(text, " %s", flag_names[i].name);
    print_text(text, "\n");
}

size_t test_schedule_print(const struct twill_schedule *schedule, char *text, size_t capacity)
{
    struct text_buffer out = {.at = text, .capacity = capacity};
    print_text(&out, "schedule shards %u blocks %u tmp %u shared %u peer_src %d peer_dst %d%s\n",
               schedule->shards, schedule->blocks, schedule->tmp_blocks, schedule->shared_blocks,
               schedule->uses_peer_src, schedule->uses_peer_dst, schedule->eager ? " eager" : "");
    for (uint32_t l = 0; l < schedule->lanes; l++) {
        print_text(&out, "lane\n");
        for (uint32_t i = schedule->lane_first[l]; i < schedule->lane_first[l + 1]; i++)
            put_step(&out, &schedule->steps[i]);
    }
    return out.length;
}

/* A step under construction while its line is read word by word. */
struct reading {
    struct twill_step step;
    const struct twill_step_shape *shape;
    bool have_dst, have_src, in_peers;
    unsigned peers;
};

static bool number_read(const char *word, uint32_t most, uint32_t *value)
{
    char *end;
    if (word[0] < '0' || word[0] > '9')
        return false;
    unsigned long long n = strtoull(word, &end, 10);
    *value = (uint32_t)n;
    return *end == '\0' && n <= most;
}

static bool read_operand(struct reading *r, const char *word)
{
    char name[16];
    unsigned block, blocks = 1;
    int used = 0;
    bool peer = word[0] == '@';
    if (sscanf(word + peer, "%15[A-Z][%u]%n", name, &block, &used) != 2 || used == 0)
        return false;
    const char *rest = word + peer + used;
    if (*rest == 'x' ? !number_read(rest + 1, UINT16_MAX, &blocks) : *rest != '\0')
        return false;
    unsigned space = 0;
    while (space < TWILL_SPACE_COUNT && strcmp(twill_space_name(space), name) != 0)
        space++;
    if (space == TWILL_SPACE_COUNT || block >> TWILL_BLOCK_BITS != 0)
        return false;
    twill_operand operand = twill_operand_make(space | (peer ? TWILL_PEER : 0u), block);
    bool is_dst = r->shape->dst != 0 && !r->have_dst;
    if (is_dst || !r->have_dst)
        r->step.blocks = (uint16_t)blocks;
    if (is_dst)
        r->step.dst = operand;
    else
        r->step.src = operand;
    bool again = !is_dst && (r->have_src || r->shape->src == 0);
    r->have_dst = r->have_dst || is_dst;
    r->have_src = r->have_src || !is_dst;
    return !again;
}

static bool word_read(struct reading *r, const char *word)
{
    uint32_t number;
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(flag_names); i++) {
        if (strcmp(word, flag_names[i].name) == 0) {
            r->step.flags |= flag_names[i].flag;
            return true;
        }
    }
    if (strchr(word, '[') != NULL)
        return read_operand(r, word);
    if (strcmp(word, "=") == 0)
        return r->have_dst && !r->have_src;
    if (r->shape->peers != NULL && strcmp(word, r->shape->peers) == 0)
        return r->in_peers ? false : (r->in_peers = true);
    if (!number_read(word, UINT16_MAX, &number))
        return false;
    if (!r->in_peers) {
        r->step.ordinal = (uint16_t)number;
        return true;
    }
    if (r->peers == TWILL_STEP_PEERS)
        return false;
    r->step.peer[r->peers++] = (uint16_t)number;
    return true;
}

static bool read_step(struct twill_step *step, char *line)
{
    struct reading r = {.shape = NULL};
    char *rest = NULL;
    const char *word = strtok_r(line, " ", &rest);
    for (unsigned op = 0; word != NULL && op < TWILL_STEP_OP_COUNT; op++) {
        if (strcmp(word, twill_step_shape(op)->name) == 0) {
            r.shape = twill_step_shape(op);
            r.step.op = (uint8_t)op;
        }
    }
    if (r.shape == NULL)
        return false;
    while ((word = strtok_r(NULL, " ", &rest)) != NULL)
        if (!word_read(&r, word))
            return false;
    if (r.step.op == TWILL_STEP_REDUCE && r.peers == 0)
        r.step.nsrc = 1;
    else if (r.step.op == TWILL_STEP_REDUCE || r.step.op == TWILL_STEP_AWAIT)
        r.step.nsrc = (uint8_t)r.peers;
    *step = r.step;
    return r.have_dst == (r.shape->dst != 0) && r.have_src == (r.shape->src != 0) &&
           r.peers == twill_step_peers(step);
}

static bool read_head(struct twill_schedule *schedule, const char *line)
{
    unsigned peer_src, peer_dst;
    int used = 0;
    int fields =
        sscanf(line, "schedule shards %u blocks %u tmp %u shared %u peer_src %u peer_dst %u%n",
               &schedule->shards, &schedule->blocks, &schedule->tmp_blocks,
               &schedule->shared_blocks, &peer_src, &peer_dst, &used);
    schedule->eager = fields == 6 && strcmp(line + used, " eager") == 0;
    if (fields != 6 || (line[used] != '\0' && !schedule->eager) || peer_src > 1 || peer_dst > 1)
        return false;
    schedule->uses_peer_src = peer_src == 1;
    schedule->uses_peer_dst = peer_dst == 1;
    return true;
}

/* Append one line to the schedule, whose `steps` are large enough. */
static bool line_read(struct twill_schedule *schedule, char *line)
{
    if (schedule->blocks == 0)
        return read_head(schedule, line) && schedule->blocks > 0;
    if (strcmp(line, "lane") == 0) {
        if (schedule->lanes == TWILL_SCHEDULE_LANES)
            return false;
        schedule->lane_first[schedule->lanes++] = schedule->count;
        return true;
    }
    if (schedule->lanes == 0 || !read_step(&schedule->steps[schedule->count], line))
        return false;
    schedule->steps[schedule->count++].lane = (uint8_t)(schedule->lanes - 1);
    return true;
}

twill_status test_schedule_parse(struct twill_schedule *schedule, const char *text,
                                 struct twill_error *error)
{
    memset(schedule, 0, sizeof(*schedule));
    size_t lines = 1;
    for (const char *p = text; *p != '\0'; p++)
        lines += *p == '\n';
    char *copy = strdup(text);
    schedule->steps = calloc(lines, sizeof(*schedule->steps));
    twill_status status = TWILL_OK;
    if (copy == NULL || schedule->steps == NULL)
        status =
            TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory for a schedule of %zu lines", lines);
    size_t number = 0;
    for (char *line = copy, *next; status == TWILL_OK && line != NULL && *line != '\0';
         line = next) {
        next = strchr(line, '\n');
        if (next != NULL)
            *next++ = '\0';
        number++;
        char shown[64];
        snprintf(shown, sizeof(shown), "%s", line);
        if (!line_read(schedule, line))
            status = TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                                "schedule text, line %zu cannot be read: %s", number, shown);
    }
    if (status == TWILL_OK && schedule->lanes == 0)
        status = TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "schedule text: ends before its first lane");
    free(copy);
    if (status != TWILL_OK) {
        twill_schedule_destroy(schedule);
        return status;
    }
    for (uint32_t l = schedule->lanes; l <= TWILL_SCHEDULE_LANES; l++)
        schedule->lane_first[l] = schedule->count;
    twill_schedule_derive(schedule);
    return TWILL_OK;
}
