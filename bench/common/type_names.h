/* SPDX-License-Identifier: Apache-2.0 */
/* Names of the element types in other programs.
 *
 * X(NOUN, names...): TWILL_NOUN; that of nccl-tests, which reports use; then up to two others. */
#ifndef TWILL_TYPE_NAMES_H
#define TWILL_TYPE_NAMES_H

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

#endif
