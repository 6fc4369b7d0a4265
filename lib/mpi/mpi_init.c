/* SPDX-License-Identifier: Apache-2.0 */
/* Start and end: twill's context over the MPI below, from MPI_Init to MPI_Finalize. The end hangs
 * from an attribute of MPI_COMM_SELF: what was set first is deleted last, so whatever a program
 * does in its own such callbacks still finds its collectives, and it does not matter who finalizes.
 */
#include "lib/mpi/shim.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct twill_mpi twill_mpi = {.shadow = MPI_COMM_NULL,
                              .off = "MPI_Init has not been called",
                              .comms = {.making = PTHREAD_MUTEX_INITIALIZER,
                                        .lock = PTHREAD_MUTEX_INITIALIZER,
                                        .keyval = MPI_KEYVAL_INVALID},
                              .windows = {.keyval = MPI_KEYVAL_INVALID},
                              .requests = {.lock = PTHREAD_MUTEX_INITIALIZER},
                              .self_lock = PTHREAD_MUTEX_INITIALIZER,
                              .errors_lock = PTHREAD_MUTEX_INITIALIZER,
                              .operations = {.lock = PTHREAD_MUTEX_INITIALIZER},
                              .types = {.lock = PTHREAD_MUTEX_INITIALIZER}};

/* What MPIs call themselves whose handles are those that this library was compiled for: MPICH's are
 * those of all that go by its ABI. */
static const char *const fitting[] = {
#if defined(OPEN_MPI)
    "Open MPI",
#else
    "MPICH",
    "Intel(R) MPI",
    "MVAPICH",
    "ParaStation MPI",
#endif
};

/* What this library was compiled for is in every handle: with another MPI below nothing can be
 * passed on. */
static void check_variant(void)
{
    char version[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    PMPI_Get_library_version(version, &length);
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(fitting); i++)
        if (strstr(version, fitting[i]) != NULL)
            return;
    fprintf(stderr,
            "libtwill-mpi-%s.so: the MPI below is another one (%.*s): preload the library built "
            "for it\n",
            TWILL_MPI_VARIANT, (int)strcspn(version, ",\n"), version);
    _exit(1);
}

/* A name of the other MPI's interface, and what to preload for its programs. */
#if defined(OPEN_MPI)
#define OTHER_SYMBOL  "MPIR_Dup_fn"
#define OTHER_VARIANT "mpich"
#else
#define OTHER_SYMBOL  "ompi_mpi_comm_world"
#define OTHER_VARIANT "openmpi"
#endif

/* This library brings its own MPI with it. A program that opens its MPI at run time, as Python's
 * mpi4py, is served by that one then, with handles of the other: so the other one must not be
 * loaded, in whatever scope. */
static void check_program(void)
{
    void *self = dlopen(NULL, RTLD_LAZY);
    struct link_map *map = NULL;
    if (self == NULL || dlinfo(self, RTLD_DI_LINKMAP, &map) != 0)
        map = NULL;
    for (; map != NULL; map = map->l_next) {
        void *object = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        bool other = object != NULL && dlsym(object, OTHER_SYMBOL) != NULL;
        if (object != NULL)
            dlclose(object);
        if (!other)
            continue;
        fprintf(stderr,
                "libtwill-mpi-%s.so: this program has another MPI (%s): preload "
                "libtwill-mpi-%s.so\n",
                TWILL_MPI_VARIANT, *map->l_name != '\0' ? map->l_name : "linked", OTHER_VARIANT);
        _exit(1);
    }
    if (self != NULL)
        dlclose(self);
}

/* --- what ranks agree on --------------------------------------------------------------------- */

/* The end of a collective of set-up. Between looks it yields: MPIs keep a core that another rank
 * may be waiting for, and there are many of these. */
static int finish_setup(int code, MPI_Request *request)
{
    int done = 0;
    while (code == MPI_SUCCESS && !done) {
        code = PMPI_Test(request, &done, MPI_STATUS_IGNORE);
        if (!done)
            sched_yield();
    }
    return code;
}

int twill_mpi_most(MPI_Comm comm, int mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int most = INT_MAX;
    int code = PMPI_Iallreduce(&mine, &most, 1, MPI_INT, MPI_MAX, comm, &request);
    return finish_setup(code, &request) == MPI_SUCCESS ? most : INT_MAX;
}

