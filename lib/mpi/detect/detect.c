/* SPDX-License-Identifier: Apache-2.0 */
/* libtwill-mpi.so and libtwill-mpi-VARIANT.so. They export the names that the libraries for one MPI
 * export (lib/mpi/). On the first call they find out which MPI the process has, and open the
 * library for it, libtwill-mpi-calls-VARIANT.so. Each name is a jump through a slot. A slot leads
 * to the search at first, and later to the function of that library, or of the MPI if that library
 * has none. Arguments of any MPI thus pass unchanged. TWILL_MPI_NAME is the name of the file.
 * TWILL_MPI_FOR is the only variant that it opens, or "". */
#include "lib/base/base.h"
#include "lib/mpi/detect/below.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* names.cmake makes TWILL_MPI_NAMES(X) from the other libraries. A compiler option includes it. */
static const char *const names[] = {
#define TEXT(name) #name,
    TWILL_MPI_NAMES(TEXT)
#undef TEXT
};

/* The slots are in a separate section, in the order of the names. twill_mpi_first saves the
 * registers that may hold arguments and calls twill_mpi_resolve(slot, return address). */
#if defined(__x86_64__)
__asm__(".text\n"
        ".type twill_mpi_first, @function\n"
        "twill_mpi_first:\n"
        "  push %rdi\n  push %rsi\n  push %rdx\n  push %rcx\n  push %r8\n  push %r9\n  push %rax\n"
        "  mov %r11, %rdi\n"
        "  mov 56(%rsp), %rsi\n"
        "  call twill_mpi_resolve\n"
        "  mov %rax, %r11\n"
        "  pop %rax\n  pop %r9\n  pop %r8\n  pop %rcx\n  pop %rdx\n  pop %rsi\n  pop %rdi\n"
        "  jmp *%r11\n");
#define JUMP(name) "  jmp *twill_slot_" name "(%rip)\n"
#define FIRST(name)                                                                                \
    "  lea twill_slot_" name "(%rip), %r11\n"                                                      \
    "  jmp twill_mpi_first\n"
#elif defined(__aarch64__)
__asm__(".text\n"
        ".type twill_mpi_first, @function\n"
        "twill_mpi_first:\n"
        "  stp x29, x30, [sp, -96]!\n"
        "  mov x29, sp\n"
        "  stp x0, x1, [sp, 16]\n  stp x2, x3, [sp, 32]\n  stp x4, x5, [sp, 48]\n"
        "  stp x6, x7, [sp, 64]\n  str x8, [sp, 80]\n"
        "  mov x0, x17\n"
        "  mov x1, x30\n"
        "  bl twill_mpi_resolve\n"
        "  mov x16, x0\n"
        "  ldp x0, x1, [sp, 16]\n  ldp x2, x3, [sp, 32]\n  ldp x4, x5, [sp, 48]\n"
        "  ldp x6, x7, [sp, 64]\n  ldr x8, [sp, 80]\n"
        "  ldp x29, x30, [sp], 96\n"
        "  br x16\n");
#define JUMP(name)                                                                                 \
    "  adrp x16, twill_slot_" name "\n"                                                            \
    "  ldr x16, [x16, :lo12:twill_slot_" name "]\n"                                                \
    "  br x16\n"
#define FIRST(name)                                                                                \
    "  adrp x17, twill_slot_" name "\n"                                                            \
    "  add x17, x17, :lo12:twill_slot_" name "\n"                                                  \
    "  b twill_mpi_first\n"
#else
#error "no entry points for this architecture: build with -DTWILL_MPI_DETECT=OFF"
#endif

__asm__(".section twill_slots, \"aw\"\n"
        ".balign 8\n"
        "twill_slots_begin:\n");
