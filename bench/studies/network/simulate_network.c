/* SPDX-License-Identifier: Apache-2.0 */
/* simulate-network simulates an allreduce on networks of thousands of nodes, with contention. It
 * prints the result beside the price of the machine model and what was measured on Theta. */
#include "algorithms/select/candidates.h"
#include "algorithms/select/price.h"
#include "algorithms/select/tuning_file.h"
#include "bench/common/progress_line.h"
#include "bench/common/report.h"
#include "bench/studies/network/simulated_network.h"
#include "lib/base/plural.h"

#include <getopt.h>
#include <simgrid/engine.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define DETOUR_RUNS 30
#define EVERY_MOST  4

/* The delays that --theta adds. THETA_COPY is the rate in GB/s at which a KNL copies a message at
 * each end. Open MPI's message over Aries takes 0.71 us more for 2 KiB than for 8 bytes between
 * Xeons, and the link explains 0.26 of them, so that a Xeon copies at 9.1 GB/s. A message of 8
 * bytes takes 5.07 times as long between KNLs (libfabric-cray, issue 1055). The detours of a core
 * are estimated from 48 nodes and 8 bytes. */
#define THETA_COPY    1.79
#define THETA_DETOURS 13.0
#define THETA_DETOUR  100e-6

static const char usage[] =
    "Usage: simulate-network [-n NODES] [-r RANKS] [-b BYTES] [-a ALGORITHM]\n"
    "                        [-w NETWORK] [-l] [-c RATE] [-d N,US] [-e] [-t]\n"
    "Simulate an allreduce of f32 on the machine model \"theta\".\n"
    "\n"
    "  -n, --nodes N        nodes (48)\n"
    "  -r, --ranks N        ranks of each node (1)\n"
    "  -b, --bytes SIZE     of the message (8), at most 4M\n"
    "  -a, --algorithm NAME (recursive_doubling), or \"chosen\": the one with the\n"
    "                       lowest price\n"
    "  -w, --network NAME   flat, aries (default), minimal, fattree, fattree2 or\n"
    "                       fattree4\n"
    "  -l, --lines          in a node, cache lines of a KNL one after the other, in\n"
    "                       place of the model\n"
    "  -c, --copies RATE    each end also copies a message, at RATE GB/s (off)\n"
    "  -d, --detours N,US   N times a second something else runs on a core for US us\n"
    "                       (off); the mean of 30 runs\n"
    "  -e, --every          every candidate of the choice up to 4 times its price,\n"
    "                       with price and simulated time, and then the choice\n"
    "  -t, --theta          what was measured on Theta, with prices and simulations\n"
    "                       beside it\n"
    "  -h, --help\n";

/* An allreduce to simulate. The options of the command line describe it or, with --theta, one of
 * the measurements in figures[]. */
struct network_question {
    size_t nodes, ranks, bytes; /* ranks of each node, bytes of the message */
    const char *algorithm;
    const struct simulated_network *network;
    bool lines;             /* ranks of a node access cache lines as on a KNL, one by one */
    double copy_rate;       /* GB/s, or 0 if messages are not copied once more */
    double detours, detour; /* how often a second other work runs on a core, and its seconds */
    uint64_t seed;
};

/* The answer to a question, in microseconds. `simulated` is the mean of the simulations that
 * answer_question() makes, `least` and `most` are the shortest and the longest. */
struct network_answer {
    double price, simulated, least, most;
    char algorithm[48];
};

/* Make the world of a question, with its nodes and, as groups of nodes, the units of its network.
 * Returns false if there are too many ranks or no memory. */
static bool open_world(struct twill_world *world, const struct network_question *question)
{
    size_t size = question->nodes * question->ranks;
    uint32_t *label = calloc(size, sizeof(*label));
    if (label == NULL || size > TWILL_WORLD_MAX_RANKS) {
        free(label);
        return false;
    }
    for (size_t r = 0; r < size; r++)
        label[r] = (uint32_t)(r / question->ranks);
    bool made = twill_world_create(world, (uint32_t)size, label, NULL) == TWILL_OK;
    uint32_t unit = question->network->unit_nodes;
    for (size_t r = 0; r < size && unit > 0; r++)
        label[r] = (uint32_t)(r / question->ranks / unit);
    made = made &&
           (unit == 0 || twill_world_set_level(world, TWILL_LEVEL_GROUP, label, NULL) == TWILL_OK);
    free(label);
    return made;
}

