/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare between hosts: contenders there are reached by connections (driver_link.h) instead
 * of a shared board, and started by an agent. */
#ifndef TWILL_REMOTE_HOSTS_H
#define TWILL_REMOTE_HOSTS_H

#include "bench/compare/compare.h"

/* Be there for ranks to connect to. */
bool twill_compare_listen(struct twill_compare_run *run);
void twill_compare_hang_up(struct twill_compare_run *run);
/* The argument that leads a contender's ranks here. */
void twill_compare_link_text(const struct twill_compare_run *run, int index, char *text,
                             size_t bytes);

/* For so long, or until something has come: what the ranks of a contender say is put on its board.
 * False: one of them has gone, or talks nonsense. */
bool twill_compare_hearken(struct twill_compare_run *run, struct twill_compare_contender *contender,
                           double seconds);
/* The order of its board, to all its ranks. */
void twill_compare_call_out(struct twill_compare_contender *contender);
void twill_compare_cut(struct twill_compare_contender *contender);

/* The agent as one program. False: said why. */
bool twill_compare_make_agent(struct twill_compare_run *run);
/* Have all hosts use a congestion control; what they had is put back by the second. False: said
 * why. */
bool twill_compare_congestion(struct twill_compare_run *run);
void twill_compare_congestion_back(struct twill_compare_run *run);

/* One way by libfabric's own fi_pingpong, between the first two hosts. 0: it failed. */
double twill_compare_pingpong(struct twill_compare_run *run,
                              struct twill_compare_contender *contender, size_t bytes);

#endif
