/* SPDX-License-Identifier: Apache-2.0 */
/* Answers of a launcher that speaks PMI-1. */
#include "fabric/bootstrap/pmi_client.h"
#include "tests/fuzz/fuzz_socket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_pmi pmi = {.deadline = UINT64_MAX};
    struct twill_error error = {0};
    char value[64];
    int fd[2];
    fuzz_pair(fd);
    fuzz_feed(fd[1], data, size);
    if (twill_pmi_open(&pmi, fd[0], NULL, NULL, &error) == TWILL_OK &&
        twill_pmi_put(&pmi, "key", "value", &error) == TWILL_OK &&
        twill_pmi_barrier(&pmi, &error) == TWILL_OK &&
        twill_pmi_get(&pmi, "key", value, sizeof(value), &error) == TWILL_OK)
        fuzz_must(memchr(value, '\0', sizeof(value)) != NULL);
    for (const char *c = error.message; *c != '\0'; c++) /* what it quotes commands no terminal */
        fuzz_must((unsigned char)*c >= ' ' && *c != 127);
    twill_pmi_close(&pmi);
    fuzz_sockets_reset();
    return 0;
}
