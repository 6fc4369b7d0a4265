/* SPDX-License-Identifier: Apache-2.0 */
/* Short texts that lead to a job: rank 0's contact as launchers pass it on (PMI, PMIx, Cray's),
 * handles of jobs that grow, and lists of hosts (Slurm's). The first byte selects. A handle that is
 * read is the same when it is written; its check digits are made here, as no input would guess
 * them. */
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/launch_info.h"
#include "tests/fuzz/fuzz_input.h"

static void read_contact(const char *text)
{
    const struct twill_bootstrap_params params = {.rank = NULL};
    struct twill_job job = {.rank = 1, .size = 2, .listener = -1};
    struct twill_error error = {0};
    if (twill_launch_read_contact(&job, &params, text, &error) == TWILL_OK)
        fuzz_must(memchr(job.hosts, '\0', sizeof(job.hosts)) != NULL && job.hosts[0] != '\0');
}

static void read_handle(const char *text, bool checked)
{
    struct twill_join_handle handle;
    struct twill_error error = {0};
    char whole[TWILL_JOIN_HANDLE_TEXT], again[TWILL_JOIN_HANDLE_TEXT];
    uint8_t digest[TWILL_DIGEST_BYTES];
    twill_secret_digest(text, strlen(text), digest);
    snprintf(whole, sizeof(whole), "%s,%02x%02x%02x%02x", text, digest[0], digest[1], digest[2],
             digest[3]);
    if (twill_join_handle_read(&handle, checked ? whole : text, &error) != TWILL_OK)
        return;
    twill_join_handle_write(&handle, again);
    fuzz_must(strcmp(again, checked ? whole : text) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1), host[32];
    switch (data[0] % 4) {
    case 0:
        read_contact(text);
        break;
    case 1:
        if (twill_launch_first_host(text, host, sizeof(host)))
            fuzz_must(memchr(host, '\0', sizeof(host)) != NULL);
        break;
    default:
        read_handle(text, data[0] % 4 == 2);
    }
    free(text);
    return 0;
}
