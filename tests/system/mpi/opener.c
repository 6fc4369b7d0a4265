/* SPDX-License-Identifier: Apache-2.0 */
/* A program without an MPI that opens modules with one, in local scope, as Python does, and calls
 * them in turn. */
#include <dlfcn.h>
#include <stdio.h>

static int open_and_work(const char *name)
{
    void *module = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) {
        fprintf(stderr, "opener: %s\n", dlerror());
        return 2;
    }
    int (*work)(void);
    *(void **)&work = dlsym(module, "work");
    return work != NULL ? work() : 2;
}

int main(int argc, char **argv)
{
    int status = argc > 1 ? 0 : 2;
    for (int i = 1; i < argc && status == 0; i++)
        status = open_and_work(argv[i]);
    return status;
}
