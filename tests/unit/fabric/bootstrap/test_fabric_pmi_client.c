/* SPDX-License-Identifier: Apache-2.0 */
/* The PMI-1 client against a scripted server: answers that are right, reordered, split, late,
 * missing or damaged; and whole jobs of threads over both ways to connect to the server. */
#include "fabric/bootstrap/frames.h"
#include "fabric/bootstrap/pmi_client.h"
#include "tests/support/job_ranks.h"
#include "tests/support/unit.h"

/* --- a script -------------------------------------------------------------------------------- */

/* Sent in turn, one for each received line. NULL: close. */
struct script {
    int fd;
    bool torn; /* a byte at a time */
    const char *answers[12];
    char received[12][1100];
    unsigned lines;
};

static bool receive_line(int fd, char *line, size_t bytes)
{
    size_t used = 0;
    while (used + 1 < bytes && recv(fd, line + used, 1, 0) == 1 && line[used] != '\n')
        used++;
    bool whole = used + 1 < bytes && line[used] == '\n';
    line[used] = '\0';
    return whole;
}

static void *play(void *of)
{
    struct script *script = of;
    while (script->lines < TWILL_ARRAY_LENGTH(script->answers) &&
           receive_line(script->fd, script->received[script->lines], sizeof(script->received[0]))) {
        const char *answer = script->answers[script->lines++];
        if (!answer)
            break;
        for (size_t at = 0, step; at < strlen(answer); at += step) {
            step = script->torn ? 1 : strlen(answer);
            if (send(script->fd, answer + at, step, MSG_NOSIGNAL) < 0)
                break;
        }
    }
    close(script->fd);
    return NULL;
}

#define INIT  "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n"
#define MAXES "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n"
#define KVS   "cmd=my_kvsname kvsname=kvs_1\n"

struct talk {
    const char *name;
    struct script script;
    uint64_t timeout_ns;
    twill_status status;
    const char *says;
};

/* Open, put, barrier, get, close: until one fails. */
static twill_status converse(struct twill_pmi *pmi, char *value, size_t bytes,
                             struct twill_error *error)
{
    twill_status status = twill_pmi_open(pmi, pmi->fd, NULL, NULL, error);
    if (status == TWILL_OK)
        status = twill_pmi_put(pmi, "k", "secret-value", error);
    if (status == TWILL_OK)
        status = twill_pmi_barrier(pmi, error);
    if (status == TWILL_OK)
        status = twill_pmi_get(pmi, "k", value, bytes, error);
    twill_pmi_close(pmi);
    return status;
}

/* Converse with a thread that plays the script. */
static twill_status converse_with(struct script *script, struct twill_pmi *pmi, char *value,
                                  size_t bytes, struct twill_error *error)
{
    pthread_t server;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    pmi->fd = ends[0];
    script->fd = ends[1];
    assert_int_equal(pthread_create(&server, NULL, play, script), 0);
    twill_status status = converse(pmi, value, bytes, error);
    close(ends[0]);
    pthread_join(server, NULL);
    return status;
}

static void run_script(const struct talk *talk, char *value, size_t bytes)
{
    struct script script = talk->script;
    struct twill_error error = {0};
    struct twill_pmi pmi = {.rank = "3", .deadline = twill_wire_deadline(talk->timeout_ns)};
    twill_status status = converse_with(&script, &pmi, value, bytes, &error);
    if (status != talk->status || (talk->says && !strstr(error.message, talk->says)))
        fail_msg("%s: status %d, \"%s\"", talk->name, status, error.message);
    if (strstr(error.message, "secret"))
        fail_msg("%s: the sentence repeats a value: %s", talk->name, error.message);
    if (status == TWILL_OK) {
        assert_string_equal(script.received[0], "cmd=init pmi_version=1 pmi_subversion=1");
        assert_string_equal(script.received[3], "cmd=put kvsname=kvs_1 key=k value=secret-value");
        assert_string_equal(script.received[5], "cmd=get kvsname=kvs_1 key=k");
        assert_string_equal(script.received[6], "cmd=finalize");
    }
}

#define FINE   TWILL_TEST_PATIENCE, TWILL_OK, NULL
#define BAD(t) TWILL_TEST_PATIENCE, TWILL_ERR_BOOTSTRAP, t

