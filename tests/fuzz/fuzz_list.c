/* SPDX-License-Identifier: Apache-2.0 */
/* Gradient lists of twill-bench. */
#include "bench/common/gradient_list.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_bench_list list;
    char path[64], message[256];
    int fd = fuzz_file(data, size, path);
    if (twill_bench_list_read(&list, path, message, sizeof(message)))
        fuzz_must(list.keys > 0 && list.total >= list.keys && list.extent >= list.total);
    twill_bench_list_free(&list);
    close(fd);
    return 0;
}
