/* SPDX-License-Identifier: Apache-2.0 */
/* Options: defaults and checks. */
#include "kernels/training/optimizer.h"
#include "lib/server/server.h"

#include <string.h>

#define CREDITS_MOST    1024
#define DISTANCES_BELOW 1e30

void twill_server_defaults(twill_server_options *options)
{
    if (options != NULL)
        *options = (twill_server_options){.bytes = sizeof(*options),
                                          .servers = 1,
                                          .k = 1,
                                          .op = TWILL_AVG,
                                          .distance_c = 1,
                                          .distance_most = 1,
                                          .replicas = 1,
                                          .credits = 8,
                                          .error_feedback = 1,
                                          .compression_ratio = 0.01};
}

static twill_status check_optimizer(const twill_server_options *o, struct twill_error *error)
{
    if (o->optimizer == NULL)
        return TWILL_OK;
    TWILL_TRY(error, twill_optimizer_check(o->optimizer, error));
    if (o->optimizer->clip_norm > 0)
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "options.optimizer: clip_norm needs the norm of all gradients, which are "
                          "divided among servers");
    if (twill_optimizer_takes_norms(o->optimizer->rule))
        return TWILL_FAIL(error, TWILL_ERR_UNSUPPORTED,
                          "options.optimizer: %s needs norms of whole tensors, which are divided "
                          "among servers",
                          twill_optimizer_name(o->optimizer->rule));
    return TWILL_OK;
}

static twill_status check_rate(const twill_server_options *o, struct twill_error *error)
{
    if ((unsigned)o->rate > TWILL_SERVER_RATE_DISTANCE)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.rate %d is not a twill_server_rate",
                          (int)o->rate);
    if (!(o->distance_c > 0 && o->distance_c < DISTANCES_BELOW && o->distance_most > 0 &&
          o->distance_most < DISTANCES_BELOW))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options: distance_c %g and distance_most %g are not above 0",
                          o->distance_c, o->distance_most);
    if (o->rate == TWILL_SERVER_RATE_DISTANCE && o->mode != TWILL_SERVER_ASYNC &&
        o->mode != TWILL_SERVER_BOUNDED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.rate by distance needs a mode with an update for each gradient");
    return TWILL_OK;
}

static twill_status check_server_options(const twill_server_options *o, struct twill_error *error)
{
    if ((unsigned)o->layout > TWILL_SERVER_NCS)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.layout %d is not a twill_server_layout", (int)o->layout);
    if ((unsigned)o->mode > TWILL_SERVER_BOUNDED)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.mode %d is not a twill_server_mode",
                          (int)o->mode);
    if (o->k < (o->mode == TWILL_SERVER_BOUNDED ? 0 : 1))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.k %d is too small", o->k);
    if (o->op != TWILL_AVG && o->op != TWILL_SUM)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.op %d is neither sum nor avg",
                          (int)o->op);
    if (o->chunk_bytes != 0 && !twill_server_is_chunk_size(o->chunk_bytes))
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT,
                          "options.chunk_bytes %zu is not a multiple of %u up to %zu",
                          o->chunk_bytes, TWILL_SERVER_CHUNK_STEP, TWILL_SERVER_CHUNK_MOST);
    if (o->threads < 0 || o->threads > (int)TWILL_SERVER_SHARDS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.threads %d is outside 0 .. %u",
                          o->threads, TWILL_SERVER_SHARDS_MOST);
    if (o->replicas != 1 && o->replicas != 2)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.replicas %d is neither 1 nor 2",
                          o->replicas);
    if (o->credits < 1 || o->credits > CREDITS_MOST)
        return TWILL_FAIL(error, TWILL_ERR_ARGUMENT, "options.credits %d is outside 1 .. %d",
                          o->credits, CREDITS_MOST);
    TWILL_TRY(error, check_rate(o, error));
    TWILL_TRY(error, check_optimizer(o, error));
    return twill_compression_check(o->compression, o->compression_ratio, o->compression_threshold,
                                   error);
}

twill_status twill_server_set_options(struct twill_server *server,
                                      const twill_server_options *options,
                                      struct twill_error *error)
{
    twill_server_defaults(&server->options);
    if (options != NULL) {
        TWILL_TRY(error, twill_options_check_bytes(options->bytes, sizeof(*options),
                                                   "twill_server_defaults", error));
        server->options = *options;
    }
    TWILL_TRY(error, check_server_options(&server->options, error));
    const twill_server_options *o = &server->options;
    if (o->compression != TWILL_COMPRESS_NONE)
        server->coder =
            twill_coder_of(server->process.kernels, o->compression, o->compression_ratio,
                           o->compression_threshold, o->error_feedback != 0);
    server->cut.chunk_bytes = server->options.chunk_bytes;
    server->cut.chunk_choice = "as given";
    if (server->options.optimizer != NULL) {
        server->rule.optimizer = server->rule.declared = *server->options.optimizer;
        server->options.optimizer = &server->rule.declared;
        server->rule.has_optimizer = true;
        server->rule.states = twill_optimizer_states(&server->rule.optimizer);
    }
    return TWILL_OK;
}
