/* SPDX-License-Identifier: Apache-2.0 */
/* Names on the tools' command lines. */
#include "bench/common/option_names.h"
#include "lib/twill.h"

#include <ctype.h>
#include <stddef.h>
#include <string.h>

#define WORDS_MOST 32

/* Copy a name in lower case, without '_' and '-', and without the "_perf" of nccl-tests. */
static bool normalise(const char *text, char plain[WORDS_MOST])
{
    size_t used = 0;
    for (; *text != '\0' && used + 1 < WORDS_MOST; text++)
        if (*text != '_' && *text != '-')
            plain[used++] = (char)tolower((unsigned char)*text);
    plain[used] = '\0';
    if (used > 4 && strcmp(plain + used - 4, "perf") == 0)
        plain[used - 4] = '\0';
    return *text == '\0';
}

const char *twill_bench_collective_name(const char *text)
{
    static const char *const names[] = {
        "allreduce", "broadcast", "barrier",   "reduce",          "allgather",
        "gather",    "scatter",   "alltoall",  "reduce_scatter",  "sendrecv",
        "gatherv",   "scatterv",  "alltoallv", "reduce_scatterv", "allgatherv",
    };
    char plain[WORDS_MOST], own[WORDS_MOST];
    if (!normalise(text, plain))
        return text;
    if (strcmp(plain, "bcast") == 0)
        return "broadcast";
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (normalise(names[i], own) && strcmp(plain, own) == 0)
            return names[i];
    return text;
}

int twill_bench_type_parse(const char *text)
{
    static const struct {
        const char *other;
        twill_type type;
    } names[] = {
        {"float", TWILL_F32},      {"fp32", TWILL_F32},          {"float32", TWILL_F32},
        {"double", TWILL_F64},     {"fp64", TWILL_F64},          {"float64", TWILL_F64},
        {"half", TWILL_F16},       {"fp16", TWILL_F16},          {"float16", TWILL_F16},
        {"bfloat16", TWILL_BF16},  {"int8", TWILL_I8},           {"uint8", TWILL_U8},
        {"int16", TWILL_I16},      {"uint16", TWILL_U16},        {"int32", TWILL_I32},
        {"int", TWILL_I32},        {"uint32", TWILL_U32},        {"int64", TWILL_I64},
        {"uint64", TWILL_U64},     {"fp8e4m3", TWILL_F8E4M3},    {"float8e4m3", TWILL_F8E4M3},
        {"fp8e5m2", TWILL_F8E5M2}, {"float8e5m2", TWILL_F8E5M2},
    };
    char plain[WORDS_MOST];
    if (!normalise(text, plain))
        return -1;
    for (int type = 0; type < TWILL_TYPE_COUNT; type++)
        if (strcmp(plain, twill_type_name((twill_type)type)) == 0)
            return type;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(plain, names[i].other) == 0)
            return (int)names[i].type;
    return -1;
}
