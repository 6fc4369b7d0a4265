/* SPDX-License-Identifier: Apache-2.0 */
/* Sets up twill over the MPI below in MPI_Init, and tears it down in MPI_Finalize, in whatever
 * language. Tear-down is the delete callback of an attribute of MPI_COMM_SELF. MPI calls these in
 * reverse order of setting, so collectives still work in the program's own callbacks. */
#include "lib/base/rest.h"
#include "lib/mpi/detect/below.h"
#include "lib/mpi/mpi_call.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NO_CALL(name, lower) [TWILL_MPI_##name] = &twill_mpi.comms.no_call,
struct twill_mpi twill_mpi = {
    .shadow = MPI_COMM_NULL,
    .self = {.comm = MPI_COMM_NULL, .lock = PTHREAD_MUTEX_INITIALIZER},
    .off = "MPI_Init has not been called",
    .comms = {.making = PTHREAD_MUTEX_INITIALIZER,
              .lock = PTHREAD_MUTEX_INITIALIZER,
              .keyval = MPI_KEYVAL_INVALID,
              .no_call = {.next = &twill_mpi.comms.no_call, .recv = &twill_mpi.comms.no_call},
              .quick = {MPI_COMM_NULL, &twill_mpi.requests.wrapped},
              .quick_before = {MPI_COMM_NULL, &twill_mpi.requests.wrapped}},
    .windows = {.keyval = MPI_KEYVAL_INVALID},
    .requests = {.lock = PTHREAD_MUTEX_INITIALIZER,
                 .wrapped = {.handle = MPI_COMM_NULL,
                             .scratch = {.calls = {.latest = {TWILL_MPI_KINDS(NO_CALL)}}}}},
    .errors = {.lock = PTHREAD_MUTEX_INITIALIZER},
    .operations = {.lock = PTHREAD_MUTEX_INITIALIZER},
    .types = {.lock = PTHREAD_MUTEX_INITIALIZER, .keyval = MPI_KEYVAL_INVALID}};

#if defined(TWILL_MPI_ALONE)

#if defined(OPEN_MPI)
#define OWN_KIND TWILL_BELOW_OPENMPI
#elif defined(MPI_ABI_VERSION)
#define OWN_KIND TWILL_BELOW_ABI
#else
#define OWN_KIND TWILL_BELOW_MPICH
#endif

/* End the process if its MPI is not the kind that this library was compiled for. Handles differ, so
 * no call could be passed on. A program that opens its MPI at run time, such as Python's mpi4py,
 * has it in local scope. Make it visible to this library. */
static void check_program(const void *caller)
{
    struct twill_below below;
    if (twill_below_differs(OWN_KIND, &below)) {
        fprintf(stderr, "libtwill-mpi-%s.so: this program has another MPI (%s, %s)\n",
                TWILL_MPI_VARIANT, below.version, below.path);
        _exit(1);
    }
    twill_below_find(caller, &below);
    twill_below_publish(&below);
}

#else

/* Do nothing, as the library that opened this one (detect/) has found the MPI. */
static void check_program(const void *caller)
{
    (void)caller;
}

#endif

/* Wait for a nonblocking collective of set-up, and return MPI's code. `code` is the result of the
 * call that started it, and if that is an error, it is returned at once. Yields while it waits,
 * where MPIs would spin. */
static int finish_setup(int code, MPI_Request *request)
{
    int done = 0;
    while (code == MPI_SUCCESS && !done) {
        code = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done)
            twill_yield();
    }
    return code;
}

void twill_mpi_most(MPI_Comm comm, int *numbers, int count)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = PMPI_Iallreduce(MPI_IN_PLACE, numbers, count, MPI_INT, MPI_MAX, comm, &request);
    if (finish_setup(code, &request) != MPI_SUCCESS)
        for (int i = 0; i < count; i++)
            numbers[i] = INT_MAX;
}

