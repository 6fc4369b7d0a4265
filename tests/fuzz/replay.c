/* SPDX-License-Identifier: Apache-2.0 */
/* In the place of libFuzzer where it is not built in: gives the fuzzer each file of the folders
 * that are named. Options of libFuzzer are ignored. */
#include <dirent.h>
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#include <stdint.h>
#include <stdio.h>

enum { LONGEST = 1 << 20 }; /* bytes of a file that are read */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Without the sanitizers nothing is poisoned, and no leak is looked for. */
void __lsan_disable(void)
{
}

void __lsan_enable(void)
{
}

void *__asan_region_is_poisoned(void *begin, size_t size)
{
    return NULL;
}

static int replay(const char *folder, const char *name, uint8_t *data)
{
    char path[4096];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "rb"); /* open() and close() may be the fuzzer's */
    if (file == NULL) {
        perror(path);
        return 1;
    }
    size_t size = fread(data, 1, LONGEST, file);
    fclose(file);
    return LLVMFuzzerTestOneInput(data, size);
}

static int replay_folder(const char *path)
{
    static uint8_t data[LONGEST];
    int failed = 0, files = 0;
    const struct dirent *entry;
    DIR *list = opendir(path);
    if (list == NULL) {
        perror(path);
        return 1;
    }
    while ((entry = readdir(list)) != NULL)
        if (entry->d_name[0] != '.') {
            failed |= replay(path, entry->d_name, data);
            files++;
        }
    closedir(list);
    printf("%s: %d files\n", path, files);
    return failed;
}

int main(int count, char **words)
{
    int failed = 0;
    for (int i = 1; i < count; i++)
        if (words[i][0] != '-')
            failed |= replay_folder(words[i]);
    return failed;
}
