/* SPDX-License-Identifier: Apache-2.0 */
/* Random collective calls, several in progress on several communicators, with messages in between,
 * completed in a different way and order on each rank. Chosen by TEST_SEED and TEST_ROUNDS. */
#include "cases.h"

#include <stdio.h>
#include <string.h>

enum { FUZZ_AT_ONCE = 6, MESSAGES = 2, REQUESTS = FUZZ_AT_ONCE + 2 * MESSAGES + 1 };

static struct where comms[SWEPT_COMMS];

static void draw_spec(struct spec *spec, uint64_t *seed)
{
    static const int counts[] = {0, 1, 2, 7, 60, 999, 5003, 40009};
    const struct where *where = &comms[below(seed, SWEPT_COMMS)];
    do {
        *spec = (struct spec){.call = (enum call)below(seed, CALLS),
                              .form = (enum form)below(seed, FORMS),
                              .comm = where->comm,
                              .where = where->name,
                              .root = below(seed, harness.size),
                              .count = counts[below(seed, 8)],
                              .base = &bases.base[below(seed, bases.count)],
                              .in_place = below(seed, 3) == 0,
                              .misaligned = below(seed, 4) == 0,
                              .strange = below(seed, 2),
                              .seed = next(seed)};
        if (calls[spec->call].reduces) {
            if (below(seed, 4) == 0)
                spec->user = &user_operations[below(seed, USER_OPERATIONS)];
            else
                spec->operation = &operations[below(seed, PREDEFINED_OPS)];
            if (spec->user && spec->count > 1000)
                spec->count = 100;
        } else if (spec->call == BARRIER) {
            spec->base = NULL;
        } else if (spec->base->extent <= 16 && spec->base->kind != EXTENDED && below(seed, 2)) {
            spec->layout = below(seed, LAYOUTS + 1);
            spec->bottom = below(seed, 3) == 0;
        }
    } while ((spec->operation && !operation_takes(spec->operation, spec->base)) ||
             !spec_possible_anywhere(spec, harness.size / 2));
}

/* Complete the requests in a different way each time; to[] is 0 where there is nothing. */
static void requests_complete_all(MPI_Request *requests, int count, uint64_t *seed, int careful)
{
    int way = below(seed, 7), n = 0, flag = 0, indices[REQUESTS];
    MPI_Status statuses[REQUESTS];
    if (careful) /* MPICH does not see that its persistent collectives are inactive */
        way = way % 2 ? 0 : 6;
    switch (way) {
    case 0:
        OK(MPI_Waitall(count, requests, statuses));
        break;
    case 1:
        while (n != MPI_UNDEFINED && MPI_Waitany(count, requests, &n, statuses) == MPI_SUCCESS)
            ;
        break;
    case 2:
        while (n != MPI_UNDEFINED &&
               MPI_Waitsome(count, requests, &n, indices, statuses) == MPI_SUCCESS)
            ;
        break;
    case 3:
        while (!(flag && n == MPI_UNDEFINED) &&
               MPI_Testany(count, requests, &n, &flag, statuses) == MPI_SUCCESS)
            ;
        break;
    case 4:
        while (n != MPI_UNDEFINED &&
               MPI_Testsome(count, requests, &n, indices, statuses) == MPI_SUCCESS)
            ;
        break;
    case 5:
        while (!flag && MPI_Testall(count, requests, &flag, statuses) == MPI_SUCCESS)
            ;
        break;
    default:
        for (int i = 0, first = below(seed, count); i < count; i++)
            OK(MPI_Wait(&requests[(first + i) % count], statuses));
        break;
    }
}

/* Messages around the ring, whose requests are mixed with those of collectives. */
struct ring {
    int sent[MESSAGES][300], received[MESSAGES][300];
};

static int start_messages(struct ring *ring, MPI_Request *requests, uint64_t seed)
{
    int right = (harness.rank + 1) % harness.size,
        left = (harness.rank + harness.size - 1) % harness.size;
    for (int i = 0; i < MESSAGES; i++) {
        fill_bytes(ring->sent[i], sizeof ring->sent[i],
                   mix(seed, (uint64_t)(harness.rank * MESSAGES + i)));
        OK(MPI_Irecv(ring->received[i], 300, MPI_INT, left, i, MPI_COMM_WORLD, &requests[2 * i]));
        OK(MPI_Isend(ring->sent[i], 300, MPI_INT, right, i, MPI_COMM_WORLD, &requests[2 * i + 1]));
    }
    return 2 * MESSAGES;
}

static void check_messages(const struct ring *ring, uint64_t seed)
{
    int left = (harness.rank + harness.size - 1) % harness.size, expected[300];
    for (int i = 0; i < MESSAGES; i++) {
        fill_bytes(expected, sizeof expected, mix(seed, (uint64_t)(left * MESSAGES + i)));
        CHECK(memcmp(expected, ring->received[i], sizeof expected) == 0, "message %d from %d", i,
              left);
    }
}

static void round_of(int number, uint64_t *seed)
{
    static struct mpi_case cases[FUZZ_AT_ONCE];
    static struct ring ring;
    MPI_Request requests[REQUESTS];
    int count = 1 + below(seed, FUZZ_AT_ONCE), many = 0, careful = 0;
    uint64_t messages = next(seed), mine = mix(next(seed), (uint64_t)harness.rank);
    many = start_messages(&ring, requests, messages);
    for (int i = 0; i < count; i++) {
        struct spec spec;
        draw_spec(&spec, seed);
        case_prepare(&cases[i], &spec);
        case_print(&cases[i]);
        case_fill(&cases[i]);
        case_start(&cases[i]);
        careful |= case_is_careful(&cases[i]);
        requests[many + i] = cases[i].request;
    }
    many += count;
    requests[many++] = MPI_REQUEST_NULL;
    requests_complete_all(requests, many, &mine, careful);
    check_messages(&ring, messages);
    for (int i = 0; i < count; i++) {
        cases[i].request = requests[2 * MESSAGES + i];
        case_check(&cases[i]);
        if (case_has_rounds(&cases[i]) && number % 2 == 0) {
            case_fill(&cases[i]);
            case_start(&cases[i]);
            complete(&cases[i].request, below(&mine, 2));
            case_check(&cases[i]);
        }
        case_free(&cases[i]);
    }
}

int main(int argc, char **argv)
{
    harness_begin(&argc, &argv, "random_calls");
    uint64_t seed = mix(harness.seed, 4711);
    bases_find();
    userops_make();
    comms_make(comms);
    long rounds = environment_number("TEST_ROUNDS", harness.thorough ? 5000 : 300);
    for (int i = 0; i < rounds; i++)
        round_of(i, &seed);
    comms_free(comms);
    userops_free();
    return harness_end();
}
