/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON file that a tool writes when it ends. An existing file is never replaced. */
#ifndef TWILL_JSON_FILE_H
#define TWILL_JSON_FILE_H

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>

/* Add a member that is a text, or null if the text is NULL. */
void twill_json_text(struct json_object *object, const char *key, const char *text);
/* Add a member that is a whole number. */
void twill_json_count(struct json_object *object, const char *key, size_t count);
/* Add a member that is a number, or null if the value is NAN. */
void twill_json_real(struct json_object *object, const char *key, double value);

/* A JSON file from twill_json_file_create() to twill_json_file_close(). The struct is part of the
 * state of the caller. */
struct twill_json_file {
    struct json_object *root; /* document, begun with the version of twill, or NULL once closed */
    const char *path;         /* as given to twill_json_file_create() */
    int file;
};

/* Create the file, which must not exist, and the document with the version of twill. Returns false,
 * with nothing to close, after a message on stderr if that fails. */
bool twill_json_file_create(struct twill_json_file *json, const char *path);
/* Write the root, close the file and free the root. Returns false after a message on failure. */
bool twill_json_file_close(struct twill_json_file *json);

#endif