uint64_t twill_mpi_common(MPI_Comm comm, uint64_t mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    uint64_t common = 0;
    int code = PMPI_Iallreduce(&mine, &common, 1, MPI_UINT64_T, MPI_BAND, comm, &request);
    return finish_setup(code, &request) == MPI_SUCCESS ? common : 0;
}

bool twill_mpi_oob_open(struct twill_mpi_oob *oob, MPI_Comm comm)
{
    int size = 0;
    PMPI_Comm_size(comm, &size);
    *oob = (struct twill_mpi_oob){.comm = comm, .size = size};
    oob->frame = malloc((size_t)size * sizeof(*oob->frame));
    return oob->frame != NULL;
}

void twill_mpi_oob_close(struct twill_mpi_oob *oob)
{
    free(oob->frame);
}

/* Exchange one frame. Returns true, with all in oob->frame, unless a rank or the MPI has failed. */
static bool oob_round(struct twill_mpi_oob *oob, const struct twill_mpi_frame *mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = PMPI_Iallgather(mine, sizeof(*mine), MPI_BYTE, oob->frame, sizeof(*mine), MPI_BYTE,
                               oob->comm, &request);
    oob->failed = finish_setup(code, &request) != MPI_SUCCESS;
    for (int r = 0; !oob->failed && r < oob->size; r++)
        oob->failed = oob->frame[r].failed != 0;
    return !oob->failed;
}

int twill_mpi_exchange(void *user, const void *mine, void *all, size_t bytes)
{
    struct twill_mpi_oob *oob = user;
    struct twill_mpi_frame frame = {.failed = false};
    for (size_t done = 0, some; done < bytes; done += some) {
        some = twill_min(bytes - done, sizeof(frame.text));
        memcpy(frame.text, (const char *)mine + done, some);
        if (oob->failed || !oob_round(oob, &frame))
            return 1;
        for (size_t r = 0; r < (size_t)oob->size; r++)
            memcpy((char *)all + r * bytes + done, oob->frame[r].text, some);
    }
    return 0;
}

bool twill_mpi_agree(struct twill_mpi_oob *oob, bool fine)
{
    return !oob->failed && oob_round(oob, &(struct twill_mpi_frame){.failed = !fine});
}

void twill_mpi_share_text(char *text, size_t bytes)
{
    int rank = 0, size = 0, first = 0;
    PMPI_Comm_rank(twill_mpi.shadow, &rank);
    PMPI_Comm_size(twill_mpi.shadow, &size);
    int mine = text[0] != '\0' ? rank : size;
    PMPI_Allreduce(&mine, &first, 1, MPI_INT, MPI_MIN, twill_mpi.shadow);
    if (first < size)
        PMPI_Bcast(text, (int)bytes, MPI_CHAR, first, twill_mpi.shadow);
}

/* Let the MPI's messages make progress. twill calls this while it waits. */
static void on_idle(void *user)
{
    (void)user;
    twill_mpi_progress();
}

/* Set list[] to strings "NAME=value", with NULL after the last. They change TWILL_TIMEOUT and
 * TWILL_PROGRESS, unless the user has set them in the environment. MPI programs may keep other
 * ranks waiting for any time, and expect requests to progress in any MPI call. */
static void list_settings(const char *list[3])
{
    if (getenv("TWILL_TIMEOUT") == NULL)
        *list++ = "TWILL_TIMEOUT=1000000";
    if (getenv("TWILL_PROGRESS") == NULL)
        *list++ = "TWILL_PROGRESS=late";
    *list = NULL;
}

/* Create the context and twill's world on all ranks of oob->comm, and add the first communicators
 * to the table. While twill waits, the context calls on_idle(). Returns TWILL_OK or the first
 * failure. */
