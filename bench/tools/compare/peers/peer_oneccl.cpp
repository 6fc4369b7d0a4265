/* SPDX-License-Identifier: Apache-2.0 */
/* The program of twill-compare for oneCCL on host memory, compiled against --oneccl PREFIX. */
#include "peer.h"

#include <exception>
#include <oneapi/ccl.hpp>
#include <vector>

namespace
{

/* What the program has of oneCCL, from begin() to end(). */
struct oneccl_state {
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::communicator comm;
};

/* Return the state of the program, which begin() has made. */
oneccl_state *of(struct peer *peer)
{
    return static_cast<oneccl_state *>(peer->own);
}

/* Make the key-value store of oneCCL on rank 0, join it on others, and make the communicator of all
 * ranks. Returns 0, or 1 if the store's address cannot be exchanged. Throws what oneCCL throws. */
int connect(struct peer *peer)
{
    ccl::init();
    ccl::shared_ptr_class<ccl::kvs> store;
    ccl::kvs::address_type address;
    if (peer->rank == 0) {
        store = ccl::create_main_kvs();
        address = store->get_address();
    }
    std::vector<ccl::kvs::address_type> all(static_cast<size_t>(peer->size));
    if (peer_exchange(peer, address.data(), all.data(), sizeof(address)) != 0)
        return 1;
    if (peer->rank != 0)
        store = ccl::create_kvs(all[0]);
    peer->own = new oneccl_state{store, ccl::create_communicator(peer->size, peer->rank, store)};
    return 0;
}

/* Note rank and size, and connect all ranks. Hydra's variables are taken, or twillrun's. Returns 0,
 * or 1 after peer_say(). */
int begin(struct peer *peer)
{
    if (getenv("PMI_RANK") != NULL && getenv("PMI_SIZE") != NULL) {
        peer->rank = atoi(getenv("PMI_RANK"));
        peer->size = atoi(getenv("PMI_SIZE"));
    } else if (peer_launched(peer) != 0) {
        return 1;
    } else { /* oneCCL does not know twillrun, and without a launcher it takes these variables */
        const char *rank = getenv("LOCAL_RANK"), *size = getenv("LOCAL_WORLD_SIZE");
        setenv("CCL_PROCESS_LAUNCHER", "none", 0);
        setenv("CCL_ATL_TRANSPORT", "ofi", 0);
        setenv("CCL_LOCAL_RANK", rank != NULL ? rank : "0", 0);
        setenv("CCL_LOCAL_SIZE", size != NULL ? size : "1", 0);
    }
    const ccl::library_version version = ccl::get_library_version();
    peer_name(peer, "oneCCL ", version.full);
    try {
        return connect(peer);
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
}

/* Free the communicator and the store that begin() made. */
void end(struct peer *peer)
{
    delete of(peer);
}

/* Make a call and wait for it. Returns 0, or 1 after peer_say(). */
int run(struct peer *peer, const struct peer_call *call)
{
    ccl::communicator &comm = of(peer)->comm;
    const ccl::datatype type = ccl::datatype::float32;
    void *src = const_cast<float *>(call->src);
    size_t n = call->count;
    try {
        switch (call->collective) {
        case TWILL_COMPARE_BROADCAST:
            ccl::broadcast(call->dst, n, type, 0, comm).wait();
            break;
        case TWILL_COMPARE_ALLGATHER: {
            std::vector<size_t> counts(static_cast<size_t>(peer->size), n);
            ccl::allgatherv(src, n, call->dst, counts, type, comm).wait();
            break;
        }
        case TWILL_COMPARE_REDUCE_SCATTER:
            ccl::reduce_scatter(src, call->dst, n, type, ccl::reduction::sum, comm).wait();
            break;
        case TWILL_COMPARE_BARRIER:
            ccl::barrier(comm).wait();
            break;
        case TWILL_COMPARE_REDUCE:
            ccl::reduce(src, call->dst, n, type, ccl::reduction::sum, 0, comm).wait();
            break;
        case TWILL_COMPARE_ALLTOALL:
            ccl::alltoall(src, call->dst, n, type, comm).wait();
            break;
        default:
            ccl::allreduce(src, call->dst, n, type, ccl::reduction::sum, comm).wait();
        }
    } catch (const std::exception &error) {
        return peer_say(peer, error.what());
    }
    return 0;
}

/* Wait until all ranks have called this. Returns 0, or 1 after peer_say(). */
int barrier(struct peer *peer)
{
    struct peer_call call = {TWILL_COMPARE_BARRIER, NULL, NULL, 0};
    return run(peer, &call);
}

/* Return 1 for the collectives that oneCCL has. */
int supports(struct peer *peer, enum twill_compare_collective collective)
{
    (void)peer;
    return collective < TWILL_COMPARE_COMMON || collective == TWILL_COMPARE_REDUCE ||
           collective == TWILL_COMPARE_ALLTOALL;
}

} // namespace

/* Run the program of twill-compare for oneCCL. Returns an exit status. */
int main(int argc, char **argv)
{
    static const struct peer_program program = {begin, end,      run,  barrier, NULL, NULL, NULL,
                                                NULL,  supports, NULL, 0,       NULL, NULL};
    return peer_main(argc, argv, &program);
}
