/* SPDX-License-Identifier: Apache-2.0 */
/* Layouts and worlds as text, and the algorithms that a user names. The first byte selects. */
#include "algorithms/select/override.h"
#include "algorithms/world/world.h"
#include "tests/fuzz/fuzz_input.h"

#define LAYOUT_RANKS 16

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct twill_error error = {0};
    struct twill_override *overrides = NULL;
    struct twill_world world;
    uint32_t label[LAYOUT_RANKS];
    size_t count = 0;
    if (size == 0)
        return 0;
    char *text = fuzz_text(data + 1, size - 1);
    switch (data[0] % 4) {
    case 0:
        (void)twill_world_parse_nodes(text, LAYOUT_RANKS, label, &error);
        break;
    case 1:
        (void)twill_world_parse_groups(text, LAYOUT_RANKS, label, &error);
        break;
    case 2:
        if (twill_world_declare(&world, text, &error) == TWILL_OK)
            twill_world_destroy(&world);
        break;
    default:
        if (twill_overrides_parse(&overrides, &count, text, &error) == TWILL_OK && count > 0)
            (void)twill_override_find(overrides, count, TWILL_ALLREDUCE, 4096);
        free(overrides);
    }
    free(text);
    return 0;
}