static twill_status context_open(struct twill_mpi_oob *oob)
{
    twill_bootstrap bootstrap = {.exchange = twill_mpi_exchange, .user = oob};
    const char *settings[3];
    list_settings(settings);
    PMPI_Comm_rank(oob->comm, &bootstrap.rank);
    PMPI_Comm_size(oob->comm, &bootstrap.size);
    twill_status status = twill_context_create(&twill_mpi.context, &bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&twill_mpi.world, twill_mpi.context);
    if (status == TWILL_OK)
        status = twill_context_idle(twill_mpi.context, on_idle, NULL);
    return status == TWILL_OK && !twill_mpi_comms_open() ? TWILL_ERR_MEMORY : status;
}

/* Undo this rank's set-up. Store the cause from the lowest rank that found one in twill_mpi.off,
 * which rank 0 prints. Collective. `status` is this rank's failure, or TWILL_OK if only others have
 * one. If `told`, another rank has reported a failure, which caused this rank's. */
static void give_up_setup(twill_status status, bool told)
{
    int rank = -1;
    const char *message = twill_mpi.context != NULL ? twill_context_message(twill_mpi.context) : "";
    PMPI_Comm_rank(twill_mpi.shadow, &rank);
    if (status != TWILL_OK && !told)
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "rank %d: %s", rank,
                 *message != '\0' ? message : twill_strerror(status));
    twill_mpi_share_text(twill_mpi.off, sizeof(twill_mpi.off));
    if (twill_mpi.off[0] == '\0')
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "ranks could not agree");
    if (rank == 0)
        twill_mpi_say("all calls go to the MPI below: %s", twill_mpi.off);
    twill_mpi_comms_forget();
    twill_comm_leave(twill_mpi.world); /* no rank has used it */
    twill_mpi.world = NULL;
    twill_context_destroy(twill_mpi.context);
    twill_mpi.context = NULL;
}

/* Set up twill on all ranks, or on none. From then on collectives are taken. Collective. */
static void open_world(void)
{
    struct twill_mpi_oob oob;
    twill_status status = TWILL_ERR_MEMORY;
    bool fine = twill_mpi_oob_open(&oob, twill_mpi.shadow) &&
                twill_mpi.types.keyval != MPI_KEYVAL_INVALID,
         told = false;
    int lacks = !fine;
    twill_mpi.off[0] = '\0';
    twill_mpi_most(twill_mpi.shadow, &lacks, 1);
    if (!lacks) {
        status = context_open(&oob);
        told = oob.failed; /* before this rank's own failure is exchanged as well */
        fine = twill_mpi_agree(&oob, status == TWILL_OK);
    } else {
        status = fine ? TWILL_OK : status;
        fine = false;
    }
    if (fine)
        atomic_store(&twill_mpi.ready, true);
    else
        give_up_setup(status, told);
    twill_mpi_oob_close(&oob);
}

/* End twill in MPI_Finalize(), which calls this as delete callback of an attribute. Waits for all
 * ranks, ends requests and communicators, and writes the report. Destroys the context unless memory
 * or communicators are still in use. Does nothing in a forked child. Returns MPI_SUCCESS. */
static int world_freed(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    bool gone = true;
    if (twill_mpi.forked)
        return MPI_SUCCESS;
    if (atomic_exchange(&twill_mpi.ready, false)) {
        PMPI_Barrier(twill_mpi.shadow); /* no rank is in a call any more */
        twill_mpi_refusals_read();
        twill_mpi_requests_end();
        gone = twill_mpi_comms_close();
        twill_mpi_windows_close();
    }
    twill_mpi_report();
    /* Memory that the program still holds must stay mapped. The process ends soon. */
    if (gone && twill_mpi.world != NULL && atomic_load(&twill_mpi.memory.out) == 0) {
        twill_context_destroy(twill_mpi.context);
        twill_mpi.context = NULL;
    }
    PMPI_Comm_free(&twill_mpi.self.comm);
    PMPI_Comm_free(&twill_mpi.shadow);
    return MPI_SUCCESS;
}

/* Agree with all ranks on settings and levels of threads, which may differ, and store them in
 * twill_mpi. twill is off if one rank turned it off, and one rank can ask for a report. Returns
 * false if twill is off and no rank wants a report, or if the MPI fails. Collective. */
