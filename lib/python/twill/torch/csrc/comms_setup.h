/* SPDX-License-Identifier: Apache-2.0 */
/* What a communicator of torch.comms is made of: operations, rank and size, and the store. */
#ifndef TWILL_TORCH_COMMS_SETUP_H
#define TWILL_TORCH_COMMS_SETUP_H

#include "job.h"

#include <torch/csrc/comms/TorchCommTypes.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <climits>

namespace twill_torch
{

/* Return the operation of torch.distributed for one of torch.comms. */
inline c10d::ReduceOp operation_of(const torch::comms::ReduceOp &op)
{
    using Type = c10d::ReduceOp::RedOpType;
    static constexpr Type TYPES[] = {Type::SUM,  Type::PRODUCT,    Type::MIN,
                                     Type::MAX,  Type::BAND,       Type::BOR,
                                     Type::BXOR, Type::PREMUL_SUM, Type::AVG};
    if (op.type() == torch::comms::ReduceOp::RedOpType::PREMUL_SUM)
        return std::visit([](const auto &factor) { return c10d::makePreMulSum(factor); },
                          *op.factor());
    return TYPES[static_cast<size_t>(op.type())]; /* in the order of torch.comms */
}

/* Return a variable of the environment as a number, or -1 if it is not set. Throws for others. */
inline int number_of(const char *variable)
{
    const char *text = getenv(variable);
    if (text == nullptr || *text == 0)
        return -1;
    char *end = nullptr;
    long number = strtol(text, &end, 10);
    if (*end != 0 || number < 0 || number > INT_MAX)
        refuse("new_comm", std::string(variable) + "=" + text + " is not a number");
    return static_cast<int>(number);
}

/* Return rank and size of this process, by the variables of torch.comms or of a launcher. */
inline std::pair<int, int> rank_and_size()
{
    static constexpr const char *VARIABLES[][2] = {{"TORCHCOMM_RANK", "TORCHCOMM_SIZE"},
                                                   {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                                   {"PMI_RANK", "PMI_SIZE"},
                                                   {"RANK", "WORLD_SIZE"}};
    for (const auto &variables : VARIABLES) {
        int rank = number_of(variables[0]), size = number_of(variables[1]);
        if (rank >= 0 && size > rank)
            return {rank, size};
    }
    refuse("new_comm", "rank and size are unknown: set TORCHCOMM_RANK and TORCHCOMM_SIZE, or start "
                       "the program by torchrun");
}

/* Return the store of MASTER_ADDR and MASTER_PORT, which the communicators of a process share. */
inline StoreRef store_of_environment(int rank, Milliseconds timeout)
{
    static c10::weak_intrusive_ptr<c10d::Store> shared{StoreRef()};
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    if (StoreRef store = shared.lock())
        return store;
    const char *host = getenv("MASTER_ADDR"), *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
    int port = number_of("MASTER_PORT");
    if (host == nullptr || port < 0 || port > 65535)
        refuse("new_comm", "pass a store, or set MASTER_ADDR and MASTER_PORT");
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(port);
    options.isServer = rank == 0 && (agent == nullptr || strcmp(agent, "True") != 0);
    options.waitWorkers = false;
    options.timeout = timeout;
    StoreRef store = c10::make_intrusive<c10d::TCPStore>(host, options);
    shared = c10::weak_intrusive_ptr<c10d::Store>(store);
    return store;
}

} // namespace twill_torch
#endif
