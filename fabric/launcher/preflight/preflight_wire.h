/* SPDX-License-Identifier: Apache-2.0 */
/* Lines between the front and its agents, with words one way and a JSON object the other. */
#ifndef TWILL_PREFLIGHT_WIRE_H
#define TWILL_PREFLIGHT_WIRE_H

#include "fabric/launcher/preflight/preflight.h"

#include <json-c/json.h>

#define PREFLIGHT_LINE_MOST (4u << 20) /* bytes of a line */
/* Add the facts to an object, also empty texts and unknown numbers. */
void preflight_facts_put(struct json_object *object, const struct preflight_facts *facts);
/* Get the facts that an object has, and leave the others as they are. A member of a wrong type
 * leaves a number as it is, and makes a text empty. */
void preflight_facts_get(const struct json_object *object, struct preflight_facts *facts);
/* Add a text as a member to an object. */
void preflight_put_text(struct json_object *object, const char *key, const char *text);
/* Add an integer as a member to an object. */
void preflight_put_number(struct json_object *object, const char *key, int64_t number);
/* Add a real number as a member to an object. */
void preflight_put_real(struct json_object *object, const char *key, double number);
/* Return an integer member, or `otherwise` if it does not exist or has another type. */
int64_t preflight_get_number(const struct json_object *object, const char *key, int64_t otherwise);
/* Return a member as a real number, or 0 if it does not exist. */
double preflight_get_real(const struct json_object *object, const char *key);
/* Return a text member, which the object keeps, or "" if there is none. */
const char *preflight_get_text(const struct json_object *object, const char *key);
/* Return an array that is a member, which the object keeps, or NULL if there is none. */
struct json_object *preflight_get_array(const struct json_object *object, const char *key);
/* Print an object as a line to standard output, and release it. */
void preflight_say(struct json_object *object);
/* Parse a line of output of an agent or rank, "[3] {...}", into its rank and its object. The caller
 * releases the object. Returns NULL for other lines. */
struct json_object *preflight_line_parse(const char *line, int *rank);

#endif