bool twill_mpi_talk_open(struct twill_mpi_talk *talk, MPI_Comm comm)
{
    int size = 0;
    PMPI_Comm_size(comm, &size);
    *talk = (struct twill_mpi_talk){.comm = comm, .size = size};
    talk->frame = malloc((size_t)size * sizeof(*talk->frame));
    return talk->frame != NULL;
}

void twill_mpi_talk_close(struct twill_mpi_talk *talk)
{
    free(talk->frame);
}

/* One word of each rank: what they say is in talk->word, unless one has failed. */
static bool agree_talk(struct twill_mpi_talk *talk, const struct twill_mpi_frame *mine)
{
    MPI_Request request = MPI_REQUEST_NULL;
    int code = PMPI_Iallgather(mine, sizeof(*mine), MPI_BYTE, talk->frame, sizeof(*mine), MPI_BYTE,
                               talk->comm, &request);
    talk->failed = finish_setup(code, &request) != MPI_SUCCESS;
    for (int r = 0; !talk->failed && r < talk->size; r++)
        talk->failed = talk->frame[r].failed != 0;
    return !talk->failed;
}

int twill_mpi_exchange(void *user, const void *mine, void *all, size_t bytes)
{
    struct twill_mpi_talk *talk = user;
    struct twill_mpi_frame frame = {.failed = false};
    for (size_t done = 0, some; done < bytes; done += some) {
        some = twill_min(bytes - done, sizeof(frame.text));
        memcpy(frame.text, (const char *)mine + done, some);
        if (talk->failed || !agree_talk(talk, &frame))
            return 1;
        for (size_t r = 0; r < (size_t)talk->size; r++)
            memcpy((char *)all + r * bytes + done, talk->frame[r].text, some);
    }
    return 0;
}

bool twill_mpi_agree(struct twill_mpi_talk *talk, bool fine)
{
    return !talk->failed && agree_talk(talk, &(struct twill_mpi_frame){.failed = !fine});
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

/* --- set-up ---------------------------------------------------------------------------------- */

/* While twill waits, the messages of the MPI go on. */
static void on_idle(void *user)
{
    (void)user;
    twill_mpi_progress();
}

/* What is wanted otherwise than twill has it, unless the user says so: MPI programs may let others
 * wait as long as they like, and have calls under way move on in any call of MPI's. */
static void list_settings(const char *list[3])
{
    if (getenv("TWILL_TIMEOUT") == NULL)
        *list++ = "TWILL_TIMEOUT=1000000";
    if (getenv("TWILL_PROGRESS") == NULL)
        *list++ = "TWILL_PROGRESS=late";
    *list = NULL;
}

static twill_status context_open(struct twill_mpi_talk *talk)
{
    twill_bootstrap bootstrap = {.exchange = twill_mpi_exchange, .user = talk};
    const char *settings[3];
    list_settings(settings);
    PMPI_Comm_rank(talk->comm, &bootstrap.rank);
    PMPI_Comm_size(talk->comm, &bootstrap.size);
    twill_status status = twill_context_create(&twill_mpi.context, &bootstrap, settings);
    if (status == TWILL_OK)
        status = twill_comm_create(&twill_mpi.world, twill_mpi.context);
    if (status == TWILL_OK)
        status = twill_context_idle(twill_mpi.context, on_idle, NULL);
    return status == TWILL_OK && !twill_mpi_comms_open() ? TWILL_ERR_MEMORY : status;
}

/* Why it failed, on all ranks, in the words of the first that did not only hear of it. */
static void give_up_setup(twill_status status, bool reported)
{
    int rank = -1;
    const char *message = twill_mpi.context != NULL ? twill_context_message(twill_mpi.context) : "";
    if (status != TWILL_OK && !reported)
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "%s%s%s", twill_strerror(status),
                 *message != '\0' ? ": " : "", message);
    twill_mpi_share_text(twill_mpi.off, sizeof(twill_mpi.off));
    if (twill_mpi.off[0] == '\0')
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "ranks could not agree");
    PMPI_Comm_rank(twill_mpi.shadow, &rank);
    if (rank == 0)
        twill_mpi_say("all calls go to the MPI below: %s", twill_mpi.off);
    twill_mpi_comms_forget();
    twill_comm_leave(twill_mpi.world); /* nobody has used it */
    twill_mpi.world = NULL;
    twill_context_destroy(twill_mpi.context);
    twill_mpi.context = NULL;
}

