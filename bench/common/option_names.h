/* SPDX-License-Identifier: Apache-2.0 */
/* Names on the tools' command lines: twill's, and the usual ones of other programs (all_reduce,
 * fp32, float). */
#ifndef TWILL_OPTION_NAMES_H
#define TWILL_OPTION_NAMES_H

#include "lib/twill.h"

#include <stdbool.h>

/* Return twill's name of a collective, or the text itself: "all_reduce", "AllReduce" and
 * "all_reduce_perf" are "allreduce", "bcast" is "broadcast". */
const char *twill_bench_collective_name(const char *text);
/* Return the type of a name, or -1: "f32", "float", "fp32", "float32", "bf16", "fp8_e4m3". */
int twill_bench_type_parse(const char *text);
/* Return nccl-tests' name of a type: "float", ... */
const char *twill_bench_type_name(twill_type type);
/* Return the level of the machine of this name, or -1. */
int twill_bench_level(const char *text);

#endif
