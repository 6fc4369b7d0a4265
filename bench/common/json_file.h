/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON file that a tool writes when it ends. An existing file is never replaced. */
#ifndef TWILL_JSON_FILE_H
#define TWILL_JSON_FILE_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/* Add a member, which is null if the value is NULL or NAN. */
void twill_json_text(struct json_object *object, const char *key, const char *text);
void twill_json_count(struct json_object *object, const char *key, size_t count);
void twill_json_real(struct json_object *object, const char *key, double value);

struct twill_json_file {
    /* the document, or NULL once closed; begins with "version", that of twill */
    struct json_object *root;
    const char *path; /* as given to twill_json_file_create() */
    int file;
};

/* Create the file, before anything is measured. Returns false after a message if it exists or
 * cannot be created, in which case there is nothing to close. */
bool twill_json_file_create(struct twill_json_file *json, const char *path);
/* Write the root, close the file and free the root. Returns false after a message on failure. */
bool twill_json_file_close(struct twill_json_file *json);

#endif
