/* SPDX-License-Identifier: Apache-2.0 */
/* Opens libfabric at run time. A program linked with it would load the libraries of all fabrics
 * (psm, psm2, verbs, efa) before main(), which takes 0.2 s and replaces signal handlers. */
#include "fabric/ofi/ofi.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>

#define OFI_SONAME "libfabric.so.1"

#ifndef NSIG
#define NSIG 65
#endif

/* Signal actions of the program, a local variable. PSM's libraries replace some when they are
 * loaded, and we restore those. */
struct signal_actions {
    struct sigaction of[NSIG]; /* by the signal's number */
    bool known[NSIG];
};

/* Store the program's action for each signal in *actions. */
static void signals_save(struct signal_actions *actions)
{
    for (int s = 1; s < NSIG; s++)
        actions->known[s] = sigaction(s, NULL, &actions->of[s]) == 0;
}

/* Set the action of each signal whose handler has changed since signals_save() back to that one. */
static void signals_restore(const struct signal_actions *actions)
{
    struct sigaction now;
    for (int s = 1; s < NSIG; s++)
        if (actions->known[s] && sigaction(s, NULL, &now) == 0 &&
            now.sa_handler != actions->of[s].sa_handler)
            (void)sigaction(s, &actions->of[s], NULL);
}

/* Find the functions of *library in the library `handle`, or return TWILL_ERR_FABRIC. */
static twill_status find_functions(struct twill_libfabric *library, void *handle,
                                   struct twill_error *error)
{
    static const char *const names[] = {"fi_getinfo", "fi_freeinfo", "fi_dupinfo", "fi_fabric",
                                        "fi_strerror"};
    void *found[TWILL_ARRAY_LENGTH(names)];
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(names); i++) {
        found[i] = dlsym(handle, names[i]);
        if (found[i] == NULL)
            return TWILL_FAIL(error, TWILL_ERR_FABRIC,
                              "libfabric cannot be used: it has no %s(): install a newer one",
                              names[i]);
    }
    library->getinfo = (__typeof__(library->getinfo))found[0];
    library->freeinfo = (__typeof__(library->freeinfo))found[1];
    library->dupinfo = (__typeof__(library->dupinfo))found[2];
    library->fabric = (__typeof__(library->fabric))found[3];
    library->explain = (__typeof__(library->explain))found[4];
    return TWILL_OK;
}

/* Open `path` or, if it is NULL, libfabric.so.1, as the loader finds it, or else the library twill
 * was built with. Returns its handle, or NULL and the reason in `why` if none opens. */
static void *open_any(const char *path, char *why, size_t bytes)
{
    const char *const places[] = {path != NULL ? path : OFI_SONAME, TWILL_LIBFABRIC_BUILT_WITH};
    void *handle = NULL;
    for (size_t i = 0; handle == NULL && i < (path != NULL ? 1 : 2); i++) {
        /* Never unload it, as threads and handlers of its providers would outlive it. */
        handle = dlopen(places[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle == NULL && i == 0)
            snprintf(why, bytes, "%s", dlerror());
    }
    return handle;
}

twill_status twill_ofi_library_open(struct twill_libfabric *library,
                                    const struct twill_transport_params *params,
                                    struct twill_error *error)
{
    const char *path = twill_transport_setting(params, "TWILL_TUNE=libfabric");
    struct signal_actions before;
    char why[256] = "";
    *library = (struct twill_libfabric){0};
    signals_save(&before);
    void *handle = open_any(path, why, sizeof(why));
    signals_restore(&before);
    if (handle == NULL && path != NULL)
        return TWILL_FAIL(error, TWILL_ERR_CONFIG, "TWILL_TUNE=libfabric=%s: %s", path, why);
    if (handle == NULL)
        return TWILL_FAIL(error, TWILL_ERR_FABRIC, "libfabric cannot be opened: %s", why);
    twill_status status = find_functions(library, handle, error);
    dlclose(handle);
    return status;
}

int twill_ofi_library_getinfo(const struct twill_libfabric *library, uint32_t version,
                              const struct fi_info *hints, struct fi_info **list)
{
    struct signal_actions before;
    signals_save(&before); /* the first call loads providers that are separate libraries */
    int rc = library->getinfo(version, NULL, NULL, 0, hints, list);
    signals_restore(&before);
    return rc;
}
