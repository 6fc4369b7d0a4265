/* SPDX-License-Identifier: Apache-2.0 */
/* Parsers of texts and small files. The first byte selects the parser, and the next one, in some,
 * the kind of text. */
#include "algorithms/algorithms.h"
#include "algorithms/select/override.h"
#include "algorithms/select/tuning_file.h"
#include "algorithms/world/world.h"
#include "bench/common/gradient_list.h"
#include "fabric/auth/job_key.h"
#include "fabric/bootstrap/bootstrap.h"
#include "fabric/bootstrap/launch_info.h"
#include "fabric/launcher/preflight/preflight_wire.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/support/schedules.h"

#include <sys/stat.h>

#define LAYOUT_RANKS 16
#define PRINTED_MOST (1u << 20)

/* --- contacts of jobs ------------------------------------------------------------------------- */

static void read_contact(const char *text)
{
    const struct twill_bootstrap_params params = {.rank = NULL};
    struct twill_job job = {.rank = 1, .size = 2, .listener = -1};
    struct twill_error error = {0};
    if (twill_launch_read_contact(&job, &params, text, &error) == TWILL_OK)
        fuzz_must(memchr(job.hosts, '\0', sizeof(job.hosts)) != NULL && job.hosts[0] != '\0' &&
                  job.port > 0 && job.has_key);
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

/* Short texts that lead to a job: rank 0's contact as launchers pass it on (PMI, PMIx, Cray's),
 * handles of jobs that grow, and lists of hosts (Slurm's). A handle that is read is the same when
 * it is written; its check digits are made here, as no input would guess them. */
static void fuzz_contact(uint8_t kind, const char *text)
{
    char host[32];
    if (kind % 4 == 0)
        read_contact(text);
    else if (kind % 4 == 1 && twill_launch_first_host(text, host, sizeof(host)))
        fuzz_must(memchr(host, '\0', sizeof(host)) != NULL);
    else if (kind % 4 > 1)
        read_handle(text, kind % 4 == 2);
}

/* Layouts and worlds, and the algorithms that a user names. */
static void fuzz_layout(uint8_t kind, const char *text)
{
    struct twill_error error = {0};
    struct twill_override *overrides = NULL;
    struct twill_world world;
    uint32_t label[LAYOUT_RANKS];
    size_t count = 0;
    switch (kind % 4) {
    case 0:
        (void)twill_world_parse_nodes(text, LAYOUT_RANKS, label, &error);
        break;
    case 1:
        (void)twill_world_parse_groups(text, LAYOUT_RANKS, label, &error);
        break;
    case 2:
        if (twill_world_declare(&world, text, &error) == TWILL_OK)
            twill_world_destroy(&world);
        break;
    default:
        if (twill_overrides_parse(&overrides, &count, text, &error) == TWILL_OK && count > 0)
            (void)twill_override_find(overrides, count, TWILL_ALLREDUCE, 4096);
        free(overrides);
    }
}

/* What is parsed is written and parsed again: to the same key. */
static void fuzz_key(const char *text)
{
    struct twill_secret secret, again;
    struct twill_error error = {0};
    char printed[TWILL_SECRET_TEXT];
    if (twill_secret_parse(&secret, "key", text, &error) == TWILL_OK) {
        twill_secret_text(&secret, printed);
        fuzz_must(twill_secret_parse(&again, "key", printed, &error) == TWILL_OK);
        fuzz_must(memcmp(&secret, &again, sizeof(again)) == 0);
    }
}

static void fuzz_key_file(const char *path)
{
    struct twill_secret secret;
    struct twill_error error = {0};
    fuzz_must(chmod(path, 0600) == 0);
    (void)twill_secret_read(&secret, path, &error);
}

/* Gradient lists of twill-bench. */
static void fuzz_list_file(const char *path)
{
    struct twill_bench_list list;
    char message[256];
    if (twill_bench_list_read(&list, path, message, sizeof(message)))
        fuzz_must(list.keys > 0 && list.total >= list.keys && list.extent >= list.total);
    twill_bench_list_free(&list);
}

/* Lines in which the ranks of twillrun --check report what they have found: facts of a host, as
 * JSON. No text may command a terminal. */
static void fuzz_preflight(const char *line)
{
    struct preflight_facts facts;
    int rank;
    struct json_object *object = preflight_line_parse(line, &rank);
    if (object == NULL)
        return;
    memset(&facts, 0, sizeof(facts));
    preflight_facts_get(object, &facts);
#define PREFLIGHT_CHECK(name)                                                                      \
    fuzz_must(memchr(facts.name, '\0', sizeof(facts.name)) != NULL &&                              \
              strpbrk(facts.name, "\033\n\t") == NULL);
    PREFLIGHT_TEXTS(PREFLIGHT_CHECK)
#undef PREFLIGHT_CHECK
    (void)preflight_get_array(object, "links");
    (void)preflight_get_real(object, "seconds");
    json_object_put(object);
}

/* What is parsed is printed, and parsed again: to the same text. */
static void fuzz_schedule(const char *text)
{
    static char printed[PRINTED_MOST], again[PRINTED_MOST];
    struct twill_schedule schedule, copy;
    struct twill_error error = {0};
    if (test_schedule_parse(&schedule, text, &error) != TWILL_OK)
        return;
    size_t length = test_schedule_print(&schedule, printed, PRINTED_MOST);
    if (length < PRINTED_MOST) {
        fuzz_must(test_schedule_parse(&copy, printed, &error) == TWILL_OK);
        fuzz_must(test_schedule_print(&copy, again, PRINTED_MOST) == length);
        fuzz_must(memcmp(printed, again, length) == 0);
        twill_schedule_destroy(&copy);
    }
    twill_schedule_destroy(&schedule);
}

static void fuzz_tuning(const char *text)
{
    const struct twill_tuning_key here = {"GenuineIntel 6 143", 2u << 20, 2};
    struct twill_tuning *tuning = NULL;
    struct twill_error error = {0};
    (void)twill_tuning_is_for(text, &here);
    if (twill_tuning_create(&tuning, NULL, text, "file", &error) == TWILL_OK) {
        fuzz_must(twill_tuning_hash(tuning) != 0);
        twill_tuning_destroy(tuning);
    }
}

/* The corpus, and check_fuzz.sh, name parsers by their place here. */
static const struct {
    void (*text)(const char *text);
    void (*kind)(uint8_t kind, const char *text);
    void (*file)(const char *path);
} parsers[] = {
    {.kind = fuzz_contact},   {.text = fuzz_key, .file = fuzz_key_file},
    {.kind = fuzz_layout},    {.file = fuzz_list_file},
    {.text = fuzz_preflight}, {.text = fuzz_schedule},
    {.text = fuzz_tuning},
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[64];
    if (size < 2)
        return 0;
    size_t parser = data[0] % TWILL_ARRAY_LENGTH(parsers);
    bool kinds = parsers[parser].kind != NULL;
    char *text = fuzz_text(data + 1 + kinds, size - 1 - kinds);
    if (kinds)
        parsers[parser].kind(data[1], text);
    if (parsers[parser].text != NULL)
        parsers[parser].text(text);
    free(text);
    if (parsers[parser].file != NULL) {
        int fd = fuzz_file(data + 1, size - 1, path);
        parsers[parser].file(path);
        close(fd);
    }
    return 0;
}
