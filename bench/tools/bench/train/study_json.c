/* SPDX-License-Identifier: Apache-2.0 */
/* A scaling study as JSON: seconds, bytes and joules; what is unknown is null. */
#include "bench/tools/bench/train/study.h"

#include <math.h>

static void put_known(struct json_object *object, const char *key, bool known, double value)
{
    twill_json_real(object, key, known ? value : NAN);
}

/* Energy of the machines of the job, all together, and a rank's share. */
static void put_energy(struct json_object *object, const struct twill_bench_energy *energy)
{
    bool known = energy->known && energy->machines > 0;
    struct twill_bench_shares shares = {0};
    if (known && energy->ranks > 0)
        shares = twill_bench_shares(energy);
    put_known(object, "joules", known, energy->joules);
    put_known(object, "watts", known, energy->watts);
    put_known(object, "joules_of_rank", known && energy->ranks > 0, shares.rank_joules);
    put_known(object, "watts_of_rank", known && energy->ranks > 0, shares.rank_watts);
}

static struct json_object *row_json(const struct twill_study_row *row)
{
    const struct twill_study_step *step = &row->step;
    struct json_object *object = json_object_new_object();
    double speedup = 0, efficiency = 0, overhead = 0;
    bool known = step->seconds >= 0;
    bool related = known && twill_study_speedup(step, &speedup, &efficiency) &&
                   twill_study_overhead(step, &overhead);
    twill_json_text(object, "scaling", step->strong ? "strong" : "weak");
    twill_json_text(object, "pattern",
                    row->pattern == TWILL_STUDY_ROOT ? "bcast+reduce" : "allreduce");
    twill_json_text(object, "basis", row->predicted ? "predicted" : "measured");
    twill_json_count(object, "ranks", step->ranks);
    twill_json_count(object, "nodes", row->nodes);
    twill_json_count(object, "batch", step->batch);
    twill_json_count(object, "batch_of_rank",
                     twill_study_rank_batch(step->strong, step->ranks, step->batch));
    put_known(object, "compute", true, row->compute);
    put_known(object, "communication", row->communication >= 0, row->communication);
    put_known(object, "step", known, step->seconds);
    put_known(object, "alone", step->alone >= 0, step->alone);
    put_known(object, "throughput", known, twill_study_throughput(step));
    put_known(object, "speedup", related, speedup);
    put_known(object, "efficiency", related, efficiency);
    put_known(object, "overhead", related, overhead);
    put_known(object, "exposed", known, row->exposed);
    put_known(object, "exposed_alone", step->alone >= 0, row->exposed_alone);
    put_known(object, "ratio", row->communication > 0 && step->ranks > 1,
              row->compute / row->communication);
    put_known(object, "model", row->model >= 0, row->model);
    put_known(object, "root_bytes", row->root >= 0, row->root);
    put_energy(object, &row->energy[TWILL_STUDY_STEP]);
    struct json_object *phases[2] = {json_object_new_object(), json_object_new_object()};
    put_energy(phases[0], &row->energy[TWILL_STUDY_COMPUTING]);
    put_energy(phases[1], &row->energy[TWILL_STUDY_COMMUNICATION]);
    json_object_object_add(object, "computing_energy", phases[0]);
    json_object_object_add(object, "communication_energy", phases[1]);
    return object;
}

bool twill_study_json(struct twill_study *study)
{
    struct json_object *object = study->json.root, *rows = json_object_new_array(),
                       *lines = json_object_new_array();
    twill_json_text(object, "list", study->options.list);
    twill_json_count(object, "parameters", (size_t)study->run.list.total);
    twill_json_text(object, "type", "f32");
    twill_json_text(object, "played_by", study->options.core ? "core" : "device");
    put_known(object, "device_gflops", study->options.compute_us.n == 0,
              (double)study->options.gflops);
    twill_json_count(object, "iterations", study->options.iterations);
    twill_json_count(object, "ranks_of_a_node", twill_study_per_node(study));
    twill_json_text(object, "machine", study->options.machine);
    twill_json_count(object, "samples", study->options.samples);
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(study->run.context, i)) != NULL; i++)
        json_object_array_add(lines, json_object_new_string(line));
    json_object_object_add(object, "description", lines);
    for (size_t i = 0; i < study->n_rows; i++)
        json_object_array_add(rows, row_json(&study->rows[i]));
    json_object_object_add(object, "rows", rows);
    return twill_json_file_close(&study->json);
}
