/* SPDX-License-Identifier: Apache-2.0 */
/* The options of a set: defaults, checks, and TWILL_GRADIENTS. */
#include "lib/lists.h"
#include "lib/train/gradients.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEGMENT_LEAST     4096u
#define BUCKET_BYTES_MOST ((size_t)1 << 40)
#define PINNED_BYTES      512u /* of a file named by TWILL_GRADIENTS=@FILE */

void twill_gradients_defaults(twill_gradients_options *options)
{
    if (options != NULL)
        *options = (twill_gradients_options){.bytes = sizeof(*options),
                                             .op = TWILL_AVG,
                                             .scale = 1,
                                             .bucket_bytes = (size_t)8 << 20,
                                             .first_bucket_bytes = (size_t)1 << 20,
                                             .segment_bytes = (size_t)1 << 20,
                                             .error_feedback = 1,
                                             .compression_ratio = 0.01};
}

/* --- TWILL_GRADIENTS ------------------------------------------------------------------------- */

enum setting_kind {
    SETTING_BYTES,
    SETTING_NUMBER,
    SETTING_REAL,
    SETTING_ORDER,
    SETTING_COMPRESSION,
    SETTING_FACTORS,
    SETTING_KINDS
};

static const char *const order_names[] = {"backward", "priority"};
static const char *const factors_names[] = {"price", "gather", "reduce"};
static const char *const compression_names[TWILL_COMPRESSIONS] = {
    "none", "f16", "bf16", "f8e4m3", "f8e5m2", "int8", "top_k", "threshold"};

/* What a value of each kind must be. */
static const char *const kind_help[SETTING_KINDS] = {
    [SETTING_BYTES] = "must be bytes, such as 8M",
    [SETTING_NUMBER] = "must be a number from 0",
    [SETTING_REAL] = "must be a number",
    [SETTING_ORDER] = "must be backward or priority",
    [SETTING_COMPRESSION] = "must be none, f16, bf16, f8e4m3, f8e5m2, int8, top_k or threshold",
    [SETTING_FACTORS] = "must be price, gather or reduce"};

static const struct gradients_setting {
    const char *name;
    enum setting_kind kind;
    size_t at; /* of the member in the options */
} settings[] = {
    {"bucket", SETTING_BYTES, offsetof(twill_gradients_options, bucket_bytes)},
    {"first", SETTING_BYTES, offsetof(twill_gradients_options, first_bucket_bytes)},
    {"segment", SETTING_BYTES, offsetof(twill_gradients_options, segment_bytes)},
    {"order", SETTING_ORDER, offsetof(twill_gradients_options, order)},
    {"autotune", SETTING_NUMBER, offsetof(twill_gradients_options, autotune)},
    {"check", SETTING_NUMBER, offsetof(twill_gradients_options, check_every)},
    {"late", SETTING_NUMBER, offsetof(twill_gradients_options, late)},
    {"compress", SETTING_COMPRESSION, offsetof(twill_gradients_options, compression)},
    {"automatic", SETTING_NUMBER, offsetof(twill_gradients_options, compression_automatic)},
    {"feedback", SETTING_NUMBER, offsetof(twill_gradients_options, error_feedback)},
    {"ratio", SETTING_REAL, offsetof(twill_gradients_options, compression_ratio)},
    {"threshold", SETTING_REAL, offsetof(twill_gradients_options, compression_threshold)},
    {"factors", SETTING_FACTORS, offsetof(twill_gradients_options, factors)},
    {"threads", SETTING_NUMBER, offsetof(twill_gradients_options, threads)},
};

const char *twill_compression_name(twill_compression compression)
{
    return (unsigned)compression < TWILL_COMPRESSIONS ? compression_names[compression] : "?";
}

/* Find a text among names; -1 if it is none of them. */
static int find_name(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}

static bool parse_real(const char *text, double *value)
{
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

/* Set the member of a setting. Returns false if the value cannot be parsed. */
static bool apply_value(twill_gradients_options *options, const struct gradients_setting *setting,
                        const char *value)
{
    void *member = (unsigned char *)options + setting->at;
    int64_t number;
    int name = -1;
    if (setting->kind == SETTING_REAL)
        return parse_real(value, member);
    if (setting->kind == SETTING_ORDER) {
        name = find_name(order_names, TWILL_ARRAY_LENGTH(order_names), value);
        *(twill_bucket_order *)member = (twill_bucket_order)name;
        return name >= 0;
    }
    if (setting->kind == SETTING_COMPRESSION) {
        name = find_name(compression_names, TWILL_COMPRESSIONS, value);
        *(twill_compression *)member = (twill_compression)name;
        return name >= 0;
    }
    if (setting->kind == SETTING_FACTORS) {
        name = find_name(factors_names, TWILL_ARRAY_LENGTH(factors_names), value);
        *(twill_factors_choice *)member = (twill_factors_choice)name;
        return name >= 0;
    }
    if (!twill_config_bytes(value, &number) || number < 0)
        return false;
    if (setting->kind == SETTING_BYTES)
        *(size_t *)member = (size_t)number;
    else if (number <= INT32_MAX)
        *(int *)member = (int)number;
    else
        return false;
    return true;
}

/* Apply an entry "name=value", whose text is changed. */
static twill_status apply_entry(twill_gradients_options *options, char *entry,
                                struct twill_error *error)
{
    char *value = strchr(entry, '=');
    if (value != NULL)
        *value++ = '\0';
    for (size_t i = 0; value != NULL && i < TWILL_ARRAY_LENGTH(settings); i++)
        if (strcmp(entry, settings[i].name) == 0) {
            if (apply_value(options, &settings[i], value))
                return TWILL_OK;
            return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_GRADIENTS: %s=%s: %s", entry, value,
                              kind_help[settings[i].kind]);
        }
    return TWILL_FAIL(
        error, TWILL_ERR_CONFIG,
        "TWILL_GRADIENTS: there is no entry \"%s\"; there are bucket, first, "
        "segment, order, autotune, check, late, compress, automatic, feedback, ratio, "
        "threshold, factors, threads",
        entry);
}