static const struct talk talks[] = {
    {"Hydra", /* as MPICH 4.0.2's answers */
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=0 msg=success\n", "cmd=barrier_out\n",
                  "cmd=get_result rc=0 msg=success value=v\n", "cmd=finalize_ack\n"}},
     FINE},
    {"Slurm, split", /* as 22.05's, rc first */
     {.torn = true,
      .answers = {"cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
                  "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
                  "cmd=my_kvsname rc=0 kvsname=kvs_1\n", "cmd=put_result rc=0\n",
                  "cmd=barrier_out rc=0\n", "cmd=get_result rc=0 value=v\n",
                  "cmd=finalize_ack rc=0\n"}},
     FINE},
    {"no finalize_ack is no matter",
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=0\n", "cmd=barrier_out\n",
                  "cmd=get_result rc=0 value=v\n", NULL}},
     FINE},
    {"closed", {.answers = {NULL}}, BAD("closed the connection before it answered \"cmd=init\"")},
    {"closed in the middle of a line",
     {.answers = {INIT, "cmd=maxes vallen_", NULL}},
     TWILL_TEST_SOON,
     TWILL_ERR_TIMEOUT,
     "cmd=get_maxes"},
    {"closed later", {.answers = {INIT, MAXES, KVS, NULL}}, BAD("before it answered \"cmd=put\"")},
    {"refused", {.answers = {"cmd=response_to_init rc=-1\n"}}, BAD("rc=-1")},
    {"something else", {.answers = {"HTTP/1.1 400 Bad Request\r\n"}}, BAD("400 Bad Request?")},
    {"another answer", {.answers = {INIT, KVS}}, BAD("\"cmd=get_maxes\" with \"cmd=my_kvs")},
    {"no maximum", {.answers = {INIT, "cmd=maxes vallen_max=-3\n"}}, BAD("vallen_max=-3")},
    {"no name", {.answers = {INIT, MAXES, "cmd=my_kvsname kvsname=\n"}}, BAD("kvsname=")},
    {"not put",
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=-1 msg=full\n"}},
     BAD("msg=full")},
    {"a barrier that fails",
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=0\n", "cmd=barrier_out rc=-1\n"}},
     BAD("barrier_out rc=-1")},
    {"no value",
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=0\n", "cmd=barrier_out\n",
                  "cmd=get_result rc=0\n"}},
     BAD("with no value")},
    {"no other rank enters the barrier",
     {.answers = {INIT, MAXES, KVS, "cmd=put_result rc=0\n", ""}},
     TWILL_TEST_SOON,
     TWILL_ERR_TIMEOUT,
     "some rank has not called twill_init"},
    {"no answer", {.answers = {""}}, TWILL_TEST_SECOND / 10, TWILL_ERR_TIMEOUT, "\"cmd=init"},
};

TWILL_TEST(scripts)
{
    char value[64];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(talks); i++) {
        value[0] = '\0';
        run_script(&talks[i], value, sizeof(value));
        if (talks[i].status == TWILL_OK)
            assert_string_equal(value, "v");
    }
}

TWILL_TEST(long_lines)
{
    static char line[3000] = "cmd=response_to_init rc=0 x=";
    static char kvs[400] = "cmd=my_kvsname kvsname=";
    char value[64];
    memset(line + strlen(line), 'x', sizeof(line) - strlen(line) - 1);
    run_script(&(struct talk){"endless", {.answers = {line}}, BAD("a line that does not end")},
               value, sizeof(value));
    memset(kvs + strlen(kvs), 'k', sizeof(kvs) - strlen(kvs) - 2);
    kvs[sizeof(kvs) - 2] = '\n';
    run_script(
        &(struct talk){"a name of 376", {.answers = {INIT, MAXES, kvs}}, BAD("get_my_kvsname")},
        value, sizeof(value));
}

/* --- jobs ------------------------------------------------------------------------------------ */

#define STACK_SEARCHED ((size_t)32768)
#define KEY_PART       12
#define MASK           0x5a

/* A process manager: a thread for each rank, one store. */
struct manager {
    pthread_mutex_t lock;
    pthread_cond_t all;
    int size, arrived, port, listener;
    char value[1024]; /* of the only key */
    const char *mapping;
};
#define NEW_MANAGER .lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER
struct seat {
    struct manager *manager;
    int fd, rank;
    pthread_t thread;
};

