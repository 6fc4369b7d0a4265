/* SPDX-License-Identifier: Apache-2.0 */
/* twill-compare between hosts: contenders are started by an agent and reached by connections
 * (driver_link.h) instead of a shared board. */
#ifndef TWILL_REMOTE_HOSTS_H
#define TWILL_REMOTE_HOSTS_H

#include "bench/tools/compare/compare.h"

/* Start or stop listening for connections of ranks. */
bool twill_compare_listen(struct twill_compare_run *run);
void twill_compare_close_listener(struct twill_compare_run *run);
/* Write the argument by which a contender's ranks connect. */
void twill_compare_link_text(const struct twill_compare_run *run, int index, char *text,
                             size_t bytes);

/* Process what a contender's ranks send, for `seconds` or until something arrives, and update its
 * board. Returns false if a rank closed its connection or sent something invalid. */
bool twill_compare_serve_links(struct twill_compare_run *run,
                               struct twill_compare_contender *contender, double seconds);
/* Send the board's order to all ranks; close all their connections. */
void twill_compare_send_order(struct twill_compare_contender *contender);
void twill_compare_close_links(struct twill_compare_contender *contender);

/* Write the agent's script. Returns false after a message. */
bool twill_compare_make_agent(struct twill_compare_run *run);
/* Set a congestion control on all hosts, and restore the previous one. The former returns false
 * after a message. */
bool twill_compare_congestion(struct twill_compare_run *run);
void twill_compare_congestion_back(struct twill_compare_run *run);

/* Measure one way of libfabric's fi_pingpong between the first two hosts, in seconds; 0 on
 * failure. */
double twill_compare_pingpong(struct twill_compare_run *run,
                              struct twill_compare_contender *contender, size_t bytes);

#endif