/* Return the model of a question. In a fat tree the nodes of a leaf switch share its links. */
static struct twill_machine_model model_of(const struct network_question *question)
{
    struct twill_machine_model model = *twill_machine_model_find("theta");
    model.link[TWILL_LINK_GROUP].port = question->network->oversubscribed * model.interface;
    return model;
}

/* Set algorithm and shape of *call as the question says, or to those of the lowest price. */
static twill_status choose_call(const struct network_question *question,
                                struct simulated_call *call, struct twill_error *error)
{
    struct twill_tuning *tuning;
    struct twill_chooser *chooser;
    struct twill_choice choice;
    struct twill_select_request request = {
        .collective = TWILL_ALLREDUCE, .bytes = question->bytes, .type = TWILL_F32};
    const char *requested = strcmp(question->algorithm, "chosen") == 0 ? NULL : question->algorithm;
    char text[80];
    if (requested != NULL)
        snprintf(text, sizeof(text), "allreduce:%s", requested);
    TWILL_TRY(error, twill_tuning_create(&tuning, "theta", NULL, NULL, error));
    tuning->model = *call->model;
    twill_status status =
        twill_chooser_create(&chooser, call->world, tuning, requested == NULL ? NULL : text, error);
    if (status == TWILL_OK) {
        status = twill_select(&choice, chooser, &request, error);
        twill_chooser_destroy(chooser);
    }
    twill_tuning_destroy(tuning);
    if (status == TWILL_OK) {
        call->algorithm = choice.algorithm;
        call->shape = choice.shape;
    }
    return status;
}

/* Answer the question in this process, which must be a child. SimGrid loads only one platform. */
static twill_status answer_here(const struct network_question *question,
                                struct network_answer *answer, struct twill_error *error)
{
    char path[] = "/tmp/simulate-network-XXXXXX.xml";
    const char *arguments[] = {
        "simulate-network",         "--log=root.thres:error",       "--cfg=contexts/stack-size:64",
        "--cfg=network/model:CM02", "--cfg=network/crosstraffic:0", NULL};
    int count = (int)TWILL_ARRAY_LENGTH(arguments) - 1, file = mkstemps(path, 4);
    struct twill_world world;
    struct twill_machine_model model = model_of(question);
    struct simulated_call call = {.world = &world,
                                  .model = &model,
                                  .bytes = question->bytes,
                                  .lines = question->lines,
                                  .detours = question->detours,
                                  .detour = question->detour,
                                  .seed = question->seed};
    uint64_t price = 0;
    if (question->copy_rate > 0)
        call.copies = (uint64_t)(1024 * 1e12 / (question->copy_rate * 1e9));
    if (file < 0 || !open_world(&world, question))
        return TWILL_FAIL(error, TWILL_ERR_MEMORY, "no memory, or more than %u ranks",
                          TWILL_WORLD_MAX_RANKS);
    close(file);
    TWILL_TRY(error, choose_call(question, &call, error));
    TWILL_TRY(error, twill_price(&price, call.algorithm, &world, &call.shape, call.model,
                                 call.bytes, twill_wide_elements(TWILL_F32), error));
    answer->price = (double)price / 1e6;
    snprintf(answer->algorithm, sizeof(answer->algorithm), "%s@%s", call.algorithm->name,
             twill_protocol_name(call.shape.protocol));
    simgrid_init(&count, (char **)(uintptr_t)arguments);
    if (!network_write(question->network, call.model, (uint32_t)question->nodes, path))
        return TWILL_FAIL(error, TWILL_ERR_INTERNAL, "cannot write %s", path);
    simgrid_load_platform(path);
    unlink(path);
    answer->simulated = network_run(&call, error) * 1e6;
    twill_world_destroy(&world);
    return answer->simulated < 0 ? error->status : TWILL_OK;
}

