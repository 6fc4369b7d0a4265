/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/tuning_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS = 6, WORD_BYTES = 96 };

/* The state of reading the text of a tuning file, on the stack of the function that reads it. */
struct reader {
    struct twill_tuning *tuning;
    const char *file;
    unsigned line;                /* from 1 */
    size_t capacity;              /* of the measurements */
    char word[WORDS][WORD_BYTES]; /* of the current line */
    unsigned words;               /* number of words of the current line */
    struct twill_error *error;
};

#define ENTRY_REFUSE(r, format, ...)                                                               \
    TWILL_FAIL((r)->error, TWILL_ERR_CONFIG, "%s:%u: " format, (r)->file, (r)->line, __VA_ARGS__)

/* Split a line at blanks into r->word. Returns TWILL_ERR_CONFIG if it has too many or too long
 * words. */
static twill_status split_line(struct reader *r, const char *line, size_t length)
{
    r->words = 0;
    for (size_t i = 0; i < length;) {
        size_t begin = i;
        while (i < length && strchr(" \t\r", line[i]) == NULL)
            i++;
        if (i > begin && (r->words == WORDS || i - begin >= WORD_BYTES))
            return ENTRY_REFUSE(r, "\"%.*s\" is one word too many", (int)(i - begin), line + begin);
        if (i > begin)
            snprintf(r->word[r->words++], WORD_BYTES, "%.*s", (int)(i - begin), line + begin);
        else
            i++;
    }
    return TWILL_OK;
}

/* Read a decimal number. With `bytes` it may end with K, M or G (binary). Returns false if it is
 * malformed. */
static bool read_quantity(const char *text, bool bytes, uint64_t *value)
{
    size_t length = strlen(text), number = 0;
    size_t used = twill_bytes_parse(text, length, &number);
    *value = number;
    return used == length && used > 0 &&
           (bytes || (text[used - 1] >= '0' && text[used - 1] <= '9'));
}

/* Return TWILL_OK if the line has `words` words, including the first, which the caller has found to
 * be `what`. Otherwise return TWILL_ERR_CONFIG with a message that says how many `what` takes. */
static twill_status expect_words(struct reader *r, unsigned words, const char *what)
{
    if (r->words == words)
        return TWILL_OK;
    return ENTRY_REFUSE(r, "%s takes %u words, not %u", what, words - 1, r->words - 1);
}

/* Parse the words of a line "for", which describe a machine, into *key. Returns TWILL_ERR_CONFIG
 * with the reason if one of them is missing or malformed. */
static twill_status read_key(struct reader *r, struct twill_tuning_key *key)
{
    uint64_t cores;
    TWILL_TRY(r->error, expect_words(r, 6, "for"));
    int written =
        snprintf(key->cpu, sizeof(key->cpu), "%s %s %s", r->word[1], r->word[2], r->word[3]);
    if ((size_t)written >= sizeof(key->cpu))
        return ENTRY_REFUSE(r, "\"%s\" is not the vendor of a CPU", r->word[1]);
    if (!read_quantity(r->word[4], true, &key->l2_bytes))
        return ENTRY_REFUSE(r, "\"%s\" is not the size of an L2 cache such as 2M", r->word[4]);
    if (!read_quantity(r->word[5], false, &cores) || cores == 0 || cores > UINT32_MAX)
        return ENTRY_REFUSE(r, "\"%s\" is not a number of cores", r->word[5]);
    key->cores = (uint32_t)cores;
    return TWILL_OK;
}

/* Replace the model of the tuning by the built-in one that a line "machine" names. Fields that were
 * set before are lost. Returns TWILL_ERR_CONFIG if there is none of that name. */
static twill_status read_machine(struct reader *r)
{
    TWILL_TRY(r->error, expect_words(r, 2, "machine"));
    const struct twill_machine_model *model = twill_machine_model_find(r->word[1]);
    char known[128];
    if (model == NULL)
        return ENTRY_REFUSE(r, "\"%s\" is not the name of a machine; known are %s", r->word[1],
                            twill_machine_model_names(known, sizeof(known)));
    r->tuning->model = *model;
    return TWILL_OK;
}

