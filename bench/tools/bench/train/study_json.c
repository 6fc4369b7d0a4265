/* SPDX-License-Identifier: Apache-2.0 */
/* A scaling study as JSON: seconds, bytes and joules; what is unknown is null. */
#include "bench/tools/bench/train/study.h"

#include <json-c/json.h>

static void put_real(struct json_object *object, const char *key, bool known, double value)
{
    json_object_object_add(object, key, known ? json_object_new_double(value) : NULL);
}

static void put_count(struct json_object *object, const char *key, size_t value)
{
    json_object_object_add(object, key, json_object_new_uint64(value));
}

static void put_text(struct json_object *object, const char *key, const char *text)
{
    json_object_object_add(object, key, text != NULL ? json_object_new_string(text) : NULL);
}

/* Energy of the machines of the job, all together, and a rank's share. */
static void put_energy(struct json_object *object, const struct twill_bench_energy *energy)
{
    bool known = energy->known && energy->machines > 0;
    struct twill_bench_shares shares = {0};
    if (known && energy->ranks > 0)
        shares = twill_bench_shares(energy);
    put_real(object, "joules", known, energy->joules);
    put_real(object, "watts", known, energy->watts);
    put_real(object, "joules_of_rank", known && energy->ranks > 0, shares.rank_joules);
    put_real(object, "watts_of_rank", known && energy->ranks > 0, shares.rank_watts);
}

static struct json_object *row_json(const struct twill_study_row *row)
{
    const struct twill_study_step *step = &row->step;
    struct json_object *object = json_object_new_object();
    double speedup = 0, efficiency = 0, overhead = 0;
    bool known = step->seconds >= 0;
    bool related = known && twill_study_speedup(step, &speedup, &efficiency) &&
                   twill_study_overhead(step, &overhead);
    put_text(object, "scaling", step->strong ? "strong" : "weak");
    put_text(object, "pattern", row->pattern == TWILL_STUDY_ROOT ? "bcast+reduce" : "allreduce");
    put_text(object, "basis", row->predicted ? "predicted" : "measured");
    put_count(object, "ranks", step->ranks);
    put_count(object, "nodes", row->nodes);
    put_count(object, "batch", step->batch);
    put_count(object, "batch_of_rank",
              twill_study_rank_batch(step->strong, step->ranks, step->batch));
    put_real(object, "compute", true, row->compute);
    put_real(object, "communication", row->communication >= 0, row->communication);
    put_real(object, "step", known, step->seconds);
    put_real(object, "alone", step->alone >= 0, step->alone);
    put_real(object, "throughput", known, twill_study_throughput(step));
    put_real(object, "speedup", related, speedup);
    put_real(object, "efficiency", related, efficiency);
    put_real(object, "overhead", related, overhead);
    put_real(object, "exposed", known, row->exposed);
    put_real(object, "exposed_alone", step->alone >= 0, row->exposed_alone);
    put_real(object, "ratio", row->communication > 0 && step->ranks > 1,
             row->compute / row->communication);
    put_real(object, "model", row->model >= 0, row->model);
    put_real(object, "root_bytes", row->root >= 0, row->root);
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
    put_text(object, "list", study->options.list);
    put_count(object, "parameters", (size_t)study->run.list.total);
    put_text(object, "type", "f32");
    put_text(object, "played_by", study->options.core ? "core" : "device");
    put_real(object, "device_gflops", study->options.compute_us.n == 0,
             (double)study->options.gflops);
    put_count(object, "iterations", study->options.iterations);
    put_count(object, "ranks_of_a_node", twill_study_per_node(study));
    put_text(object, "machine", study->options.machine);
    put_count(object, "samples", study->options.samples);
    const char *line;
    for (size_t i = 0; (line = twill_context_describe(study->run.context, i)) != NULL; i++)
        json_object_array_add(lines, json_object_new_string(line));
    json_object_object_add(object, "description", lines);
    for (size_t i = 0; i < study->n_rows; i++)
        json_object_array_add(rows, row_json(&study->rows[i]));
    json_object_object_add(object, "rows", rows);
    return twill_json_file_close(&study->json);
}