#define ENTRY_POINT(name)                                                                          \
    __asm__(".section twill_slots, \"aw\"\n"                                                       \
            ".balign 8\n"                                                                          \
            "twill_slot_" #name ": .quad twill_first_" #name "\n"                                  \
            ".text\n"                                                                              \
            ".balign 16\n"                                                                         \
            ".globl " #name "\n"                                                                   \
            ".type " #name ", %function\n" #name ":\n" JUMP(#name) "twill_first_" #name            \
                                                                   ":\n" FIRST(#name));
TWILL_MPI_NAMES(ENTRY_POINT)

typedef _Atomic(void *) entry_slot;
extern entry_slot slots[] __asm__("twill_slots_begin") __attribute__((visibility("hidden")));

/* Which MPI library the process uses, and which library of twill takes its calls. A process has
 * one, found at its first MPI call and constant afterwards. */
struct twill_mpi_detected {
    pthread_once_t once;
    pthread_mutex_t lock;     /* protects `caller` until the search is over */
    const void *caller;       /* code address of the first MPI call */
    struct twill_below below; /* the MPI library */
    void *library; /* library of twill that takes the calls, or NULL if the MPI itself does */
};
extern struct twill_mpi_detected twill_mpi_detected;
struct twill_mpi_detected twill_mpi_detected = {.once = PTHREAD_ONCE_INIT,
                                                .lock = PTHREAD_MUTEX_INITIALIZER};

/* Print a line, on the rank that the job's launcher numbers 0, or on all if it numbers none. Prints
 * nothing if TWILL_LOG is "none". */
static void TWILL_PRINTF(1, 2) say(const char *format, ...)
{
    static const char *const ranks[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
                                        "SLURM_PROCID"};
    const char *log = getenv("TWILL_LOG");
    bool silent = log != NULL && strcmp(log, "none") == 0;
    for (unsigned i = 0; i < TWILL_ARRAY_LENGTH(ranks); i++) {
        const char *rank = getenv(ranks[i]);
        silent = silent || (rank != NULL && strcmp(rank, "0") != 0);
    }
    if (silent)
        return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    fprintf(stderr, TWILL_MPI_NAME ": %s\n", text);
}

/* Load twill's library for one MPI, libtwill-mpi-calls-VARIANT.so. Look first in the folder of the
 * library that contains this function, then where the linker looks. Returns the handle of dlopen(),
 * or NULL if it is in neither place. */
static void *open_library(const char *variant)
{
    char path[PATH_MAX], name[64];
    Dl_info own;
    snprintf(name, sizeof(name), "libtwill-mpi-calls-%s.so", variant);
    const char *folder_end =
        dladdr(names, &own) != 0 && own.dli_fname != NULL ? strrchr(own.dli_fname, '/') : NULL;
    void *library = NULL;
    if (folder_end != NULL) {
        snprintf(path, sizeof(path), "%.*s/%s", (int)(folder_end - own.dli_fname), own.dli_fname,
                 name);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return library != NULL ? library : dlopen(name, RTLD_LAZY | RTLD_LOCAL);
}

/* Return whether the library calls the MPI that was found, not another one that came with it. Also
 * true if it reaches no MPI at all. */
static bool calls_below(void *library, const struct twill_below *below)
{
    const void *init = dlsym(library, "PMPI_Init");
    Dl_info info;
    return init == NULL || (dladdr(init, &info) != 0 && info.dli_fbase == below->base);
}

/* Find the MPI and open the library for it, for pthread_once(). Sets twill_mpi_detected.library, or
 * leaves it NULL if all calls go to the MPI. Prints the reason for that, unless no MPI is
 * loaded. */
static void detect(void)
{
    struct twill_mpi_detected *detected = &twill_mpi_detected;
    struct twill_below *below = &detected->below;
    twill_below_find(detected->caller, below);
    const char *variant = twill_below_variant(below->kind);
    if (below->kind == TWILL_BELOW_NONE)
        return; /* the call itself will report it */
    if (below->trouble != NULL || *variant == '\0') {
        say("%s (%s): all calls go to the MPI, twill takes none",
            below->trouble != NULL ? below->trouble : "twill does not know the handles of this MPI",
            below->version);
        return;
    }
    if (*TWILL_MPI_FOR != '\0' && strcmp(variant, TWILL_MPI_FOR) != 0) {
        say("this program has another MPI (%s, %s): all calls go to it, twill takes none; preload "
            "libtwill-mpi-%s.so, or libtwill-mpi.so, which serves all",
            below->version, below->path, variant);
        return;
    }
    twill_below_publish(below);
    void *library = open_library(variant);
    if (library == NULL) {
        say("the MPI is %s (%s): all calls go to it, as its library cannot be opened: %s",
            below->version, below->path, dlerror());
    } else if (!calls_below(library, below)) {
        say("libtwill-mpi-calls-%s.so was built for another release than %s (%s): all calls go to "
            "the "
            "MPI",
            variant, below->version, below->path);
        dlclose(library);
    } else {
        detected->library = library;
    }
}

/* If `name` is an MPI_Init called by a library that uses a second MPI, print that and end the
 * process. */
static void check_again(const char *name, const void *caller)
{
    struct twill_below below;
    if (strncasecmp(name, "MPI_Init", 8) != 0)
        return;
    twill_below_needed(caller, &below);
    if (below.base == twill_mpi_detected.below.base || below.kind == TWILL_BELOW_NONE)
        return;
    fprintf(stderr,
            TWILL_MPI_NAME
            ": this process uses a second MPI (%s besides %s): run it without twill\n",
            below.path, twill_mpi_detected.below.path);
    _exit(1);
}

void *twill_mpi_resolve(entry_slot *from, const void *caller)
    __attribute__((used, visibility("hidden")));
/* Return the function to call for the slot `from`. Also store it there, except for an
 * initialisation, which is checked each time. `caller` is the address of the program's call. Ends
 * the process if there is no such function, or if a second MPI is initialised. For
 * twill_mpi_first. */
void *twill_mpi_resolve(entry_slot *from, const void *caller)
{
    struct twill_mpi_detected *detected = &twill_mpi_detected;
    const char *name = names[from - slots];
    pthread_mutex_lock(&detected->lock);
    if (detected->caller == NULL)
        detected->caller = caller;
    pthread_once(&detected->once, detect);
    pthread_mutex_unlock(&detected->lock);
    check_again(name, caller);
    void *function = detected->library != NULL ? dlsym(detected->library, name) : NULL;
    if (function == NULL)
        function = dlsym(RTLD_NEXT, name);
    if (function == NULL && detected->below.handle != NULL)
        function = dlsym(detected->below.handle, name);
    if (function == NULL) {
        fprintf(stderr, TWILL_MPI_NAME ": no %s: %s%s\n", name,
                detected->below.kind == TWILL_BELOW_NONE ? "no MPI is loaded" : "it is not in ",
                detected->below.path);
        _exit(1);
    }
    if (strncasecmp(name, "MPI_Init", 8) != 0) /* initialisations are checked each time */
        atomic_store_explicit(from, function, memory_order_release);
    return function;
}