/* Answer the question in a child process. Returns false if that fails. */
static bool answer_once(const struct network_question *question, struct network_answer *answer)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        return false;
    pid_t child = fork();
    if (child == 0) {
        struct twill_error error = {.status = TWILL_OK};
        memset(answer, 0, sizeof(*answer));
        if (answer_here(question, answer, &error) != TWILL_OK) {
            fprintf(stderr, "simulate-network: %s\n", error.message);
            _exit(1);
        }
        _exit(write(ends[1], answer, sizeof(*answer)) == (ssize_t)sizeof(*answer) ? 0 : 1);
    }
    close(ends[1]);
    bool done = child > 0 && read(ends[0], answer, sizeof(*answer)) == (ssize_t)sizeof(*answer);
    close(ends[0]);
    return child > 0 && waitpid(child, &status, 0) == child && done;
}

/* Compute the price and the simulated time of an allreduce. If other programs run on the cores
 * (question.detours), at random times, the answer is from DETOUR_RUNS simulations. Returns false if
 * one of them fails. */
static bool answer_question(struct network_question question, struct network_answer *answer)
{
    double sum = 0, least = 0, most = 0;
    unsigned runs = question.detours > 0 ? DETOUR_RUNS : 1;
    for (unsigned i = 0; i < runs; i++) {
        question.seed = i + 1;
        if (!answer_once(&question, answer))
            return false;
        sum += answer->simulated;
        least = i == 0 || answer->simulated < least ? answer->simulated : least;
        most = answer->simulated > most ? answer->simulated : most;
    }
    answer->simulated = sum / runs;
    answer->least = least;
    answer->most = most;
    return true;
}

/* The time in us of an allreduce of Cray MPI on Theta, from public material of ALCF. `ranks` are
 * those of each node, `bytes` the message. */
static const struct theta_figure {
    size_t nodes, ranks, bytes;
    double measured;
} figures[] = {{12, 1, 8, 33.6},  {24, 1, 8, 41.3},  {48, 1, 8, 51.9},    {384, 1, 8, 172},
               {48, 1, 2048, 70}, {48, 4, 2048, 86}, {48, 16, 2048, 178}, {48, 64, 2048, 235}};

/* Simulate an allreduce and print its time and by how many percent that differs from `measured`, in
 * microseconds. Returns false if the simulation fails. */
static bool print_simulated(const struct network_question *question, double measured)
{
    struct network_answer answer;
    if (!answer_question(*question, &answer))
        return false;
    printf(" %9.1f %+6.0f |", answer.simulated, 100 * (answer.simulated / measured - 1));
    fflush(stdout); /* the next answer comes from a copy of this process */
    return true;
}

/* Simulate an allreduce four times, each with one more cause of delay, and print each time beside
 * `measured` (us). The causes are copies of messages, a first reduction in each node, as in Cray
 * MPI, cache lines, and other programs. Returns false if a simulation fails. */
static bool print_causes(struct network_question question, double measured)
{
    question.copy_rate = THETA_COPY;
    if (!print_simulated(&question, measured))
        return false;
    if (question.ranks > 1)
        question.algorithm = "hierarchical:recursive_doubling@flat";
    if (!print_simulated(&question, measured))
        return false;
    question.lines = true;
    if (!print_simulated(&question, measured))
        return false;
    question.detours = THETA_DETOURS;
    question.detour = THETA_DETOUR;
    return print_simulated(&question, measured);
}

/* Print a table with a line for each allreduce measured on the machine Theta, in figures[]. Beside
 * the time are prices and simulations, and how far each is off. Returns false if a simulation
 * fails. */
