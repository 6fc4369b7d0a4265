/* SPDX-License-Identifier: Apache-2.0 */
/* twillrun --elastic: the question whether a rank of the job is left, and the ranks that wait for
 * its answer. On one host elastic_ranks.c asks it, on several elastic_hosts.c. */
#include "fabric/launcher/launcher.h"

bool twill_question_ask(struct twill_left_question *question, int alive, int waiting)
{
    bool open = question->asked_ns != 0;
    if (waiting < alive)
        question->asked_ns = 0;
    if (waiting < alive || open)
        return false;
    question->asked_ns = twill_now();
    question->number++;
    return true;
}

enum twill_ranks_left twill_question_answer(struct twill_left_question *question, uint64_t until)
{
    if (question->asked_ns == 0)
        return TWILL_LEFT_SOME;
    if (twill_now() < until)
        return TWILL_LEFT_UNKNOWN;
    question->asked_ns = 0;
    return TWILL_LEFT_NONE;
}

struct twill_child *twill_undecided_next(struct twill_child *child, int children)
{
    for (int i = 0; i < children; i++)
        if (child[i].undecided) {
            child[i].undecided = false;
            return &child[i];
        }
    return NULL;
}
