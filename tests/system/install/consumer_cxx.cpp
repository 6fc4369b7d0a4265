/* SPDX-License-Identifier: Apache-2.0 */
/* A user's program in C++: the header must compile there, and the names must link. */
#include <cstdint>
#include <iostream>
#include <twill.h>
#include <vector>

int main()
{
    twill_comm *comm = nullptr;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    int rank = twill_comm_rank(comm), size = twill_comm_size(comm);
    std::vector<std::int64_t> sent(100, rank == 0 ? 42 : 0), got(100);
    twill_status status = twill_broadcast(comm, sent.data(), got.data(), got.size(), TWILL_I64, 0);
    int wrong = 0;
    for (std::int64_t value : got)
        wrong += value != 42;
    std::cout << "consumer: rank " << rank << " of " << size << ", C++: " << twill_strerror(status)
              << ", " << wrong << " wrong" << std::endl;
    twill_finalize(comm);
    return status == TWILL_OK && wrong == 0 ? 0 : 1;
}
