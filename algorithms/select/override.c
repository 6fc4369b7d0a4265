/* SPDX-License-Identifier: Apache-2.0 */
#include "algorithms/select/override.h"
#include "lib/base/plural.h"

#include <stdlib.h>
#include <string.h>

enum {
    SLIP = 5,        /* edit distance from which on a name is no misspelling of another */
    SHOWN = 16,      /* letters of an entry in a long message, which lists all names */
    SHOWN_MOST = 40, /* letters of an entry in a short message */
    SHORT_TEXT = 300 /* letters of the longest short message */
};

/* A part of a text that another owns, without a 0 at its end. */
struct text_view {
    const char *at;
    size_t length;
};

/* Return the name of collective i. It has the form of the argument `name` of lookup(). */
static const char *collective_name(unsigned i)
{
    return twill_collective_name((enum twill_collective)i);
}

/* Return the name of protocol i. It has the form of the argument `name` of lookup(). */
static const char *protocol_name(unsigned i)
{
    return twill_protocol_name((enum twill_protocol)i);
}

/* Return the name of algorithm i of the registry, which must exist. It has the form of the argument
 * `name` of lookup(). */
static const char *algorithm_name(unsigned i)
{
    return twill_algorithm_at(i)->name;
}

/* Return the number of algorithms in the registry. */
static unsigned algorithms(void)
{
    unsigned n = 0;
    while (twill_algorithm_at(n) != NULL)
        n++;
    return n;
}

/* Return the index of a text among the names name(0) .. name(count - 1), or -1 if it is none. */
static int lookup(struct text_view text, const char *(*name)(unsigned), unsigned count)
{
    for (unsigned i = 0; i < count; i++)
        if (strlen(name(i)) == text.length && memcmp(name(i), text.at, text.length) == 0)
            return (int)i;
    return -1;
}

/* Return the most similar of the names name(0) .. name(count - 1), or NULL if none is near. A name
 * that differs in more than half of the letters is never near. */
static const char *nearest_name(const char *text, size_t length, const char *(*name)(unsigned),
                                unsigned count)
{
    const char *nearest = NULL;
    unsigned least = SLIP;
    for (unsigned i = 0; i < count; i++) {
        unsigned d = twill_text_distance(text, length, name(i));
        if (d < least && 2 * d <= length) {
            least = d;
            nearest = name(i);
        }
    }
    return nearest;
}

#define OVERRIDE_REFUSE(error, override, ...)                                                      \
    refuse_override((error), (override), __FILE__, __LINE__, __VA_ARGS__)

static twill_status refuse_override(struct twill_error *error,
                                    const struct twill_override *override, const char *file,
                                    int line, const char *format, ...) TWILL_PRINTF(5, 6);

/* Record that an entry of TWILL_ALGORITHM is wrong, with file and line of this source code, and
 * return TWILL_ERR_CONFIG. The message quotes the entry. */
static twill_status refuse_override(struct twill_error *error,
                                    const struct twill_override *override, const char *file,
                                    int line, const char *format, ...)
{
    char text[500];
    va_list list;
    va_start(list, format);
    twill_print_list(text, sizeof(text), format, list);
    va_end(list);
    return twill_error_set(
        error, TWILL_ERR_CONFIG, TWILL_NO_RANK, file, line, "TWILL_ALGORITHM: \"%.*s\": %s",
        (int)twill_min((size_t) override->length, strlen(text) > SHORT_TEXT ? SHOWN : SHOWN_MOST),
        override->text, text);
}

/* Record that a text is not the name of `what`, such as "a protocol", and return TWILL_ERR_CONFIG.
 * The message suggests the nearest of the names name(0) .. name(count - 1), or lists all. Of
 * algorithms it lists those for the collective of the entry, if that has one. */
static twill_status refuse_name(struct twill_error *error, const struct twill_override *override,
                                struct text_view text, const char *what,
                                const char *(*name)(unsigned), unsigned count)
{
    /* With the rest and a rank's name it fits a message, so that the end is not cut off. */
    char names[sizeof(error->message) - 110] = "";
    const char *nearest = nearest_name(text.at, text.length, name, count);
    const int length = (int)twill_min(text.length, SHOWN);
    bool few = name == algorithm_name && override->collective >= 0;
    for (unsigned i = 0; i < count; i++)
        if (!few || (twill_algorithm_at(i)->collectives >> override->collective & 1) != 0)
            twill_text_list(names, sizeof(names), name(i));
    if (nearest != NULL)
        return OVERRIDE_REFUSE(error, override,
                               "\"%.*s\" is not the name of %s, did you mean \"%s\"?", length,
                               text.at, what, nearest);
    return OVERRIDE_REFUSE(error, override, "\"%.*s\" is not the name of %s; there are: %s", length,
                           text.at, what, names);
}

