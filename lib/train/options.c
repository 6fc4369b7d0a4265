/* SPDX-License-Identifier: Apache-2.0 */
/* The one list of a set's options, with the name and the kind of value of each entry. It serves to
 * parse TWILL_GRADIENTS, to print options, and to compare them over the ranks. */
#include "lib/base/lists.h"
#include "lib/train/gradients.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PINNED_BYTES 512u /* bytes of a file named by TWILL_GRADIENTS=@FILE */

enum entry_kind {
    SETTING_BYTES,  /* size_t */
    SETTING_NUMBER, /* int >= 0 */
    SETTING_SWITCH, /* int, which counts as 0 or not 0 */
    SETTING_REAL,   /* double */
    SETTING_ORDER,  /* from here on enums, by name */
    SETTING_COMPRESSION,
    SETTING_FACTORS,
    SETTING_OPERATION,
    SETTING_RULE,
    SETTING_KINDS
};

static const char *const order_names[] = {"backward", "priority"};
static const char *const factors_names[] = {"price", "gather", "reduce"};
static const char *const compression_names[TWILL_COMPRESSIONS] = {
    "none", "f16", "bf16", "f8e4m3", "f8e5m2", "int8", "top_k", "threshold"};

/* The form of a value of each kind and, for an enum, its names. */
static const struct {
    const char *help;
    const char *const *names;
    unsigned count;
} kinds[SETTING_KINDS] = {
    [SETTING_BYTES] = {"must be bytes, such as 8M", NULL, 0},
    [SETTING_NUMBER] = {"must be a number from 0", NULL, 0},
    [SETTING_SWITCH] = {"must be 0 or 1", NULL, 0},
    [SETTING_REAL] = {"must be a number", NULL, 0},
    [SETTING_ORDER] = {"must be backward or priority", order_names,
                       TWILL_ARRAY_LENGTH(order_names)},
    [SETTING_COMPRESSION] = {"must be none, f16, bf16, f8e4m3, f8e5m2, int8, top_k or threshold",
                             compression_names, TWILL_COMPRESSIONS},
    [SETTING_FACTORS] = {"must be price, gather or reduce", factors_names,
                         TWILL_ARRAY_LENGTH(factors_names)}};
_Static_assert(sizeof(twill_bucket_order) == sizeof(int) &&
                   sizeof(twill_compression) == sizeof(int) &&
                   sizeof(twill_factors_choice) == sizeof(int) && sizeof(twill_op) == sizeof(int) &&
                   sizeof(twill_optimizer_rule) == sizeof(int),
               "enums are read and written as int");

/* Where an entry is used, apart from the comparison of the ranks. */
enum entry_use {
    SETTING_CHANGED = 0, /* in TWILL_GRADIENTS, and described if it is not the default */
    SETTING_SHOWN,       /* always described */
    SETTING_SEARCH,      /* never described, as its result is */
    SETTING_IN_PROGRAM   /* not in TWILL_GRADIENTS, as the program's results depend on it */
};

/* An option or hyperparameter. A constant of options_list or optimizer_list. */
struct set_entry {
    const char *name;
    enum entry_kind kind; /* how its value is read and written, such as bytes or a name */
    enum entry_use use;   /* whether it is in TWILL_GRADIENTS, and when it is described */
    size_t at;            /* offset of the member in the options or in the optimizer */
};

#define OPTION(name, kind, use, member)                                                            \
    {                                                                                              \
        name, SETTING_##kind, SETTING_##use, offsetof(twill_gradients_options, member)             \
    }
static const struct set_entry options_list[] = {
    OPTION("op", OPERATION, IN_PROGRAM, op),
    OPTION("scale", REAL, IN_PROGRAM, scale),
    OPTION("bucket", BYTES, SHOWN, bucket_bytes),
    OPTION("first", BYTES, SHOWN, first_bucket_bytes),
    OPTION("segment", BYTES, SHOWN, segment_bytes),
    OPTION("order", ORDER, SHOWN, order),
    OPTION("autotune", SWITCH, SEARCH, autotune),
    OPTION("check", NUMBER, CHANGED, check_every),
    OPTION("report", NUMBER, CHANGED, report_every),
    OPTION("late", SWITCH, CHANGED, late),
    OPTION("compress", COMPRESSION, CHANGED, compression),
    OPTION("automatic", SWITCH, CHANGED, compression_automatic),
    OPTION("feedback", SWITCH, CHANGED, error_feedback),
    OPTION("ratio", REAL, CHANGED, compression_ratio),
    OPTION("threshold", REAL, CHANGED, compression_threshold),
    OPTION("factors", FACTORS, CHANGED, factors),
    OPTION("threads", NUMBER, SHOWN, threads),
    OPTION("promote", SWITCH, CHANGED, promote),
};

