/* SPDX-License-Identifier: Apache-2.0 */
/* A program without an MPI that opens a module with one, in local scope, as Python does. */
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    void *module = argc == 2 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    if (module == NULL) {
        fprintf(stderr, "opener: %s\n", argc == 2 ? dlerror() : "which module?");
        return 2;
    }
    int (*work)(void);
    *(void **)&work = dlsym(module, "work");
    return work != NULL ? work() : 2;
}
