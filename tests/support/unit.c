/* SPDX-License-Identifier: Apache-2.0 */
/* The main function of unit tests. */
#include "tests/support/unit.h"

static struct {
    struct CMUnitTest test[64];
    int line[64];
    size_t count;
    CMFixtureFunction set_up, tear_down;
} listed;

void twill_unit_list(int line, struct CMUnitTest test)
{
    size_t at = listed.count++;
    if (at == TWILL_ARRAY_LENGTH(listed.test))
        abort();
    for (; at > 0 && listed.line[at - 1] > line; at--) {
        listed.test[at] = listed.test[at - 1];
        listed.line[at] = listed.line[at - 1];
    }
    listed.test[at] = test;
    listed.line[at] = line;
}

void twill_unit_group(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    listed.set_up = set_up;
    listed.tear_down = tear_down;
}

int main(void)
{
    cmocka_set_test_filter(getenv("TEST_ONLY")); /* NULL: all */
    return _cmocka_run_group_tests("tests", listed.test, listed.count, listed.set_up,
                                   listed.tear_down);
}
