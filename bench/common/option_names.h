/* SPDX-License-Identifier: Apache-2.0 */
/* Names on command lines, which are twill's and usual ones of other programs (all_reduce, fp32). */
#ifndef TWILL_OPTION_NAMES_H
#define TWILL_OPTION_NAMES_H

#include "lib/twill.h"

/* X(NOUN, names...) has the names of TWILL_NOUN in other programs, first that of nccl-tests. */
#define TWILL_BENCH_TYPE_NAMES(X)                                                                  \
    X(F32, "float", "fp32", "float32")                                                             \
    X(F64, "double", "fp64", "float64")                                                            \
    X(I32, "int32", "int")                                                                         \
    X(I64, "int64")                                                                                \
    X(F16, "half", "fp16", "float16")                                                              \
    X(BF16, "bfloat16")                                                                            \
    X(I8, "int8")                                                                                  \
    X(U8, "uint8")                                                                                 \
    X(I16, "int16")                                                                                \
    X(U16, "uint16")                                                                               \
    X(U32, "uint32")                                                                               \
    X(U64, "uint64")                                                                               \
    X(F8E4M3, "f8e4m3", "fp8e4m3", "float8e4m3")                                                   \
    X(F8E5M2, "f8e5m2", "fp8e5m2", "float8e5m2")

/* Return twill's name of a collective, such as "allreduce" for "All_Reduce". For any other text,
 * return the text itself. */
const char *twill_bench_collective_name(const char *text);
/* Return the type with a name such as "f32", "float", "fp32", "bf16" or "fp8_e4m3", or -1. */
int twill_bench_type_parse(const char *text);
/* Return the name of a type in nccl-tests, such as "float". */
const char *twill_bench_type_name(twill_type type);
/* Return the level of the machine with this name, an enum twill_level, or -1 if there is none. */
int twill_bench_level(const char *text);

#endif