/* Set the field of the model that a line "model" names. Returns TWILL_ERR_CONFIG if there is no
 * such field, or the value is not a number from 0 to 10^12. */
static twill_status read_model(struct reader *r)
{
    char name[40];
    uint64_t *field, value;
    TWILL_TRY(r->error, expect_words(r, 3, "model"));
    for (size_t i = 0; twill_machine_model_field(&r->tuning->model, i, name, &field); i++) {
        if (strcmp(name, r->word[1]) != 0)
            continue;
        if (!read_quantity(r->word[2], true, &value) || value > UINT64_C(1000000000000))
            return ENTRY_REFUSE(r, "\"%s\" is not a number from 0 to 10^12", r->word[2]);
        *field = value;
        return TWILL_OK;
    }
    return ENTRY_REFUSE(r, "\"%s\" is not a field of a machine", r->word[1]);
}

/* Set collective, algorithm, protocol and parameters of *m from the line, in the syntax of
 * TWILL_ALGORITHM, such as "ring" or "torus=4x6@staged". Returns TWILL_ERR_CONFIG if they are
 * wrong. */
static twill_status read_candidate(struct reader *r, struct twill_measured *m)
{
    struct twill_override *override;
    size_t overrides;
    char text[2 * WORD_BYTES];
    struct twill_error why = {.status = TWILL_OK};
    snprintf(text, sizeof(text), "%s:%s", r->word[1], r->word[2]);
    twill_status status = twill_overrides_parse(&override, &overrides, text, &why);
    bool good = status == TWILL_OK && overrides == 1 && override->collective >= 0 &&
                override->algorithm != NULL && override->least == 0 && override->most == SIZE_MAX;
    if (good) {
        m->collective = (enum twill_collective) override->collective;
        m->algorithm = override->algorithm;
        m->protocol = override->protocol;
        memcpy(m->parameter, override->parameter, sizeof(m->parameter));
    }
    free(override);
    if (!good)
        return ENTRY_REFUSE(r, "\"%s %s\" is not a collective and an algorithm%s%s", r->word[1],
                            r->word[2], why.message[0] != '\0' ? ": " : "", why.message);
    return TWILL_OK;
}

/* Read a line "measured", with the time of an algorithm, and append it to the measurements. Returns
 * TWILL_ERR_CONFIG if it is malformed, or TWILL_ERR_MEMORY. */
static twill_status read_measured(struct reader *r)
{
    struct twill_tuning *t = r->tuning;
    struct twill_measured m = {.protocol = -1};
    uint64_t bytes;
    char rest;
    TWILL_TRY(r->error, expect_words(r, WORDS, "measured"));
    TWILL_TRY(r->error, read_candidate(r, &m));
    if (sscanf(r->word[3], "%5ux%5u%c", &m.nodes, &m.ranks, &rest) != 2 || m.nodes == 0 ||
        m.ranks == 0)
        return ENTRY_REFUSE(r, "\"%s\" is not nodes x ranks such as 2x4", r->word[3]);
    if (!read_quantity(r->word[4], true, &bytes))
        return ENTRY_REFUSE(r, "\"%s\" is not a size such as 64K", r->word[4]);
    if (!read_quantity(r->word[5], false, &m.picoseconds) || m.picoseconds == 0 ||
        m.picoseconds > UINT64_C(1000000000000000))
        return ENTRY_REFUSE(r, "\"%s\" is not a time in picoseconds", r->word[5]);
    m.bytes = (size_t)bytes;
    if (t->count == r->capacity) {
        size_t capacity = r->capacity > 0 ? 2 * r->capacity : 64;
        struct twill_measured *more = realloc(t->measured, capacity * sizeof(*more));
        if (more == NULL)
            return TWILL_FAIL(r->error, TWILL_ERR_MEMORY, "%s: out of memory", r->file);
        t->measured = more;
        r->capacity = capacity;
    }
    t->measured[t->count++] = m;
    return TWILL_OK;
}

