/* SPDX-License-Identifier: Apache-2.0 */
/* Lines in which the ranks of twillrun --check report what they have found: facts of a host, as
 * JSON. No text may command a terminal. */
#include "fabric/launcher/preflight/preflight_wire.h"
#include "tests/fuzz/fuzz_input.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct preflight_facts facts;
    char *line = fuzz_text(data, size);
    int rank;
    struct json_object *object = preflight_line_parse(line, &rank);
    if (object != NULL) {
        memset(&facts, 0, sizeof(facts));
        preflight_facts_get(object, &facts);
#define PREFLIGHT_CHECK(name)                                                                      \
    fuzz_must(memchr(facts.name, '\0', sizeof(facts.name)) != NULL &&                              \
              strpbrk(facts.name, "\033\n\t") == NULL);
        PREFLIGHT_TEXTS(PREFLIGHT_CHECK)
#undef PREFLIGHT_CHECK
        (void)preflight_get_array(object, "links");
        (void)preflight_get_real(object, "seconds");
        json_object_put(object);
    }
    free(line);
    return 0;
}