size_t twill_bytes_parse(const char *text, size_t length, size_t *bytes)
{
    static const char suffixes[] = "KMG";
    size_t used = 0, value = 0;
    for (; used < length && text[used] >= '0' && text[used] <= '9'; used++) {
        if (value > SIZE_MAX / 16)
            return 0;
        value = value * 10 + (size_t)(text[used] - '0');
    }
    if (used > 0 && used < length) {
        const char *suffix = memchr(suffixes, text[used] & ~0x20, 3);
        size_t factor = suffix != NULL ? (size_t)1 << (10 * (suffix - suffixes + 1)) : 1;
        if (value > SIZE_MAX / factor)
            return 0;
        used += suffix != NULL;
        value *= factor;
    }
    *bytes = value;
    return used;
}

/* Set `least` and `most` from the text between the brackets, such as "0-64K" or "64K-". Returns
 * TWILL_ERR_CONFIG if it is malformed or the range is empty. */
static twill_status read_range(struct twill_override *override, struct text_view text,
                               struct twill_error *error)
{
    size_t from = twill_bytes_parse(text.at, text.length, &override->least);
    bool dash = from < text.length && text.at[from] == '-';
    size_t rest = dash ? text.length - from - 1 : 0;
    size_t to = dash ? twill_bytes_parse(text.at + from + 1, rest, &override->most) : 0;
    if (!dash || to != rest || from + to == 0)
        return OVERRIDE_REFUSE(
            error, override,
            "\"[%.*s]\" is not a range of bytes such as [0-64K], [64K-] or [-4096]",
            (int)text.length, text.at);
    if (from == 0)
        override->least = 0;
    if (to == 0)
        override->most = SIZE_MAX;
    if (override->least > override->most)
        return OVERRIDE_REFUSE(error, override,
                               "the range [%.*s] is empty: it ends before it begins",
                               (int)text.length, text.at);
    return TWILL_OK;
}

/* Read "COLLECTIVE:" or "COLLECTIVE[RANGE]:" off the front of *rest, if it is there. A word before
 * a colon alone may also be part of an algorithm's name, and is then left there. Returns
 * TWILL_ERR_CONFIG if the collective is misspelt or the range malformed. */
static twill_status read_collective(struct twill_override *override, struct text_view *rest,
                                    struct twill_error *error)
{
    const char *equals = memchr(rest->at, '=', rest->length);
    size_t head = equals != NULL ? (size_t)(equals - rest->at) : rest->length;
    const char *colon = memchr(rest->at, ':', head);
    const char *bracket = memchr(rest->at, '[', head);
    if (colon == NULL && bracket == NULL)
        return TWILL_OK;
    struct text_view name = {rest->at, (size_t)((bracket != NULL ? bracket : colon) - rest->at)};
    override->collective = lookup(name, collective_name, TWILL_COLLECTIVE_COUNT);
    if (bracket != NULL) {
        const char *end = memchr(bracket, ']', head - (size_t)(bracket - rest->at));
        if (override->collective < 0)
            return refuse_name(error, override, name, "a collective", collective_name,
                               TWILL_COLLECTIVE_COUNT);
        if (end == NULL || end + 1 == rest->at + rest->length || end[1] != ':')
            return OVERRIDE_REFUSE(error, override, "\"]:\" is missing after the range");
        TWILL_TRY(error,
                  read_range(override, (struct text_view){bracket + 1, (size_t)(end - bracket - 1)},
                             error));
        colon = end + 1;
    } else if (override->collective < 0) {
        /* Names of algorithms may also have a colon, so recognize a misspelt collective. */
        struct text_view whole = {rest->at, head};
        if (lookup(whole, algorithm_name, algorithms()) < 0 &&
            nearest_name(name.at, name.length, collective_name, TWILL_COLLECTIVE_COUNT) &&
            !nearest_name(whole.at, whole.length, algorithm_name, algorithms()))
            return refuse_name(error, override, name, "a collective", collective_name,
                               TWILL_COLLECTIVE_COUNT);
        return TWILL_OK;
    }
    rest->length -= (size_t)(colon + 1 - rest->at);
    rest->at = colon + 1;
    return TWILL_OK;
}

/* Set the protocol if *rest ends with "@PROTOCOL". Remove that from *rest. Returns TWILL_ERR_CONFIG
 * if there is no protocol of that name. */
static twill_status read_protocol(struct twill_override *override, struct text_view *rest,
                                  struct twill_error *error)
{
    const char *at = memrchr(rest->at, '@', rest->length);
    if (at == NULL)
        return TWILL_OK;
    struct text_view name = {at + 1, (size_t)(rest->at + rest->length - at - 1)};
    override->protocol = lookup(name, protocol_name, TWILL_PROTOCOL_COUNT);
    if (override->protocol < 0)
        return refuse_name(error, override, name, "a protocol", protocol_name,
                           TWILL_PROTOCOL_COUNT);
    rest->length = (size_t)(at - rest->at);
    return TWILL_OK;
}