/* Read the first line of a file, without a "TWILL_GRADIENTS=" before it. */
static twill_status read_pinned(const char *path, char text[PINNED_BYTES],
                                struct twill_error *error)
{
    static const char prefix[] = "TWILL_GRADIENTS=";
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_GRADIENTS=@%s: %s", path,
                          strerror(errno));
    bool read = fgets(text, PINNED_BYTES, file) != NULL;
    fclose(file);
    if (!read)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_GRADIENTS=@%s: the file is empty", path);
    text[strcspn(text, "\n")] = '\0';
    if (strncmp(text, prefix, strlen(prefix)) == 0)
        memmove(text, text + strlen(prefix), strlen(text + strlen(prefix)) + 1);
    return TWILL_OK;
}

static twill_status apply_variable(twill_gradients_options *options, const char *value,
                                   struct twill_error *error)
{
    char text[PINNED_BYTES], *rest = NULL;
    if (value[0] == '@')
        TWILL_TRY(error, read_pinned(value + 1, text, error));
    else if ((size_t)snprintf(text, sizeof(text), "%s", value) >= sizeof(text))
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_GRADIENTS is longer than %u bytes",
                          PINNED_BYTES - 1);
    for (char *entry = strtok_r(text, ",", &rest); entry != NULL;
         entry = strtok_r(NULL, ",", &rest))
        TWILL_TRY(error, apply_entry(options, entry, error));
    return TWILL_OK;
}

/* --- checks ---------------------------------------------------------------------------------- */

static twill_status check_compression(const twill_gradients_options *o, struct twill_error *error)
{
    if ((unsigned)o->compression >= TWILL_COMPRESSIONS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression %d is not a twill_compression", (int)o->compression);
    if (!(o->compression_ratio > 0 && o->compression_ratio <= 1))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_ratio %g is not above 0 and at most 1",
                          o->compression_ratio);
    if (!(o->compression_threshold >= 0 && o->compression_threshold < 1e30))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold %g is not a magnitude",
                          o->compression_threshold);
    if (o->compression == TWILL_COMPRESS_THRESHOLD && o->compression_threshold == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold is 0: compression by threshold needs one");
    return TWILL_OK;
}

static twill_status check_options(const twill_gradients_options *o, struct twill_error *error)
{
    if (o->op != TWILL_AVG && o->op != TWILL_SUM)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.op %d is neither sum nor avg",
                          (int)o->op);
    if (!(o->scale > -1e30 && o->scale < 1e30) || o->scale == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.scale %g is not a factor", o->scale);
    if ((unsigned)o->order > TWILL_BUCKETS_BY_PRIORITY)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.order %d is not a twill_bucket_order",
                          (int)o->order);
    if (o->bucket_bytes > BUCKET_BYTES_MOST || o->first_bucket_bytes > BUCKET_BYTES_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options: buckets of %zu and %zu bytes",
                          o->bucket_bytes, o->first_bucket_bytes);
    if (o->segment_bytes < SEGMENT_LEAST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.segment_bytes %zu is less than %u",
                          o->segment_bytes, SEGMENT_LEAST);
    if (o->threads < 0 || o->threads > (int)TWILL_LANES_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.threads %d is outside 0 .. %u",
                          o->threads, TWILL_LANES_MOST);
    if (o->late != 0 && (o->autotune != 0 || o->compression_automatic != 0))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.late with %s, which divides buckets anew between steps",
                          o->autotune != 0 ? "autotune" : "compression_automatic");
    if ((unsigned)o->factors > TWILL_FACTORS_REDUCED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.factors %d is not a twill_factors_choice", (int)o->factors);
    if (o->check_every < 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.check_every %d is negative",
                          o->check_every);
    return check_compression(o, error);
}

twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error)
{
    twill_gradients_defaults(&set->options);
    if (options != NULL && options->bytes != sizeof(*options))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.bytes is %zu, not %zu: twill_gradients_defaults() sets it",
                          options->bytes, sizeof(*options));
    if (options != NULL)
        set->options = *options;
    const char *value = twill_config_text(&set->context->config, TWILL_VARIABLE_GRADIENTS);
    if (value != NULL)
        TWILL_TRY(error, apply_variable(&set->options, value, error));
    return check_options(&set->options, error);
}
