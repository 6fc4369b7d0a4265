// SPDX-License-Identifier: Apache-2.0
// The program of twill-compare for the shared-memory allreduce of DeepSpeed or vLLM, which is
// compiled from a source tree that the user gives (--source). PEER_SOURCE is its file,
// PEER_DEEPSPEED or PEER_VLLM says whose it is. Both are in place only.
#include PEER_SOURCE

#include "peer.h"

#include <exception>
#include <string>

namespace
{

/* What the program has of the library, from begin() to end(). */
struct source_state {
    torch::Tensor data; /* the buffer of the call that is prepared, as a tensor */
    int64_t handle;     /* of vLLM's memory */
};

/* Return the state of the program, which begin() has made. */
source_state *of(struct peer *peer)
{
    return static_cast<source_state *>(peer->own);
}

/* Wait until all ranks have called this, through the driver, as neither library has a barrier that
 * any rank may call. Returns 0 unless that fails. */
int barrier(struct peer *peer)
{
    char mine = 0, all[TWILL_COMPARE_RANKS];
    return peer_exchange(peer, &mine, all, 1);
}

/* Make the memory of all ranks. Returns 0 unless it fails. */
int connect(struct peer *peer)
{
    /* the files of all ranks must be there before one joins them */
    std::string name = "twill-compare." + std::string(strrchr(peer->welcome.path, '/') + 1);
    name += std::to_string(getppid());
#ifdef PEER_VLLM
    of(peer)->handle = init_shm_manager(name, peer->size, peer->rank);
    if (barrier(peer) != 0)
        return 1;
    join_shm_manager(of(peer)->handle, name);
#else
    shm_initialize(peer->size, peer->rank, &name[0], &name[0]);
#endif
    return barrier(peer);
}

/* Note rank and size, and connect all ranks. Returns 0, or 1 after peer_say(). */
int begin(struct peer *peer)
{
    if (peer_launched(peer) != 0)
        return 1;
    peer->own = new source_state{torch::Tensor(), 0};
    peer_name(peer, PEER_SOURCE, "");
    try {
        torch::set_num_threads(1);
        return connect(peer);
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
}

/* Free the state. */
void end(struct peer *peer)
{
    delete of(peer);
}

/* Wrap the buffer as a tensor. Returns 0. */
int prepare(struct peer *peer, const struct peer_call *call)
{
    of(peer)->data = torch::from_blob(call->dst, {(int64_t)call->count}, torch::kFloat);
    return 0;
}

/* Return 1 for an allreduce in place. */
int supports(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    return collective == TWILL_COMPARE_ALLREDUCE;
}

/* Make the call. Returns 0, or 1 after peer_say(). */
int run(struct peer *peer, const struct peer_call *call)
{
    try {
#ifdef PEER_VLLM
        (void)call;
        shm_allreduce(of(peer)->handle, of(peer)->data);
#else
        all_reduce_outer_loop(of(peer)->data, call->count, (int)(call->count * sizeof(float)));
#endif
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    return 0;
}

} // namespace

/* Run the program of twill-compare for a source tree. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {begin, end,      run,  barrier, prepare, NULL, NULL,
                                                NULL,  supports, NULL, 0,       NULL,    NULL};
    return peer_main(argc, argv, &program);
}