static void reply(struct seat *seat, const char *line, char *answer, size_t bytes)
{
    struct manager *m = seat->manager;
    const char *value;
    if (strstr(line, "cmd=init "))
        snprintf(answer, bytes, INIT);
    else if (strstr(line, "cmd=initack"))
        snprintf(answer, bytes, "cmd=initack\ncmd=set size=%d\ncmd=set rank=%d\ncmd=set debug=0\n",
                 m->size, atoi(strstr(line, "pmiid=") + 6));
    else if (strstr(line, "get_maxes"))
        snprintf(answer, bytes, MAXES);
    else if (strstr(line, "get_my_kvsname"))
        snprintf(answer, bytes, KVS);
    else if (strstr(line, "cmd=put") && (value = strstr(line, "value=")))
        snprintf(answer, bytes, "cmd=put_result rc=%d\n",
                 snprintf(m->value, sizeof(m->value), "%s", value + 6) > 0 ? 0 : -1);
    else if (strstr(line, "PMI_process_mapping"))
        snprintf(answer, bytes,
                 m->mapping ? "cmd=get_result rc=0 value=%s\n"
                            : "cmd=get_result rc=-1 value=unknown\n",
                 m->mapping);
    else if (strstr(line, "cmd=get"))
        snprintf(answer, bytes, "cmd=get_result rc=0 msg=success value=%s\n", m->value);
    else
        snprintf(answer, bytes, "cmd=finalize_ack\n");
}

static void *serve(void *of)
{
    struct seat *seat = of;
    struct manager *m = seat->manager;
    char line[TWILL_PMI_LINE + 2], answer[1400];
    while (receive_line(seat->fd, line, sizeof(line))) {
        pthread_mutex_lock(&m->lock);
        if (strcmp(line, "cmd=barrier_in") == 0) {
            if (++m->arrived == m->size)
                pthread_cond_broadcast(&m->all);
            while (m->arrived < m->size)
                pthread_cond_wait(&m->all, &m->lock);
            snprintf(answer, sizeof(answer), "cmd=barrier_out\n");
        } else {
            reply(seat, line, answer, sizeof(answer));
        }
        pthread_mutex_unlock(&m->lock);
        (void)!send(seat->fd, answer, strlen(answer), MSG_NOSIGNAL);
    }
    close(seat->fd);
    return NULL;
}

static struct seat *sit(struct manager *m, int fd, int rank)
{
    struct seat *seat = calloc(1, sizeof(*seat));
    *seat = (struct seat){.manager = m, .fd = fd, .rank = rank};
    if (pthread_create(&seat->thread, NULL, serve, seat) != 0)
        abort();
    return seat;
}

/* Copy what calls have left below the caller's frame, masked, so that the copy is not found. */
static __attribute__((noinline, no_sanitize("address", "thread"))) void
copy_stack(unsigned char to[STACK_SEARCHED])
{
    const volatile unsigned char *end = __builtin_frame_address(0);
    for (size_t i = 0; i < STACK_SEARCHED; i++)
        to[i] = end[i - STACK_SEARCHED] ^ MASK;
}

/* Count parts of the key of a contact, twill1,PORT,KEY,ADDRESS, as text or as bytes. */
static unsigned count_keys(const unsigned char *copy, const char *contact)
{
    const char *text = strchr(strchr(contact, ',') + 1, ',') + 1;
    unsigned char masked[2][KEY_PART];
    unsigned found = 0, value = 0;
    for (size_t i = 0; i < KEY_PART; i++) {
        if (sscanf(text + 2 * i, "%2x", &value) != 1)
            return 1; /* it has no key */
        masked[0][i] = (unsigned char)text[i] ^ MASK;
        masked[1][i] = (unsigned char)(value ^ MASK);
    }
    for (size_t i = 0; i + KEY_PART <= STACK_SEARCHED; i++)
        found += memcmp(copy + i, masked[0], KEY_PART) == 0 ||
                 memcmp(copy + i, masked[1], KEY_PART) == 0;
    return found;
}