static bool print_theta(struct network_question question)
{
    printf("%6s %6s %6s %9s | %9s %6s | %9s %6s | %9s %6s | %9s %6s | %9s %6s | %9s %6s | "
           "%-36s %9s %9s\n",
           "nodes", "ranks", "bytes", "measured", "price", "%", "simulated", "%", "+copies", "%",
           "+node", "%", "+lines", "%", "+detours", "%", "chosen", "price", "simulated");
    fflush(stdout);
    struct twill_bench_progress progress;
    twill_bench_progress_begin(&progress, true);
    for (size_t i = 0; i < TWILL_ARRAY_LENGTH(figures); i++) {
        const struct theta_figure *f = &figures[i];
        twill_bench_progress_show(&progress, i, TWILL_ARRAY_LENGTH(figures), "simulations");
        struct network_answer doubling, chosen;
        question.nodes = f->nodes;
        question.ranks = f->ranks;
        question.bytes = f->bytes;
        question.algorithm = "recursive_doubling";
        if (!answer_question(question, &doubling))
            return false;
        twill_bench_progress_clear(&progress);
        printf("%6zu %6zu %6zu %9.1f | %9.1f %+6.0f | %9.1f %+6.0f |", f->nodes, f->ranks, f->bytes,
               f->measured, doubling.price, 100 * (doubling.price / f->measured - 1),
               doubling.simulated, 100 * (doubling.simulated / f->measured - 1));
        fflush(stdout);
        if (!print_causes(question, f->measured))
            return false;
        question.algorithm = "chosen";
        if (!answer_question(question, &chosen))
            return false;
        printf(" %-36s %9.1f %9.1f\n", chosen.algorithm, chosen.price, chosen.simulated);
        fflush(stdout);
    }
    return true;
}

/* Simulate a candidate of the choice, and print its price and simulated time in us. Sets `least` to
 * the simulated time if it is less. Returns false if the simulation fails. */
static bool print_candidate(struct network_question question, const struct twill_candidate *c,
                            double *least)
{
    struct network_answer answer;
    char name[64];
    int used = snprintf(name, sizeof(name), "%s", c->algorithm->name);
    if (c->shape.parameter[0] != 0)
        used += snprintf(name + used, sizeof(name) - (size_t)used, "=%u", c->shape.parameter[0]);
    if (c->algorithm->protocols != 0)
        snprintf(name + used, sizeof(name) - (size_t)used, "@%s",
                 twill_protocol_name(c->shape.protocol));
    question.algorithm = name;
    if (!answer_question(question, &answer))
        return false;
    *least = *least == 0 || answer.simulated < *least ? answer.simulated : *least;
    printf("%-36s price %10.1f simulated %10.1f\n", name, answer.price, answer.simulated);
    fflush(stdout); /* the next answer comes from a copy of this process */
    return true;
}

/* Print every candidate of a choice, unless its price is EVERY_MOST times the lowest or more, and
 * then the choice. Returns false if a simulation fails. */
static bool print_every(struct network_question question)
{
    struct twill_world world;
    struct twill_candidates *all;
    struct twill_tuning tuning = {.model = model_of(&question)};
    struct twill_select_request request = {
        .collective = TWILL_ALLREDUCE, .bytes = question.bytes, .type = TWILL_F32};
    struct network_answer chosen;
    uint64_t lowest = UINT64_MAX;
    double least = 0;
    bool done = true;
    if (!open_world(&world, &question) ||
        twill_candidates_create(&all, &world, &tuning, &request, NULL, NULL, NULL) != TWILL_OK)
        return false;
    for (size_t i = 0; i < all->count; i++)
        if (twill_candidate_competes(&all->candidate[i], question.bytes, 0))
            lowest = twill_min(lowest, twill_candidate_cost(&all->candidate[i], question.bytes));
    struct twill_bench_progress progress;
    twill_bench_progress_begin(&progress, true);
    for (size_t i = 0; i < all->count && done; i++) {
        twill_bench_progress_show(&progress, i, all->count, "algorithms");
        if (twill_candidate_competes(&all->candidate[i], question.bytes, 0) &&
            twill_candidate_cost(&all->candidate[i], question.bytes) / EVERY_MOST < lowest) {
            twill_bench_progress_clear(&progress);
            done = print_candidate(question, &all->candidate[i], &least);
        }
    }
    twill_bench_progress_clear(&progress);
    twill_candidates_destroy(all);
    twill_world_destroy(&world);
    question.algorithm = "chosen";
    if (!done || !answer_question(question, &chosen))
        return false;
    printf("%s is chosen, simulated %.1f, the least %.1f\n", chosen.algorithm, chosen.simulated,
           least);
    return true;
}