#define HYPERPARAMETER(name, kind, member)                                                         \
    {                                                                                              \
        name, SETTING_##kind, SETTING_IN_PROGRAM, offsetof(twill_optimizer, member)                \
    }
static const struct set_entry optimizer_list[] = {
    HYPERPARAMETER("optimizer", RULE, rule),
    HYPERPARAMETER("rate", REAL, rate),
    HYPERPARAMETER("weight_decay", REAL, weight_decay),
    HYPERPARAMETER("momentum", REAL, momentum),
    HYPERPARAMETER("dampening", REAL, dampening),
    HYPERPARAMETER("nesterov", SWITCH, nesterov),
    HYPERPARAMETER("rate_decay", REAL, rate_decay),
    HYPERPARAMETER("beta1", REAL, beta1),
    HYPERPARAMETER("beta2", REAL, beta2),
    HYPERPARAMETER("epsilon", REAL, epsilon),
    HYPERPARAMETER("trust_coefficient", REAL, trust_coefficient),
    HYPERPARAMETER("clip_norm", REAL, clip_norm),
};

enum {
    OPTIONS = TWILL_ARRAY_LENGTH(options_list),
    HYPERPARAMETERS = TWILL_ARRAY_LENGTH(optimizer_list)
};
_Static_assert(OPTIONS + HYPERPARAMETERS == TWILL_SET_ENTRIES, "the number of entries");

const char *twill_compression_name(twill_compression compression)
{
    return (unsigned)compression < TWILL_COMPRESSIONS ? compression_names[compression] : "?";
}

/* Print a number in as few digits as give the same number when read. Returns the length. */
static int print_real(double value, char *text, size_t bytes)
{
    int length = twill_print(text, bytes, "%g", value);
    if (twill_read_real(text, NULL) != value)
        length = twill_print(text, bytes, "%.17g", value);
    return length;
}

/* Write "name=value" of an entry of the object to text[bytes]. Returns the length. */
static int print_entry(const struct set_entry *entry, const void *object, char *text, size_t bytes)
{
    const void *member = (const unsigned char *)object + entry->at;
    const char *name = "?";
    int used = snprintf(text, bytes, "%s=", entry->name), number;
    text += used;
    bytes -= (size_t)used;
    if (entry->kind == SETTING_BYTES)
        return used + snprintf(text, bytes, "%zu", *(const size_t *)member);
    if (entry->kind == SETTING_REAL)
        return used + print_real(*(const double *)member, text, bytes);
    memcpy(&number, member, sizeof(number));
    if (entry->kind == SETTING_NUMBER || entry->kind == SETTING_SWITCH)
        return used +
               snprintf(text, bytes, "%d", entry->kind == SETTING_SWITCH ? number != 0 : number);
    if (entry->kind == SETTING_OPERATION)
        name = twill_op_name((twill_op)number);
    else if (entry->kind == SETTING_RULE)
        name = twill_optimizer_name((twill_optimizer_rule)number);
    else if ((unsigned)number < kinds[entry->kind].count)
        name = kinds[entry->kind].names[number];
    return used + snprintf(text, bytes, "%s", name);
}

void twill_set_entry_print(const struct twill_gradients *set, unsigned index,
                           char text[TWILL_ENTRY_BYTES])
{
    if (index < OPTIONS)
        (void)print_entry(&options_list[index], &set->options, text, TWILL_ENTRY_BYTES);
    else if (set->update != NULL)
        (void)print_entry(&optimizer_list[index - OPTIONS], &set->update->optimizer, text,
                          TWILL_ENTRY_BYTES);
    else
        snprintf(text, TWILL_ENTRY_BYTES, "no optimizer");
}

size_t twill_set_entries_describe(const struct twill_gradients *set, char *text, size_t bytes)
{
    twill_gradients_options defaults;
    size_t used = 0;
    twill_gradients_defaults(&defaults);
    for (unsigned i = 0; i < OPTIONS; i++) {
        char mine[TWILL_ENTRY_BYTES], usual[TWILL_ENTRY_BYTES];
        const struct set_entry *entry = &options_list[i];
        (void)print_entry(entry, &set->options, mine, sizeof(mine));
        (void)print_entry(entry, &defaults, usual, sizeof(usual));
        if (entry->use == SETTING_SHOWN ||
            (entry->use == SETTING_CHANGED && strcmp(mine, usual) != 0))
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used > 0 ? "," : "", mine);
    }
    return used;
}

/* Return the index of a text in names[], or -1 if it is not there. */
static int find_name(const char *const *names, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(text, names[i]) == 0)
            return (int)i;
    return -1;
}