/* A rank as Hydra would start it; with PMI_PORT only the manager gives rank and size. */
static void rank_by_pmi(int rank, int size, twill_bootstrap *unused, void *user)
{
    struct manager *m = user;
    struct twill_error error = {0};
    struct twill_oob *oob;
    char fd[32], number[32], count[32], port[32], id[32];
    int ends[2] = {-1, -1};
    struct seat *seat = NULL;
    if (m->port == 0) {
        TWILL_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0);
        seat = sit(m, ends[1], rank);
    }
    snprintf(fd, sizeof(fd), "PMI_FD=%d", ends[0]);
    snprintf(number, sizeof(number), "PMI_RANK=%d", rank);
    snprintf(count, sizeof(count), "PMI_SIZE=%d", size);
    snprintf(port, sizeof(port), "PMI_PORT=127.0.0.1:%d", m->port);
    snprintf(id, sizeof(id), "PMI_ID=%d", rank);
    const char *inherited[] = {fd, number, count, NULL}, *dialled[] = {port, id, NULL};
    struct twill_bootstrap_params params = {.environment = m->port ? dialled : inherited,
                                            .timeout_ns = TWILL_TEST_PATIENCE};
    unsigned char *copy = calloc(1, STACK_SEARCHED);
    TWILL_CHECK_OK(&error, twill_bootstrap_open(&oob, &params, &error));
    copy_stack(copy);
    TWILL_CHECK(TEST_SLOW || count_keys(copy, m->value) == 0);
    free(copy);
    TWILL_CHECK(oob->rank == rank && oob->size == size);
    TWILL_CHECK(strstr(oob->how, m->port ? "PMI_PORT" : "PMI_FD") != NULL);
    (void)twill_test_gather(oob, 1000, 1);
    twill_oob_close(oob);
    if (seat) {
        close(ends[0]);
        pthread_join(seat->thread, NULL);
        free(seat);
    }
}

/* Serves PMI_PORT: every connection is a rank's. */
static void *receive(void *of)
{
    struct manager *m = of;
    struct seat *seats[16];
    for (int i = 0; i < m->size; i++) {
        struct pollfd one = {.fd = m->listener, .events = POLLIN};
        (void)twill_wire_poll(&one, 1, twill_wire_deadline(TWILL_TEST_PATIENCE));
        seats[i] = sit(m, accept(m->listener, NULL, NULL), i);
    }
    for (int i = 0; i < m->size; i++) {
        pthread_join(seats[i]->thread, NULL);
        free(seats[i]);
    }
    return NULL;
}

TWILL_TEST(jobs)
{
    static const char *const mappings[] = {"(vector,(0,1,4))", "(vector,(0,1,2),(0,1,2))", NULL,
                                           "(vector,(0,2,2))"};
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(mappings); i++)
        for (int size = 1; size <= 4; size += 3) {
            struct manager m = {NEW_MANAGER, .size = size, .mapping = mappings[i]};
            twill_test_run_ranks(size, rank_by_pmi, &m);
            /* If all ranks are on one host, rank 0 may only listen there. */
            assert_int_equal(strstr(m.value, ",127.0.0.1") != NULL, i < 2);
        }
}

TWILL_TEST(dialled)
{
    struct manager m = {NEW_MANAGER, .size = 4, .mapping = "(vector,(0,1,4))"};
    pthread_t thread;
    char port[8];
    m.listener = twill_test_listen("127.0.0.1", port);
    m.port = atoi(port);
    assert_int_equal(pthread_create(&thread, NULL, receive, &m), 0);
    twill_test_run_ranks(4, rank_by_pmi, &m);
    pthread_join(thread, NULL);
    close(m.listener);
}

/* --- a program with an MPI ------------------------------------------------------------------- */

static int mpi_is_there;
__attribute__((visibility("default"))) int MPI_Initialized(int *flag);
int MPI_Initialized(int *flag) /* a double: twill finds it by name, as it would a real one */
{
    *flag = mpi_is_there;
    return 0;
}

/* MPI owns the connection then: no byte may be sent. */
TWILL_TEST(used_by_mpi)
{
    char fd[32], byte;
    const char *environment[] = {fd, "PMI_RANK=0", "PMI_SIZE=2", NULL};
    struct twill_bootstrap_params params = {.environment = environment,
                                            .timeout_ns = TWILL_TEST_SECOND};
    struct twill_error error = {0};
    struct twill_oob *oob;
    int ends[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    snprintf(fd, sizeof(fd), "PMI_FD=%d", ends[0]);
    mpi_is_there = 1;
    assert_int_equal(twill_bootstrap_open(&oob, &params, &error), TWILL_ERR_BOOTSTRAP);
    mpi_is_there = 0;
    assert_non_null(strstr(error.message, "MPI_Init ran before"));
    assert_int_equal(recv(ends[1], &byte, 1, MSG_DONTWAIT), -1);
    close(ends[0]);
    close(ends[1]);
}