/* Read a line that is not the first, by its first word. Ignores an empty one, and only checks a
 * line "for". Returns TWILL_ERR_CONFIG if it is malformed, or TWILL_ERR_MEMORY. */
static twill_status entry_read(struct reader *r, const char *line, size_t length)
{
    TWILL_TRY(r->error, split_line(r, line, length));
    if (r->words == 0)
        return TWILL_OK;
    if (strcmp(r->word[0], "for") == 0)
        return read_key(r, &(struct twill_tuning_key){.cores = 0});
    if (strcmp(r->word[0], "machine") == 0)
        return read_machine(r);
    if (strcmp(r->word[0], "model") == 0)
        return read_model(r);
    if (strcmp(r->word[0], "measured") == 0)
        return read_measured(r);
    return ENTRY_REFUSE(r, "\"%s\" is none of for, machine, model and measured", r->word[0]);
}

/* Read the whole text of a tuning file into the tuning. Returns TWILL_ERR_CONFIG at the first wrong
 * line, or if it does not begin with the heading or end with a newline. */
static twill_status read_text(struct reader *r, const char *text)
{
    static const char heading[] = TWILL_TUNING_HEADING;
    for (r->line = 1; *text != '\0'; r->line++) {
        size_t length = strcspn(text, "\n"), said = strcspn(text, "#\n");
        if (r->line > 1)
            TWILL_TRY(r->error, entry_read(r, text, said));
        else if (strncmp(text, heading, strlen(heading)) != 0 ||
                 strspn(text + strlen(heading), " \t\r") + strlen(heading) != said)
            return ENTRY_REFUSE(r, "the first line is not \"%s\"", heading);
        if (text[length] != '\n')
            return ENTRY_REFUSE(r, "the file ends within this line, without a newline: \"%.40s\"",
                                text);
        text += length + 1;
    }
    return r->line == 1 ? ENTRY_REFUSE(r, "the first line is not \"%s\"", heading) : TWILL_OK;
}

/* Compare two measurements for qsort() by all members but the time, bytes last. */
static int compare_entries(const void *left, const void *right)
{
    const struct twill_measured *a = left, *b = right;
    int names = strcmp(a->algorithm->name, b->algorithm->name);
    int parameters = memcmp(a->parameter, b->parameter, sizeof(a->parameter));
    const int64_t order[] = {(int64_t)a->collective - (int64_t)b->collective,
                             names,
                             a->protocol - b->protocol,
                             parameters,
                             (int64_t)a->nodes - (int64_t)b->nodes,
                             (int64_t)a->ranks - (int64_t)b->ranks};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(order); i++)
        if (order[i] != 0)
            return order[i] < 0 ? -1 : 1;
    return a->bytes != b->bytes ? (a->bytes < b->bytes ? -1 : 1) : 0;
}

/* Sort the measurements, and keep only the fastest of those for the same case. */
static void sort_entries(struct twill_tuning *t)
{
    size_t kept = 0;
    if (t->count > 0)
        qsort(t->measured, t->count, sizeof(*t->measured), compare_entries);
    for (size_t i = 0; i < t->count; i++) {
        bool again = kept > 0 && compare_entries(&t->measured[kept - 1], &t->measured[i]) == 0;
        if (!again)
            t->measured[kept++] = t->measured[i];
        else if (t->measured[i].picoseconds < t->measured[kept - 1].picoseconds)
            t->measured[kept - 1] = t->measured[i];
    }
    t->count = kept;
}

