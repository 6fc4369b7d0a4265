/* SPDX-License-Identifier: Apache-2.0 */
/* To preload: twill's library for an MPI reads TEST_MPI_VERSION as the MPI's name. */
#include <stdio.h>
#include <stdlib.h>

__attribute__((visibility("default"))) int PMPI_Get_library_version(char *version, int *length);

int PMPI_Get_library_version(char *version, int *length)
{
    const char *name = getenv("TEST_MPI_VERSION");
    *length = snprintf(version, 256, "%s", name != NULL ? name : "");
    return 0;
}
