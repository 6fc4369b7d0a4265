/* SPDX-License-Identifier: Apache-2.0 */
#include "lib/mpi/detect/below.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

const char *twill_below_variant(enum twill_below_kind kind)
{
    static const char *const variants[TWILL_BELOW_KINDS] = {
        [TWILL_BELOW_NONE] = "",   [TWILL_BELOW_OPENMPI] = "openmpi", [TWILL_BELOW_MPICH] = "mpich",
        [TWILL_BELOW_ABI] = "abi", [TWILL_BELOW_OTHER] = "",
    };
    return variants[kind];
}

/* Names of MPIs that use MPICH's handles. */
static const char *const like_mpich[] = {"MPICH", "Intel(R) MPI", "MVAPICH", "ParaStation MPI"};

typedef void any_function(void);
/* Return a function of a library, whose type is not known here, or NULL if it has none. */
static any_function *function_of(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    any_function *function = NULL;
    memcpy(&function, &found, sizeof(function));
    return function;
}

/* Set the MPI's kind and version, and `trouble` if it is not usable. Works before MPI_Init. */
static void find_kind(const void *init, struct twill_below *below)
{
    void *scope = dlsym(RTLD_DEFAULT, "PMPI_Init") == init ? RTLD_DEFAULT : below->handle;
    int (*abi)(int *, int *) = (int (*)(int *, int *))function_of(scope, "PMPI_Abi_get_version");
    int (*name)(char *, int *) =
        (int (*)(char *, int *))function_of(scope, "PMPI_Get_library_version");
    char text[8192] = ""; /* no MPI writes more */
    int major = 0, minor = 0, length = 0;
    if (name != NULL)
        name(text, &length);
    text[strcspn(text, ",\n")] = '\0';
    snprintf(below->version, sizeof(below->version), "%.127s", text);
    below->kind = TWILL_BELOW_OTHER;
    if (abi != NULL && abi(&major, &minor) == 0 && major > 0) {
        below->kind = major == 1 ? TWILL_BELOW_ABI : TWILL_BELOW_OTHER;
        /* Seen with libmpi_abi.so of 2021.18, where MPI_ERRORS_RETURN has no effect. */
        if (strstr(text, "Intel(R) MPI") != NULL)
            below->trouble = "with the standard ABI this MPI ends programs in place of returning "
                             "errors";
    } else if (strstr(text, "Open MPI") != NULL)
        below->kind = TWILL_BELOW_OPENMPI;
    else
        for (unsigned i = 0; i < sizeof(like_mpich) / sizeof(like_mpich[0]); i++)
            if (strstr(text, like_mpich[i]) != NULL)
                below->kind = TWILL_BELOW_MPICH;
}

/* Describe the library that contains `init`, its PMPI_Init. *below stays as it is if none does. */
static void describe(const void *init, struct twill_below *below)
{
    Dl_info info;
    if (init == NULL || dladdr(init, &info) == 0 || info.dli_fname == NULL)
        return;
    void *handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == NULL) /* linked into the program itself */
        handle = dlopen(NULL, RTLD_LAZY);
    *below = (struct twill_below){.handle = handle, .base = info.dli_fbase};
    snprintf(below->path, sizeof(below->path), "%s", info.dli_fname);
    find_kind(init, below);
}

/* Call `visit` with the PMPI_Init of each loaded MPI, until it returns true. */
static void each_mpi(bool (*visit)(const void *init, void *user), void *user)
{
    struct link_map *map = NULL;
    void *self = dlopen(NULL, RTLD_LAZY);
    if (self == NULL || dlinfo(self, RTLD_DI_LINKMAP, &map) != 0)
        map = NULL;
    for (bool done = false; map != NULL && !done; map = map->l_next) {
        void *object = dlopen(map->l_name, RTLD_LAZY | RTLD_NOLOAD);
        const void *init = object != NULL ? dlsym(object, "PMPI_Init") : NULL;
        Dl_info info;
        /* dlsym() also searches the libraries that the object needs. */
        if (init != NULL && dladdr(init, &info) != 0 && (ElfW(Addr))info.dli_fbase == map->l_addr)
            done = visit(init, user);
        if (object != NULL)
            dlclose(object);
    }
    if (self != NULL)
        dlclose(self);
}

/* Describe in *user, a struct twill_below, the MPI library with the function `init`. If *user
 * describes another one already, set its `trouble`. Returns whether `trouble` is set, which ends
 * each_mpi(). */
static bool take_only(const void *init, void *user)
{
    struct twill_below *below = user;
    if (below->kind != TWILL_BELOW_NONE)
        below->trouble = "the process has several MPIs";
    else
        describe(init, below);
    return below->trouble != NULL;
}

void twill_below_needed(const void *caller, struct twill_below *below)
{
    Dl_info info;
    *below = (struct twill_below){.kind = TWILL_BELOW_NONE};
    if (dladdr(caller, &info) == 0 || info.dli_fname == NULL)
        return;
    void *object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (object != NULL) {
        describe(dlsym(object, "PMPI_Init"), below);
        dlclose(object);
    }
}

void twill_below_find(const void *caller, struct twill_below *below)
{
    *below = (struct twill_below){.kind = TWILL_BELOW_NONE};
    describe(dlsym(RTLD_DEFAULT, "PMPI_Init"), below);
    if (below->kind == TWILL_BELOW_NONE)
        twill_below_needed(caller, below);
    if (below->kind == TWILL_BELOW_NONE)
        each_mpi(take_only, below);
}

void twill_below_publish(const struct twill_below *below)
{
    if (below->handle != NULL)
        (void)dlopen(below->path, RTLD_LAZY | RTLD_NOLOAD | RTLD_GLOBAL);
}

/* If the MPI is of another kind than *user, describe it there and return true. For each_mpi(). */
static bool take_other(const void *init, void *user)
{
    struct twill_below *below = user, found = {.kind = TWILL_BELOW_NONE};
    describe(init, &found);
    if (found.kind == below->kind)
        return false;
    *below = found;
    return true;
}

bool twill_below_differs(enum twill_below_kind kind, struct twill_below *below)
{
    *below = (struct twill_below){.kind = kind};
    each_mpi(take_other, below);
    return below->kind != kind;
}
