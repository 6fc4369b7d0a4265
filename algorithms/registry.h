/* SPDX-License-Identifier: Apache-2.0 */
/* The list of algorithms, in the order of twill_algorithm_at(). A new one is a file in collectives/
 * that defines `const struct twill_algorithm twill_algorithm_<noun>`, and a line X(noun) here. */
#ifndef TWILL_REGISTRY_H
#define TWILL_REGISTRY_H

#include "algorithms/algorithms.h"

#define TWILL_ALGORITHMS(X)                                                                        \
    X(direct)                                                                                      \
    X(ring)                                                                                        \
    X(multi_ring)                                                                                  \
    X(recursive_doubling)                                                                          \
    X(halving_doubling)                                                                            \
    X(double_tree)                                                                                 \
    X(torus)                                                                                       \
    X(hub)                                                                                         \
    X(pairwise)                                                                                    \
    X(allgather_reduce)                                                                            \
    X(chain)                                                                                       \
    X(tree)                                                                                        \
    X(linear)                                                                                      \
    X(bruck)                                                                                       \
    X(dissemination)                                                                               \
    X(circulant)                                                                                   \
    X(scatter_allgather)                                                                           \
    X(reduce_scatter_gather)                                                                       \
    X(hierarchical_ring)                                                                           \
    X(hierarchical_halving_doubling)                                                               \
    X(hierarchical_bruck)                                                                          \
    X(hierarchical_recursive_doubling)                                                             \
    X(hierarchical_tree)                                                                           \
    X(hierarchical_pairwise)                                                                       \
    X(hierarchical_circulant)                                                                      \
    X(groups)                                                                                      \
    X(levels)

#define TWILL_ALGORITHM_DECLARE(noun) extern const struct twill_algorithm twill_algorithm_##noun;
TWILL_ALGORITHMS(TWILL_ALGORITHM_DECLARE)

#endif
