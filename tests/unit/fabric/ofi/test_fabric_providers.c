/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the ofi transport behaves alike on every libfabric provider. All cases run over each
 * provider of a list, between two processes; missing providers are skipped by name. The output ends
 * with a matrix, one line per provider. TEST_PROVIDER names one provider to run instead of the list
 * (TEST_ADDRESS: its rank's address); no doubles are loaded then. TEST_ROWS runs the rows whose
 * title contains it.
 *
 * A double is an external provider of tests/doubles over libfabric's tcp, with the limits of
 * hardware that is not here: it fails calls that the real provider would refuse, and reports that
 * on stderr. */
#include "tests/support/provider_cases.h"
#include "tests/support/unit.h"

#include <sys/stat.h>

#define PROVIDERS_ALARM_S 480 /* per case: a provider may hang inside a call */

static const struct provider providers[] = {
    {"tcp", "tcp", NULL, NULL, NULL, 16, "", false},
    {"tcp, IPv6", "tcp", "::1", NULL, NULL, 28, "an interface with ::1", false},
    {"net", "net", NULL, NULL, NULL, 16, "libfabric 1.17", false},
    {"sockets", "sockets", NULL, NULL, NULL, 16, "", false},
    {"udp;ofi_rxd", "udp", NULL, NULL, NULL, 16, "", true},
    {"shm", "shm", NULL, NULL, NULL, 0, "", true},
    {"verbs;ofi_rxm", "verbs", NULL, NULL, NULL, 0, "an RDMA device: see tests/system/vm/rxe.sh",
     false},
    {"efa", "efa", NULL, NULL, NULL, 32, "the hardware", false},
    {"psm2", "psm2", NULL, NULL, NULL, 16, "the hardware", false},
    {"opx", "opx", NULL, NULL, NULL, 0, "the hardware", false},
    {"cxi", "cxi", NULL, NULL, NULL, 8, "the hardware, libfabric 1.20 or later", false},
    {"gni", "gni", NULL, NULL, NULL, 48, "the hardware, libfabric up to 1.20, aprun", false},
#ifdef TEST_DOUBLES
    {"gni (double)", "gni", NULL, "gni", NULL, 48, "", false},
    {"gni (double), short messages", "gni", NULL, "gni", "TEST_DOUBLE_MAX_MESSAGE=65536", 48, "",
     false},
    {"gni (double), not by aprun", "gni", NULL, "gni", "ALPS_APP_PE=", 48, "aprun", false},
    {"cxi (double)", "cxi", NULL, "cxi", NULL, 8, "", false},
    {"cxi (double), registering", "cxi", NULL, "cxi", "TEST_DOUBLE_LOCAL=1", 8, "", false},
    {"psm2 (double)", "psm2", NULL, "psm2", NULL, 16, "", false},
    {"opx (double)", "opx", NULL, "opx", NULL, 8, "", false},
    {"efa (double)", "efa", NULL, "efa", NULL, 32, "", false},
    {"gni (double), returning twice", "gni", NULL, "gni", "TEST_DOUBLE_CANCEL=twice", 48, "",
     false},
    {"gni (double), failing first", "gni", NULL, "gni", "TEST_DOUBLE_CANCEL=error", 48, "", false},
    {"gni (double), returning late", "gni", NULL, "gni", "TEST_DOUBLE_CANCEL=late", 48, "", false},
    {"gni (double), returning none", "gni", NULL, "gni", "TEST_DOUBLE_CANCEL=never", 48, "", false},
    {"efa (double), long addresses", "efa", NULL, "efa", "TEST_DOUBLE_ADDRESS=256", 256, "", false},
#endif
};
#define PROVIDERS TWILL_ARRAY_LENGTH(providers)

static struct run runs[PROVIDERS];

/* --- the runs --------------------------------------------------------------------------------- */

/* Return whether the provider exists. Asked in a new process, as libfabric reads its environment
 * once. */
static void rank_probe(int rank, int size, twill_bootstrap *caller, void *user)
{
    const struct run *run = user;
    struct twill_test_end end;
    TWILL_CHECK(end_begin(&end, caller));
    if (run->address != NULL)
        snprintf(end.oob->address, sizeof(end.oob->address), "%s", run->address);
    end.params.provider = run->provider->name;
    end.params.interface = run->provider->interface;
    char text[256] = "";
    alarm(PROVIDERS_ALARM_S);
    twill_status status = twill_ofi_transport.preview(&end.params, text, sizeof(text), &end.error);
    run->outcome->absent = status != TWILL_OK;
    snprintf(run->outcome->why, sizeof(run->outcome->why), "%.*s", 255, end.error.message);
    end_close(&end);
}

static void rank_cases(int rank, int size, twill_bootstrap *caller, void *user)
{
    struct run *run = user;
    for (const struct provider_case *c = test_provider_cases; c->name != NULL; c++) {
        if (run->only == NULL ? c->alone || !test_provider_has(run->provider, c) : run->only != c)
            continue;
        if (rank == 0)
            snprintf(run->outcome->at, sizeof(run->outcome->at), "%s", c->name);
        alarm(PROVIDERS_ALARM_S);
        uint64_t started = twill_now();
        if (!test_provider_run(c, run, caller))
            return;
        if (rank == 0 && getenv("TEST_TIMES") != NULL)
            print_message("  %-30s %6.2f s\n", c->name, (double)(twill_now() - started) * 1e-9);
        if (rank == 0)
            run->outcome->cases++;
    }
    alarm(0);
}

/* Set the environment of the provider's processes. */
static void surround(const struct provider *p)
{
    char text[512];
    unsetenv("FI_PROVIDER_PATH");
    unsetenv("ALPS_APP_PE");
#ifdef TEST_DOUBLES
    if (p->doubled != NULL) {
        snprintf(text, sizeof(text), "%s/%s", TEST_DOUBLES, p->doubled);
        setenv("FI_PROVIDER_PATH", text, 1);
        setenv("ALPS_APP_PE", "0", 1);
    }
#endif
    if (p->settings != NULL) {
        snprintf(text, sizeof(text), "%s", p->settings);
        char *value = strchr(text, '=');
        *value++ = '\0';
        setenv(text, value, 1);
    }
}

static void clear(const struct provider *p)
{
    char text[512];
    snprintf(text, sizeof(text), "%s", p->settings == NULL ? "" : p->settings);
    text[strcspn(text, "=")] = '\0';
    if (text[0] != '\0')
        unsetenv(text);
}

/* The violations that doubles reported, one line each. */
static char refusals[] = "/tmp/twill-doubles-XXXXXX";

static off_t refused(void)
{
    struct stat file;
    return stat(refusals, &file) == 0 ? file.st_size : -1;
}

static void run_cases(struct run *run, const struct provider_case *only)
{
    for (size_t r = 0; r < TWILL_ARRAY_LENGTH(run->outcome->arrived); r++)
        atomic_store(&run->outcome->arrived[r], 0);
    run->only = only;
    twill_test_run_processes(only == NULL ? 2 : only->ranks, rank_cases, run);
}

static void test_provider(void **state)
{
    struct run *run = *state;
    uint64_t started = twill_now();
    off_t before = refused();
    surround(run->provider);
    twill_test_run_processes(1, rank_probe, run);
    if (run->provider->refused) {
        assert_true(run->outcome->absent);
        assert_non_null(strstr(run->outcome->why, "is not used: "));
    }
    /* A double exists, but not where its provider would refuse to work. */
    if (run->provider->doubled != NULL)
        assert_int_equal(run->outcome->absent, run->provider->needs[0] != '\0');
    if (run->outcome->absent) {
        clear(run->provider);
        skip();
    }
    run_cases(run, NULL);
    for (const struct provider_case *c = test_provider_cases; c->name != NULL; c++)
        if (c->alone && test_provider_has(run->provider, c))
            run_cases(run, c);
    clear(run->provider);
    if (refused() != before) {
        run->outcome->cases = 0;
        fail_msg("%s refused a call: see above", run->provider->title);
    }
    run->outcome->seconds = (double)(twill_now() - started) * 1e-9;
}

/* --- the matrix ------------------------------------------------------------------------------- */

static uint32_t cases_of(const struct provider *provider)
{
    uint32_t n = 0;
    for (const struct provider_case *c = test_provider_cases; c->name != NULL; c++)
        n += test_provider_has(provider, c) ? 1 : 0;
    return n;
}

static void print_line(const struct run *run)
{
    const struct outcome *o = run->outcome;
    const struct provider *p = run->provider;
    printf("matrix: %-30s ", p->title);
    if (p->refused && o->absent) {
        printf("refused: %s\n", o->why);
    } else if (o->absent) {
        printf("skipped: not here%s%s\n", p->needs[0] == '\0' ? "" : ", needs ", p->needs);
    } else if (o->cases != cases_of(p)) {
        printf("FAILED at: %s\n", o->at);
    } else {
        char most[40] = "of any size";
        if (o->max_message < SIZE_MAX / 2)
            snprintf(most, sizeof(most), "up to %zu B", o->max_message);
        int tag = o->tag_format == 0 ? 64 : 64 - __builtin_clzll(o->tag_format);
        printf("ran %u cases in %.1f s: %s%s, addresses of %zu B, tags of %d bits, inject %zu, "
               "messages %s, registration mode %#x\n",
               o->cases, o->seconds, o->name, p->doubled != NULL ? " (a double)" : "",
               o->address_bytes, tag, o->inject, most, (unsigned)o->mr_mode);
    }
}

int main(void)
{
    const char *only = getenv("TEST_PROVIDER"), *rows = getenv("TEST_ROWS");
    static struct provider named = {.needs = "the hardware"};
    struct CMUnitTest tests[PROVIDERS];
    setenv("IPATH_NO_BACKTRACE", "1",
           1); /* psm's library, which libfabric loads, replaces signal handlers */
    size_t n = 0;
    for (size_t i = 0; i < (only == NULL ? PROVIDERS : 1); i++) {
        const struct provider *p = only == NULL ? &providers[i] : &named;
        if (only != NULL)
            named.title = named.name = only;
        if (rows != NULL && strstr(p->title, rows) == NULL)
            continue;
        /* Ranks are processes of one thread: the thread sanitizer has little to see. */
        bool back = test_provider_way_back(p) != NULL;
        bool fewer =
            TEST_FEWER && (TEST_TSAN ? back || strcmp(p->name, "gni") != 0 : i % 2 != 0 && !back);
        if (only == NULL && rows == NULL && fewer)
            continue;
#if TEST_ASAN
        if (strcmp(p->name, "net") == 0) /* libfabric 1.17's leaks at fi_close */
            continue;
#endif
        void *shared = mmap(NULL, sizeof(struct outcome), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (shared == MAP_FAILED)
            return 1;
        runs[n] = (struct run){.provider = p, .address = getenv("TEST_ADDRESS"), .outcome = shared};
        tests[n] = (struct CMUnitTest){
            .name = p->title, .test_func = test_provider, .initial_state = &runs[n]};
        n++;
    }
    int file = mkstemp(refusals);
    if (file < 0 || setenv("TEST_DOUBLE_LOG", refusals, 1) != 0)
        return 1;
    close(file);
    int failed = _cmocka_run_group_tests("providers", tests, n, NULL, NULL);
    for (size_t i = 0; i < n; i++)
        print_line(&runs[i]);
    (void)unlink(refusals);
    return failed;
}
