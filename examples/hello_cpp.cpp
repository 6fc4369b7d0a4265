/* SPDX-License-Identifier: Apache-2.0 */
/* The smallest twill program in C++. Every rank adds its number to a sum, and a gradient is
 * averaged while something else is computed. Run it by twillrun -n 4 hello_cpp */
#include <cstdio>
#include <twill.hpp>
#include <vector>

int main()
{
    twill::comm world;
    if (world.init() != TWILL_OK)
        return 1; /* the reason was printed */

    double sum[] = {world.rank() + 1.0};
    twill_status status = world.allreduce(sum, TWILL_SUM);
    if (status == TWILL_OK)
        std::printf("rank %d of %d on node %d of %d: the sum of 1..%d is %g\n", world.rank(),
                    world.size(), world.node(), world.nodes(), world.size(), sum[0]);

    std::vector<float> gradients(1000, static_cast<float>(world.rank()));
    twill::request averaging;
    if (status == TWILL_OK)
        status = world.allreduce_start(gradients, TWILL_AVG, averaging);
    /* ... the next layer's gradients are computed here ... */
    if (status == TWILL_OK)
        status = averaging.wait();
    if (status != TWILL_OK)
        std::fprintf(stderr, "hello_cpp: %s\n", world.message());

    const float average = static_cast<float>(world.size() - 1) / 2;
    return status == TWILL_OK && sum[0] == world.size() * (world.size() + 1) / 2.0 &&
                   gradients[999] == average
               ? 0
               : 1;
}
