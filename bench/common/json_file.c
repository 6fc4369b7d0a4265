/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/common/json_file.h"

#include "lib/twill.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void twill_json_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, text != NULL ? json_object_new_string(text) : NULL);
}

void twill_json_count(struct json_object *object, const char *key, size_t count)
{
    json_object_object_add(object, key, json_object_new_uint64(count));
}

void twill_json_real(struct json_object *object, const char *key, double value)
{
    json_object_object_add(object, key, isnan(value) ? NULL : json_object_new_double(value));
}

bool twill_json_file_create(struct twill_json_file *json, const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file < 0) {
        fprintf(stderr, "twill-bench: %s: %s\n", path, strerror(errno));
        return false;
    }
    *json = (struct twill_json_file){json_object_new_object(), path, file};
    json_object_object_add(json->root, "version", json_object_new_string(twill_version()));
    return true;
}

bool twill_json_file_close(struct twill_json_file *json)
{
    bool good = json_object_to_fd(json->file, json->root, JSON_C_TO_STRING_PRETTY) == 0;
    good &= close(json->file) == 0;
    if (!good)
        fprintf(stderr, "twill-bench: %s: could not be written\n", json->path);
    json_object_put(json->root);
    json->root = NULL;
    return good;
}
