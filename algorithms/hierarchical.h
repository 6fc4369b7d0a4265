/* SPDX-License-Identifier: Apache-2.0 */
/* Pieces of hierarchical algorithms. Internal to this room. */
#ifndef TWILL_HIERARCHICAL_H
#define TWILL_HIERARCHICAL_H

#include "algorithms/emit.h"

/* One block for each rank. STAGED and MAPPED; STAGED needs SHARED, the first TMP too. */
void twill_emit_nodes_reduce_scatter(struct twill_emitter *e, enum twill_flavour flavour);
void twill_emit_nodes_allgather(struct twill_emitter *e, enum twill_flavour flavour);

#endif