/* Return the network with this name, or NULL if there is none. */
static const struct simulated_network *find_network(const char *name)
{
    size_t i = 0;
    while (network_at(i) != NULL && strcmp(network_at(i)->name, name) != 0)
        i++;
    return network_at(i);
}

/* Set *question by the options, and *theta and *every to true if --theta and --every are among
 * them. Returns false if an option is wrong or a word is left over. */
static bool parse_question(int argc, char **argv, struct network_question *question, bool *theta,
                           bool *every)
{
    static const struct option options[] = {{"nodes", required_argument, NULL, 'n'},
                                            {"ranks", required_argument, NULL, 'r'},
                                            {"bytes", required_argument, NULL, 'b'},
                                            {"algorithm", required_argument, NULL, 'a'},
                                            {"network", required_argument, NULL, 'w'},
                                            {"lines", no_argument, NULL, 'l'},
                                            {"copies", required_argument, NULL, 'c'},
                                            {"detours", required_argument, NULL, 'd'},
                                            {"theta", no_argument, NULL, 't'},
                                            {"every", no_argument, NULL, 'e'},
                                            {NULL, 0, NULL, 0}};
    bool right = true;
    for (int c; right && (c = getopt_long(argc, argv, "n:r:b:a:w:lc:d:te", options, NULL)) != -1;) {
        if (c == 'n')
            right = twill_bench_parse_number(optarg, 1, TWILL_WORLD_MAX_RANKS, &question->nodes);
        else if (c == 'r')
            right = twill_bench_parse_number(optarg, 1, 4096, &question->ranks);
        else if (c == 'b')
            right = twill_bench_parse_size(optarg, &question->bytes) &&
                    question->bytes <= (size_t)4 << 20;
        else if (c == 'a')
            question->algorithm = optarg;
        else if (c == 'w')
            right = (question->network = find_network(optarg)) != NULL;
        else if (c == 'l')
            question->lines = true;
        else if (c == 'c')
            right = sscanf(optarg, "%lf", &question->copy_rate) == 1 && question->copy_rate > 0;
        else if (c == 'd') {
            right = sscanf(optarg, "%lf,%lf", &question->detours, &question->detour) == 2 &&
                    question->detours > 0 && question->detour > 0;
            question->detour *= 1e-6;
        } else if (c == 't')
            *theta = true;
        else if (c == 'e')
            *every = true;
        else
            right = false;
    }
    return right && optind == argc;
}

/* Run simulate-network. Prints the price and the simulated time of the allreduce that the options
 * describe, or the table of --theta. Returns 0, 1 if a simulation fails, or 2 for a wrong command
 * line. */
int main(int argc, char **argv)
{
    struct network_question question = {.nodes = 48,
                                        .ranks = 1,
                                        .bytes = 8,
                                        .algorithm = "recursive_doubling",
                                        .network = find_network("aries")};
    struct network_answer answer;
    bool theta = false, every = false;
    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        fputs(usage, stdout);
        return 0;
    }
    if (!parse_question(argc, argv, &question, &theta, &every)) {
        fputs(usage, stderr);
        return 2;
    }
    if (theta)
        return print_theta(question) ? 0 : 1;
    if (every)
        return print_every(question) ? 0 : 1;
    if (!answer_question(question, &answer))
        return 1;
    printf("%s on %s, %zu node%s x %zu rank%s, %zu bytes: price %.1f us, simulated %.1f us",
           answer.algorithm, question.network->name, question.nodes, TWILL_PLURAL(question.nodes),
           question.ranks, TWILL_PLURAL(question.ranks), question.bytes, answer.price,
           answer.simulated);
    if (question.detours > 0)
        printf(", %.1f to %.1f in %d runs", answer.least, answer.most, DETOUR_RUNS);
    printf("\n");
    return 0;
}
