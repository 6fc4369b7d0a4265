/* SPDX-License-Identifier: Apache-2.0 */
/* The facts as JSON, and lines of it. */
#include "fabric/launcher/preflight/preflight_wire.h"
#include "lib/base/base.h"

#include <stdlib.h>
#include <string.h>

void preflight_put_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, json_object_new_string(text));
}

void preflight_put_number(struct json_object *object, const char *key, int64_t number)
{
    json_object_object_add(object, key, json_object_new_int64(number));
}

void preflight_put_real(struct json_object *object, const char *key, double number)
{
    json_object_object_add(object, key, json_object_new_double(number));
}

int64_t preflight_get_number(const struct json_object *object, const char *key, int64_t otherwise)
{
    struct json_object *member;
    return json_object_object_get_ex(object, key, &member) &&
                   json_object_is_type(member, json_type_int)
               ? json_object_get_int64(member)
               : otherwise;
}

double preflight_get_real(const struct json_object *object, const char *key)
{
    struct json_object *member;
    return json_object_object_get_ex(object, key, &member) ? json_object_get_double(member) : 0;
}

const char *preflight_get_text(const struct json_object *object, const char *key)
{
    struct json_object *member;
    return json_object_object_get_ex(object, key, &member) &&
                   json_object_is_type(member, json_type_string)
               ? json_object_get_string(member)
               : "";
}

struct json_object *preflight_get_array(const struct json_object *object, const char *key)
{
    struct json_object *member;
    return json_object_object_get_ex(object, key, &member) &&
                   json_object_is_type(member, json_type_array)
               ? member
               : NULL;
}

void preflight_facts_put(struct json_object *object, const struct preflight_facts *facts)
{
#define PREFLIGHT_PUT(name) preflight_put_number(object, #name, facts->name);
    PREFLIGHT_NUMBERS(PREFLIGHT_PUT)
#undef PREFLIGHT_PUT
#define PREFLIGHT_PUT(name) preflight_put_text(object, #name, facts->name);
    PREFLIGHT_TEXTS(PREFLIGHT_PUT)
#undef PREFLIGHT_PUT
}

/* Copy a text from another host. Control characters become '?', so that it commands no terminal. */
static void copy_plain(char text[PREFLIGHT_TEXT], const char *from)
{
    snprintf(text, PREFLIGHT_TEXT, "%s", from);
    twill_text_plain(text, strlen(text));
}

void preflight_facts_get(const struct json_object *object, struct preflight_facts *facts)
{
#define PREFLIGHT_GET(name) facts->name = preflight_get_number(object, #name, facts->name);
    PREFLIGHT_NUMBERS(PREFLIGHT_GET)
#undef PREFLIGHT_GET
#define PREFLIGHT_GET(name)                                                                        \
    if (json_object_object_get_ex(object, #name, NULL))                                            \
        copy_plain(facts->name, preflight_get_text(object, #name));
    PREFLIGHT_TEXTS(PREFLIGHT_GET)
#undef PREFLIGHT_GET
}

void preflight_say(struct json_object *object)
{
    puts(json_object_to_json_string_ext(object, JSON_C_TO_STRING_PLAIN));
    fflush(stdout);
    json_object_put(object);
}

struct json_object *preflight_line_parse(const char *line, int *rank)
{
    char *end;
    if (line[0] != '[')
        return NULL;
    long number = strtol(line + 1, &end, 10);
    if (end == line + 1 || strncmp(end, "] {", 3) != 0 || number < 0 || number > 65535)
        return NULL;
    *rank = (int)number;
    struct json_object *object = json_tokener_parse(end + 2);
    if (object && !json_object_is_type(object, json_type_object)) {
        json_object_put(object);
        return NULL;
    }
    return object;
}