size_t twill_tuning_find(const struct twill_tuning *tuning, const struct twill_algorithm *algorithm,
                         const struct twill_shape *shape, const struct twill_world *world,
                         const struct twill_measured **first)
{
    struct twill_measured like = {.collective = shape->collective,
                                  .algorithm = algorithm,
                                  .protocol = algorithm->protocols != 0 &&
                                                      shape->collective != TWILL_BARRIER
                                                  ? (int)shape->protocol
                                                  : -1,
                                  .nodes = world->nodes,
                                  .ranks = twill_world_widest(world)};
    size_t n = 0;
    memcpy(like.parameter, shape->parameter, sizeof(like.parameter));
    *first = NULL;
    for (size_t i = 0; i < tuning->count; i++) {
        like.bytes = tuning->measured[i].bytes;
        if (compare_entries(&like, &tuning->measured[i]) == 0 && n++ == 0)
            *first = &tuning->measured[i];
    }
    return n;
}

twill_status twill_tuning_create(struct twill_tuning **tuning, const char *machine,
                                 const char *text, const char *file, struct twill_error *error)
{
    const char *name = machine != NULL ? machine : "auto";
    const struct twill_machine_model *model = twill_machine_model_find(name);
    *tuning = NULL;
    if (model == NULL) {
        char known[128];
        return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                          "TWILL_TUNE=machine=%s: there is no such machine; known are %s", name,
                          twill_machine_model_names(known, sizeof(known)));
    }
    struct twill_tuning *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory for the tuning");
    t->model = *model;
    struct reader reader = {.tuning = t, .file = file, .error = error};
    twill_status status = text != NULL ? read_text(&reader, text) : TWILL_OK;
    snprintf(t->source, sizeof(t->source), "%s", t->count > 0 ? "TWILL_TUNING" : "");
    if (status != TWILL_OK) {
        twill_tuning_destroy(t);
        return status;
    }
    sort_entries(t);
    *tuning = t;
    return TWILL_OK;
}

void twill_tuning_key_print(char text[TWILL_TUNING_KEY_BYTES], const struct twill_tuning_key *key)
{
    snprintf(text, TWILL_TUNING_KEY_BYTES, "%s %lluK %u", key->cpu,
             (unsigned long long)(key->l2_bytes >> 10), (unsigned)key->cores);
}

bool twill_tuning_is_for(const char *text, const struct twill_tuning_key *here)
{
    struct reader r = {.file = ""};
    struct twill_tuning_key key;
    for (; here->cpu[0] != '\0' && *text != '\0'; text += text[0] == '\n') {
        if (split_line(&r, text, strcspn(text, "#\n")) == TWILL_OK && r.words > 0 &&
            strcmp(r.word[0], "for") == 0 && read_key(&r, &key) == TWILL_OK &&
            strcmp(key.cpu, here->cpu) == 0 && key.l2_bytes == here->l2_bytes &&
            key.cores == here->cores)
            return true;
        text += strcspn(text, "\n");
    }
    return false;
}

void twill_tuning_destroy(struct twill_tuning *tuning)
{
    if (tuning == NULL)
        return;
    free(tuning->measured);
    free(tuning);
}

uint64_t twill_tuning_hash(const struct twill_tuning *tuning)
{
    struct twill_machine_model model = tuning->model;
    uint64_t hash = 1, *field;
    char name[40];
    for (size_t i = 0; twill_machine_model_field(&model, i, name, &field); i++)
        hash = twill_hash_mix(hash, *field);
    for (size_t i = 0; i < tuning->count; i++) {
        const struct twill_measured *m = &tuning->measured[i];
        for (const char *c = m->algorithm->name; *c != '\0'; c++)
            hash = twill_hash_mix(hash, (unsigned char)*c);
        for (unsigned p = 0; p < TWILL_PARAMETERS; p++)
            hash = twill_hash_mix(hash, m->parameter[p]);
        hash = twill_hash_mix(hash, (uint64_t)m->collective << 8 | (uint64_t)(m->protocol + 1));
        hash = twill_hash_mix(hash, (uint64_t)m->nodes << 32 | m->ranks);
        hash = twill_hash_mix(twill_hash_mix(hash, m->bytes), m->picoseconds);
    }
    return hash != 0 ? hash : 1;
}
