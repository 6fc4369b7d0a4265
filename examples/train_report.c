/* SPDX-License-Identifier: Apache-2.0 */
#include "train.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Sum the loss and the right answers over all ranks. Returns 0, or -1 with a message. */
static int evaluate(struct training *t, const struct example_set *set, double result[2])
{
    size_t right = 0;
    result[0] = 0;
    for (size_t i = 0; i < set->count; i++)
        result[0] += example_network_judge(&t->network, set->values + i * set->features,
                                           set->labels[i], &right);
    result[1] = (double)right;
    return example_reduce(t, result, 2, TWILL_F64, TWILL_SUM);
}

/* Check that the parameters are equal bit for bit on all ranks, and print a hash of them. Returns
 * 0, or -1 with a message. */
static int compare_parameters(struct training *t)
{
    twill_status status = twill_gradients_check(t->set);
    if (status != TWILL_OK) {
        snprintf(t->message, sizeof(t->message), "%s", twill_gradients_message(t->set));
        return -1;
    }
    uint64_t hash = UINT64_C(0xcbf29ce484222325); /* FNV-1a */
    for (int i = 0; i < EXAMPLE_TENSORS; i++) {
        const unsigned char *bytes = (const unsigned char *)t->network.weights[i];
        for (size_t j = 0; j < t->network.count[i] * sizeof(float); j++)
            hash = (hash ^ bytes[j]) * UINT64_C(0x100000001b3);
    }
    if (t->rank == 0)
        printf("parameters         bit-identical on %d rank%s (hash %016llx)\n", t->size,
               t->size == 1 ? "" : "s", (unsigned long long)hash);
    return 0;
}

/* Print what this rank's set has moved, and which ranks it has waited for. */
static void print_exchange(const struct training *t)
{
    twill_gradients_counters counters = {0};
    twill_counters ended = {0};
    const char *line = NULL;
    twill_gradients_count(t->set, &counters);
    twill_gradients_traffic(t->set, &ended);
    double steps = counters.steps > 0 ? (double)counters.steps : 1;
    printf("exchange    %llu step%s of %llu bucket%s; of each, %.0f bytes of gradients, %.0f "
           "exchanged",
           (unsigned long long)counters.steps, counters.steps == 1 ? "" : "s",
           (unsigned long long)counters.buckets, counters.buckets == 1 ? "" : "s",
           (double)counters.bytes / steps, (double)counters.bytes_exchanged / steps);
    if (ended.bytes_wire > 0)
        printf(", %.0f sent to other nodes", (double)ended.bytes_wire / steps);
    printf("\ncopies      %llu bytes into and out of buckets, %.1f a step in the library; "
           "%llu registration%s in the first step, %llu after it\n",
           (unsigned long long)counters.bytes_copied,
           (double)(ended.bytes_copied - t->started.bytes_copied) / steps,
           (unsigned long long)t->started.registrations, t->started.registrations == 1 ? "" : "s",
           (unsigned long long)(ended.registrations - t->started.registrations));
    for (size_t i = 0; i < 2 && (line = twill_gradients_times(t->set, i)) != NULL; i++)
        printf("%s%s\n", i == 0 ? "rank 0      " : "            ", line);
}

static int print_phases(struct training *t)
{
    static const char *const names[] = {"load",       "preprocess", "train",
                                        " computing", " exposed",   "evaluate"};
    struct example_phase phases[PHASES];
    for (int i = 0; i < PHASES; i++)
        phases[i] = (struct example_phase){.name = names[i], .seconds = t->seconds[i]};
    phases[EXPOSED].note = "communication that computing does not hide";
    if (example_print_phases(t->comm, phases, PHASES) != TWILL_OK) {
        snprintf(t->message, sizeof(t->message), "%s", twill_comm_message(t->comm));
        return -1;
    }
    double processor = t->processor;
    if (example_reduce(t, &processor, 1, TWILL_F64, TWILL_SUM) != 0)
        return -1;
    if (t->rank == 0)
        printf("processor   %.4f s of all ranks to train\n", processor);
    if (t->rank == 0)
        print_exchange(t);
    return 0;
}

double example_exposed(const struct training *t)
{
    twill_gradients_counters counters = {0};
    return twill_gradients_count(t->set, &counters) == TWILL_OK ? counters.seconds_exposed : 0;
}

void example_print_share(const struct training *t)
{
    double seconds = example_now() - t->epoch_start;
    double share = (example_exposed(t) - t->epoch_exposed) / seconds;
    printf("              synchronising %.1f %%, without it at most %.2f times as fast\n",
           100 * share, 1 / (1 - share));
}

int example_print_accuracy(struct training *t)
{
    double start = example_now(), before = (double)clock(), tested[2];
    if (evaluate(t, &t->held_out, tested) != 0)
        return -1;
    if (t->rank == 0)
        printf("  epoch %4zu  accuracy %.4f after %.3f s\n", (size_t)t->at.epoch,
               tested[1] / (double)(t->file.samples - t->samples), start - t->start - t->judging);
    t->judging += example_now() - start;
    t->judged += ((double)clock() - before) / CLOCKS_PER_SEC;
    return 0;
}

int example_report(struct training *t)
{
    double start = example_now(), fitted[2], tested[2];
    if (evaluate(t, &t->train, fitted) != 0 || evaluate(t, &t->held_out, tested) != 0)
        return -1;
    t->seconds[EVALUATE] = example_now() - start;
    size_t held_out = t->file.samples - t->samples;
    if (t->rank == 0) {
        printf("\ntrain loss         %.12g\n", fitted[0] / (double)t->samples);
        printf("held-out loss      %.12g\n", tested[0] / (double)held_out);
        printf("held-out accuracy  %.4f (%.0f of %zu)\n", tested[1] / (double)held_out, tested[1],
               held_out);
    }
    return compare_parameters(t) || print_phases(t);
}