static bool agree_on_settings(void)
{
    const char *take = getenv("TWILL_MPI"), *report = getenv("TWILL_MPI_REPORT");
    int mine[] = {take == NULL || strcmp(take, "0") != 0,
                  report == NULL || *report == '\0' || strcmp(report, "0") == 0,
                  twill_mpi.multiple};
    int all[] = {0, 0, 0};
    if (PMPI_Allreduce(mine, all, 3, MPI_INT, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS)
        return false;
    twill_mpi.reports = all[1] == 0;
    twill_mpi.all_multiple = all[2] != 0;
    snprintf(twill_mpi.off, sizeof(twill_mpi.off), "%s", all[0] ? "" : "TWILL_MPI=0");
    return all[0] || twill_mpi.reports;
}

/* Note in a forked child that all MPI calls must fail there. */
static void after_fork_in_child(void)
{
    twill_mpi.forked = true;
    twill_mpi_quick_off();
    atomic_store(&twill_mpi.ready, false);
}

/* Start the library once the MPI is initialised. With one rank or TWILL_MPI=0, twill takes no
 * calls, and only the report is set up. After a failure the MPI runs the program alone. */
static void start_library(void)
{
    int size = 0, level = MPI_THREAD_SINGLE, keyval = MPI_KEYVAL_INVALID;
    const char *log = getenv("TWILL_LOG");
    PMPI_Query_thread(&level);
    twill_mpi.multiple = level == MPI_THREAD_MULTIPLE;
    twill_mpi.silent = log != NULL && strcmp(log, "none") == 0;
    twill_mpi.start.ticks = twill_ticks();
    twill_mpi.start.ns = twill_now();
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!agree_on_settings() || PMPI_Comm_dup(MPI_COMM_WORLD, &twill_mpi.shadow) != MPI_SUCCESS ||
        PMPI_Comm_dup(MPI_COMM_SELF, &twill_mpi.self.comm) != MPI_SUCCESS)
        return;
    PMPI_Comm_set_errhandler(twill_mpi.shadow, MPI_ERRORS_RETURN);
    PMPI_Comm_set_errhandler(twill_mpi.self.comm, MPI_ERRORS_RETURN);
    twill_mpi_checks_find();
    twill_mpi.has_iagree = twill_mpi_below("PMPIX_Comm_iagree") != NULL;
    twill_mpi_windows_open();
    twill_mpi_types_open(); /* a report needs bytes even with one rank or with twill off */
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, world_freed, &keyval, NULL);
    PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    PMPI_Comm_free_keyval(&keyval);
    if (twill_mpi.off[0] != '\0')
        return;
    (void)pthread_atfork(NULL, NULL, after_fork_in_child);
    if (size > 1)
        open_world();
    else if (twill_mpi_comms_open())
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "MPI_COMM_WORLD has one rank");
}

/* Initialise the MPI, then twill, whose failure is no failure of the call. Returns MPI's code. */
int MPI_Init(int *argc, char ***argv)
{
    check_program(__builtin_return_address(0));
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        start_library();
    return code;
}

/* Initialise the MPI with threads, then twill, whose failure is no failure of the call. Returns
 * MPI's code. */
int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    check_program(__builtin_return_address(0));
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS)
        start_library();
    return code;
}

/* Pass the call on, as sessions are the MPI's. Returns MPI_ERR_UNSUPPORTED_OPERATION if the MPI
 * lacks them. The program may initialise nothing else, so its MPI is checked here. */
int MPI_Session_init(MPI_Info info, MPI_Errhandler errhandler, twill_mpi_session *session)
{
    check_program(__builtin_return_address(0));
    int (*below)(MPI_Info, MPI_Errhandler, twill_mpi_session *) = (int (*)(
        MPI_Info, MPI_Errhandler, twill_mpi_session *))twill_mpi_below("PMPI_Session_init");
    return below != NULL ? below(info, errhandler, session) : MPI_ERR_UNSUPPORTED_OPERATION;
}
