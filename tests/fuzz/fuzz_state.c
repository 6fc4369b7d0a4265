/* SPDX-License-Identifier: Apache-2.0 */
/* State files of parameter servers. The first byte selects the mode of the server that reads, the
 * second whether its tensors are cut before, and whether the input's checksum is made right, so
 * that what is read goes on to the cores. */
#include "lib/server/state/state.h"
#include "tests/fuzz/fuzz_server.h"

#include "kernels/kernels.h"

/* A record may not claim what its mode does not have. */
static void check_records(const struct twill_server *server)
{
    for (uint32_t i = 0; i < server->cut.places && server->past.held != NULL; i++) {
        uint64_t head[2]; /* version and gradients that wait */
        if (server->past.held[i] == NULL)
            continue;
        memcpy(head, server->past.held[i], sizeof(head));
        fuzz_must(head[0] < UINT64_C(1) << 43);
        fuzz_must(twill_server_adds(server) ? head[1] < 1u << 20 : head[1] == 0);
    }
}

/* Write the input as the file of rank 0, with its checksum. */
static void write_file(const char *path, const uint8_t *data, size_t size, bool right)
{
    char name[80];
    snprintf(name, sizeof(name), "%s.0", path);
    FILE *file = fopen(name, "wbe");
    fuzz_must(file != NULL && fwrite(data, 1, size, file) == size);
    uint32_t crc = 0;
    for (size_t i = 0; i < size; i++) /* as fuzz_server.c has it */
        crc = crc * 31 + data[i];
    if (right)
        fuzz_must(fwrite(&crc, 1, sizeof(crc), file) == sizeof(crc));
    fuzz_must(fclose(file) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[48], name[64];
    if (size < 2)
        return 0;
    struct fuzz_server_kind kind = {.mode = (twill_server_mode)(data[0] % 8),
                                    .replicas = data[0] / 8 % 2,
                                    .slow = data[0] / 16 % 2,
                                    .small = true,
                                    .uncut = data[1] % 2};
    struct twill_server *server = fuzz_server_open(kind);
    snprintf(path, sizeof(path), "/dev/shm/twill-fuzz-state-%d", (int)getpid());
    snprintf(name, sizeof(name), "%s.0", path);
    write_file(path, data + 2, size - 2, data[1] / 2 % 2);
    twill_status status = twill_server_load(server, path);
    fuzz_must(status == TWILL_OK || server->past.held == NULL);
    fuzz_must(status == TWILL_OK || !kind.uncut || server->cut.place == NULL);
    if (status == TWILL_OK) {
        check_records(server);
        if (!kind.uncut)
            (void)twill_server_spread_state(server);
    }
    unlink(name);
    fuzz_server_close(server);
    return 0;
}
