/* SPDX-License-Identifier: Apache-2.0 */
/* The tables, and which of them this machine runs. CPUID features and the state that the operating
 * system saves decide, never the model number (an emulated Knights Landing lacks AVX-512). */
#include "kernels/isa.h"

#include <stdio.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* CPUID features of this machine, and the state that its operating system saves. */
struct features {
    unsigned leaf1_ecx, leaf7_ebx;
    unsigned state; /* XCR0: the registers saved on a context switch */
};

enum { XCR0_AVX = 0x06, XCR0_AVX512 = 0xe6 };
enum { CHECKSUM = bit_SSE4_2 | bit_PCLMUL }; /* for crc32c_sse42.c, in every CPU with AVX */

/* Return this machine's features, all zeros if CPUID does not say. */
static struct features features(void)
{
    struct features f = {0, 0, 0};
    unsigned eax, ebx, ecx, edx;
    if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        return f;
    f.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        f.leaf7_ebx = ebx;
    if (f.leaf1_ecx & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(f.state), "=d"(edx) : "c"(0));
    return f;
}

/* Return whether `f` has all of these bits. */
static bool cpu_has(struct features f, unsigned leaf1_ecx, unsigned leaf7_ebx, unsigned state)
{
    return (f.leaf1_ecx & leaf1_ecx) == leaf1_ecx && (f.leaf7_ebx & leaf7_ebx) == leaf7_ebx &&
           (f.state & state) == state;
}

bool twill_cpu_runs_avx2(void)
{
    return cpu_has(features(), bit_AVX | bit_F16C | CHECKSUM, bit_AVX2, XCR0_AVX);
}

/* Return whether this machine runs the AVX-512 table, and FMA, which -mavx512f implies. */
bool twill_cpu_runs_avx512f(void)
{
    return cpu_has(features(), bit_AVX | bit_F16C | bit_FMA | CHECKSUM, bit_AVX2 | bit_AVX512F,
                   XCR0_AVX512);
}
#endif

bool twill_cpu_runs_baseline(void)
{
    return true;
}

static const struct twill_kernels *const tables[] = {
    &twill_kernels_scalar,
#if defined(__x86_64__)
    &twill_kernels_avx2,
    &twill_kernels_avx512f,
#endif
};

const struct twill_kernels *twill_kernels_at(size_t index)
{
    return index < TWILL_ARRAY_LENGTH(tables) ? tables[index] : NULL;
}

/* Write to text[size] the names of all tables of kernels, after "auto", for an error message. A
 * table whose instructions this machine lacks is marked. */
static void list_tables(char *text, size_t size)
{
    int used = snprintf(text, size, "auto");
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(tables) && used > 0 && (size_t)used < size; i++)
        used += snprintf(text + used, size - (size_t)used, ", %s%s", tables[i]->isa,
                         tables[i]->supported() ? "" : " (not on this machine)");
}

twill_status twill_kernels_select(const struct twill_kernels **kernels, const char *isa,
                                  struct twill_error *error)
{
    char names[128];
    bool any = !isa || strcmp(isa, "auto") == 0;
    *kernels = NULL;
    for (size_t i = TWILL_ARRAY_LENGTH(tables); i-- > 0;) {
        if ((any || strcmp(isa, tables[i]->isa) == 0) && tables[i]->supported()) {
            *kernels = tables[i];
            return TWILL_OK;
        }
    }
    list_tables(names, sizeof(names));
    return TWILL_FAIL(error, TWILL_ERR_CONFIG, "kernels \"%s\" cannot be used; there are: %s", isa,
                      names);
}