/* Parse a finite number. Returns false if the text is something else. */
static bool parse_real(const char *text, double *value)
{
    char *end;
    *value = twill_read_real(text, &end);
    return end != text && *end == '\0' && isfinite(*value);
}

/* Set the option of an entry. Returns false if the value cannot be parsed, and true otherwise. */
static bool apply_value(twill_gradients_options *options, const struct set_entry *entry,
                        const char *value)
{
    void *member = (unsigned char *)options + entry->at;
    int64_t number;
    if (entry->kind == SETTING_REAL)
        return parse_real(value, member);
    if (kinds[entry->kind].names != NULL)
        number = find_name(kinds[entry->kind].names, kinds[entry->kind].count, value);
    else if (!twill_read_integer(value, true, &number))
        return false;
    if (number < 0 || (entry->kind != SETTING_BYTES && number > INT32_MAX))
        return false;
    if (entry->kind == SETTING_BYTES)
        *(size_t *)member = (size_t)number;
    else
        memcpy(member, &(int){(int)number}, sizeof(int));
    return true;
}

/* Return the error that TWILL_GRADIENTS has no such entry, with the names that there are. */
static twill_status refuse_name(const char *name, struct twill_error *error)
{
    char known[400] = "";
    for (unsigned i = 0; i < OPTIONS; i++)
        if (options_list[i].use != SETTING_IN_PROGRAM)
            twill_text_list(known, sizeof(known), options_list[i].name);
    return TWILL_FAIL(error, TWILL_ERR_CONFIG,
                      "TWILL_GRADIENTS: there is no entry \"%s\"; there are %s", name, known);
}

/* Apply an entry "name=value" to the options. Changes its text. Returns TWILL_OK or the error. */
static twill_status apply_entry(twill_gradients_options *options, char *text,
                                struct twill_error *error)
{
    char *value = strchr(text, '=');
    if (value != NULL)
        *value++ = '\0';
    for (unsigned i = 0; value != NULL && i < OPTIONS; i++) {
        const struct set_entry *entry = &options_list[i];
        if (entry->use == SETTING_IN_PROGRAM || strcmp(text, entry->name) != 0)
            continue;
        if (apply_value(options, entry, value))
            return TWILL_OK;
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_GRADIENTS: %s=%s: %s", text, value,
                          kinds[entry->kind].help);
    }
    return refuse_name(text, error);
}

/* Read a file's first line to text[], without a leading "TWILL_GRADIENTS=". Returns the status. */
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

twill_status twill_entries_apply(twill_gradients_options *options, const char *value,
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

#define SEGMENT_LEAST     4096u
#define BUCKET_BYTES_MOST ((size_t)1 << 40)

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
                                             .compression_ratio = 0.01,
                                             .promote = 1};
}

/* Return TWILL_OK if the options of compression are valid, else TWILL_ERR_ARGUMENT. */
static twill_status check_compression(const twill_gradients_options *o, struct twill_error *error)
{
    TWILL_TRY(error, twill_compression_check(o->compression, o->compression_ratio,
                                             o->compression_threshold, error));
    if (o->compression == TWILL_COMPRESS_THRESHOLD && o->compression_threshold == 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.compression_threshold is 0: compression by threshold needs one");
    return TWILL_OK;
}

/* Return TWILL_OK if all options are valid, else TWILL_ERR_ARGUMENT with a message. */
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
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options: buckets of %zu and %zu bytes are too large", o->bucket_bytes,
                          o->first_bucket_bytes);
    if (o->segment_bytes < SEGMENT_LEAST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.segment_bytes %zu is less than %u",
                          o->segment_bytes, SEGMENT_LEAST);
    if (o->threads < 0 || o->threads > (int)TWILL_REDUCERS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.threads %d is outside 0 .. %u",
                          o->threads, TWILL_REDUCERS_MOST);
    if ((unsigned)o->factors > TWILL_FACTORS_REDUCED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.factors %d is not a twill_factors_choice", (int)o->factors);
    if (o->check_every < 0 || o->report_every < 0)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.%s %d is negative",
                          o->check_every < 0 ? "check_every" : "report_every",
                          o->check_every < 0 ? o->check_every : o->report_every);
    return check_compression(o, error);
}

twill_status twill_gradients_set_options(struct twill_gradients *set,
                                         const twill_gradients_options *options,
                                         struct twill_error *error)
{
    twill_gradients_defaults(&set->options);
    if (options != NULL) {
        TWILL_TRY(error, twill_options_check_bytes(options->bytes, sizeof(*options),
                                                   "twill_gradients_defaults", error));
        set->options = *options;
    }
    if (set->process.gradients != NULL)
        TWILL_TRY(error, twill_entries_apply(&set->options, set->process.gradients, error));
    return check_options(&set->options, error);
}
