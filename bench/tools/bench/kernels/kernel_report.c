/* SPDX-License-Identifier: Apache-2.0 */
/* The output of twill-bench kernels: a table, and JSON. */
#include "bench/common/json_file.h"
#include "bench/tools/bench/kernels/kernel_times.h"

#include <stdlib.h>
#include <string.h>

void twill_bench_kernel_header(const char *isa, const size_t *caches)
{
    printf("# twill-bench version %s: kernels of %s, one core; L1 %zu KiB, L2 %zu KiB, L3 %zu KiB\n"
           "# GB/s: bytes loaded and stored. Ratios of time, medians of turns: scalar and triad (a "
           "= b + s c) over the kernel.\n#\n",
           twill_version(), isa, caches[0] >> 10, caches[1] >> 10, caches[2] >> 10);
    printf("# %-22s %-7s %10s %10s %9s %9s %8s %8s %6s\n", "kernel", "level", "bytes", "elements",
           "ns/elem", "GB/s", "/scalar", "/triad", "equal");
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 0;
}

static double nanoseconds(const struct twill_bench_kernel_row *row)
{
    return ratio(row->seconds * 1e9, (double)row->elements);
}

void twill_bench_kernel_print(const struct twill_bench_kernel_row *row)
{
    printf("  %-22s %-7s %10zu %10zu %9.4f %9.2f %8.2f %8.2f %6s\n", row->name,
           row->level[0] ? row->level : "-", row->bytes, row->elements, nanoseconds(row),
           ratio(row->moved * 1e-9, row->seconds), ratio(row->scalar, row->seconds),
           ratio(row->triad, row->seconds), row->equal ? "yes" : "NO");
}

struct twill_bench_kernel_json {
    struct twill_json_file file;
    struct json_object *rows;
};

struct twill_bench_kernel_json *twill_bench_kernel_json_open(const char *path, const char *isa,
                                                             const size_t *caches)
{
    static const char *const names[] = {"l1_bytes", "l2_bytes", "l3_bytes"};
    struct twill_bench_kernel_json *json = malloc(sizeof(*json));
    if (json == NULL || !twill_json_file_create(&json->file, path)) {
        free(json);
        return NULL;
    }
    struct json_object *root = json->file.root;
    json->rows = json_object_new_array();
    twill_json_text(root, "isa", isa);
    for (size_t i = 0; i < 3; i++)
        twill_json_count(root, names[i], caches[i]);
    json_object_object_add(root, "kernels", json->rows);
    return json;
}

void twill_bench_kernel_json_row(struct twill_bench_kernel_json *json,
                                 const struct twill_bench_kernel_row *row)
{
    struct json_object *one = json_object_new_object();
    twill_json_text(one, "kernel", row->name);
    twill_json_text(one, "level", row->level);
    twill_json_count(one, "bytes", row->bytes);
    twill_json_count(one, "elements", row->elements);
    twill_json_real(one, "ns_per_element", nanoseconds(row));
    twill_json_real(one, "gb_per_second", ratio(row->moved * 1e-9, row->seconds));
    twill_json_real(one, "scalar_ratio", ratio(row->scalar, row->seconds));
    twill_json_real(one, "triad_ratio", ratio(row->triad, row->seconds));
    json_object_object_add(one, "equal", json_object_new_boolean(row->equal));
    json_object_array_add(json->rows, one);
}

bool twill_bench_kernel_json_close(struct twill_bench_kernel_json *json)
{
    bool good = twill_json_file_close(&json->file);
    free(json);
    return good;
}