/* Parse up to `most` numbers from 1 to 65535 with x between them into parameter[]. Returns false if
 * the text is malformed or has more numbers. */
static bool parameters_read(struct text_view text, uint32_t most,
                            uint16_t parameter[TWILL_PARAMETERS])
{
    for (uint32_t n = 0; n < most; n++) {
        unsigned long value = 0;
        size_t used = 0;
        for (; used < text.length && text.at[used] >= '0' && text.at[used] <= '9'; used++)
            if (value <= UINT16_MAX)
                value = value * 10 + (unsigned long)(text.at[used] - '0');
        if (used == 0 || value == 0 || value > UINT16_MAX)
            return false;
        parameter[n] = (uint16_t)value;
        if (used == text.length)
            return true;
        if (text.at[used] != 'x')
            return false;
        text = (struct text_view){text.at + used + 1, text.length - used - 1};
    }
    return false;
}

/* Set the parameters of the entry from the text after "=", as its algorithm takes them. Returns
 * TWILL_ERR_CONFIG if it takes none or not these. */
static twill_status read_parameters(struct twill_override *override, struct text_view text,
                                    struct twill_error *error)
{
    const struct twill_algorithm *a = override->algorithm;
    if (a->parameters == 0 && a->parse == NULL)
        return OVERRIDE_REFUSE(error, override, "%s takes no parameters", a->name);
    if (a->parse != NULL ? !a->parse(text.at, text.length, override->parameter)
                         : !parameters_read(text, a->parameters, override->parameter))
        return OVERRIDE_REFUSE(
            error, override,
            "\"%.*s\" is no parameter of %s, which takes %s%u number%s from 1 to 65535, "
            "with x between them",
            (int)text.length, text.at, a->name, a->parse != NULL ? "words, or " : "", a->parameters,
            TWILL_PLURAL(a->parameters));
    return TWILL_OK;
}

/* Parse the text of the entry into its other members, which must have their defaults. Returns
 * TWILL_ERR_CONFIG if the entry is wrong. */
static twill_status read_entry(struct twill_override *override, struct twill_error *error)
{
    struct text_view rest = {override->text, (size_t) override->length};
    TWILL_TRY(error, read_collective(override, &rest, error));
    TWILL_TRY(error, read_protocol(override, &rest, error));
    const char *equals = memchr(rest.at, '=', rest.length);
    struct text_view name = {rest.at, equals != NULL ? (size_t)(equals - rest.at) : rest.length};
    if (override->protocol < 0 && equals == NULL && name.length == 4 &&
        memcmp(name.at, "auto", 4) == 0)
        return TWILL_OK;
    int index = lookup(name, algorithm_name, algorithms());
    if (index < 0)
        return refuse_name(error, override, name, "an algorithm", algorithm_name, algorithms());
    override->algorithm = twill_algorithm_at((size_t)index);
    if (override->protocol >= 0 && override->algorithm->protocols == 0)
        return OVERRIDE_REFUSE(error, override, "%s has no protocols", override->algorithm->name);
    if (equals == NULL)
        return TWILL_OK;
    size_t before = (size_t)(equals + 1 - rest.at);
    return read_parameters(override, (struct text_view){equals + 1, rest.length - before}, error);
}

twill_status twill_overrides_parse(struct twill_override **overrides, size_t *count,
                                   const char *text, struct twill_error *error)
{
    *overrides = NULL;
    *count = 0;
    for (; *text != '\0'; text += *text == ';') {
        size_t length = strcspn(text, ";");
        if (length > 0) {
            struct twill_override *more = realloc(*overrides, (*count + 1) * sizeof(**overrides));
            twill_status status =
                more == NULL ? TWILL_FAIL(error, TWILL_ERR_MEMORY, "out of memory") : TWILL_OK;
            *overrides = more != NULL ? more : *overrides;
            if (status == TWILL_OK) {
                more[*count] = (struct twill_override){.text = text,
                                                       .length = (int)length,
                                                       .collective = -1,
                                                       .protocol = -1,
                                                       .most = SIZE_MAX};
                status = read_entry(&more[(*count)++], error);
            }
            if (status != TWILL_OK) {
                free(*overrides);
                *overrides = NULL;
                *count = 0;
                return status;
            }
        }
        text += length;
    }
    return TWILL_OK;
}

const struct twill_override *twill_override_find(const struct twill_override *overrides,
                                                 size_t count, enum twill_collective collective,
                                                 size_t bytes)
{
    const struct twill_override *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        const struct twill_override *override = &overrides[i];
        bool mine = override->collective == (int)collective;
        bool general =
            override->collective < 0 && (override->algorithm == NULL ||
                                         (override->algorithm->collectives >> collective & 1) != 0);
        if ((mine || (general && (chosen == NULL || chosen->collective < 0))) &&
            bytes >= override->least && bytes <= override->most)
            chosen = override;
    }
    return chosen;
}