/* Collectives are taken from now on, if all ranks can. */
static void open_world(void)
{
    struct twill_mpi_talk talk;
    twill_status status = TWILL_ERR_MEMORY;
    bool fine = twill_mpi_talk_open(&talk, twill_mpi.shadow) && twill_mpi_types_open();
    twill_mpi.off[0] = '\0';
    if (twill_mpi_most(twill_mpi.shadow, !fine) == false) {
        status = context_open(&talk);
        fine = twill_mpi_agree(&talk, status == TWILL_OK);
    } else {
        status = fine ? TWILL_OK : status;
        fine = false;
    }
    if (fine)
        atomic_store(&twill_mpi.ready, true);
    else
        give_up_setup(status, talk.failed);
    twill_mpi_talk_close(&talk);
}

static int world_freed(MPI_Comm comm, int keyval, void *value, void *extra)
{
    (void)comm, (void)keyval, (void)value, (void)extra;
    bool gone = true;
    if (atomic_exchange(&twill_mpi.ready, false)) {
        PMPI_Barrier(twill_mpi.shadow); /* nobody is in a call any more */
        twill_mpi_requests_end();
        gone = twill_mpi_comms_close();
        twill_mpi_windows_close();
    }
    twill_mpi_report();
    /* Memory that the program still has must not go; the process does so soon. */
    if (gone && twill_mpi.world != NULL && atomic_load(&twill_mpi.memory.out) == 0) {
        twill_context_destroy(twill_mpi.context);
        twill_mpi.context = NULL;
    }
    if (twill_mpi.shadow != MPI_COMM_NULL)
        PMPI_Comm_free(&twill_mpi.shadow);
    return MPI_SUCCESS;
}

/* Ranks may have other environments: nothing is taken where one of them does not want it, and there
 * is a report where one of them does. And other levels of threads. */
static bool agree_on_settings(void)
{
    const char *take = getenv("TWILL_MPI"), *report = getenv("TWILL_MPI_REPORT");
    int mine[] = {take == NULL || strcmp(take, "0") != 0,
                  report == NULL || *report == '\0' || strcmp(report, "0") == 0,
                  take == NULL || strcmp(take, "all") != 0, twill_mpi.multiple};
    int all[] = {0, 0, 0, 0};
    if (PMPI_Allreduce(mine, all, 4, MPI_INT, MPI_MIN, MPI_COMM_WORLD) != MPI_SUCCESS)
        return false;
    twill_mpi.reports = all[1] == 0;
    twill_mpi.all = all[2] == 0;
    twill_mpi.all_multiple = all[3] != 0;
    snprintf(twill_mpi.off, sizeof(twill_mpi.off), "%s", all[0] ? "" : "TWILL_MPI=0");
    return all[0] || twill_mpi.reports;
}

/* The MPI is there. What fails here leaves the program to it. */
static void start_library(void)
{
    int size = 0, level = MPI_THREAD_SINGLE, keyval = MPI_KEYVAL_INVALID;
    const char *log = getenv("TWILL_LOG");
    check_variant();
    PMPI_Query_thread(&level);
    twill_mpi.multiple = level == MPI_THREAD_MULTIPLE;
    twill_mpi.silent = log != NULL && strcmp(log, "none") == 0;
    twill_mpi.ticks_at_start = twill_ticks();
    twill_mpi.ns_at_start = twill_now();
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    if (!agree_on_settings() || PMPI_Comm_dup(MPI_COMM_WORLD, &twill_mpi.shadow) != MPI_SUCCESS)
        return;
    PMPI_Comm_set_errhandler(twill_mpi.shadow, MPI_ERRORS_RETURN);
    twill_mpi_checks_find();
    twill_mpi_windows_open();
    PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, world_freed, &keyval, NULL);
    PMPI_Comm_set_attr(MPI_COMM_SELF, keyval, NULL);
    PMPI_Comm_free_keyval(&keyval);
    if (twill_mpi.off[0] != '\0')
        return;
    if (size > 1)
        open_world();
    else if (twill_mpi_comms_open())
        snprintf(twill_mpi.off, sizeof(twill_mpi.off), "MPI_COMM_WORLD has one rank");
}

int MPI_Init(int *argc, char ***argv)
{
    check_program();
    int code = PMPI_Init(argc, argv);
    if (code == MPI_SUCCESS)
        start_library();
    return code;
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided)
{
    check_program();
    int code = PMPI_Init_thread(argc, argv, required, provided);
    if (code == MPI_SUCCESS)
        start_library();
    return code;
}
