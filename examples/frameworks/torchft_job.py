# SPDX-License-Identifier: Apache-2.0
# python3 torchft_job.py starts torchft's lighthouse and two replicas. The word is twill.torch.ft.ProcessGroupTwill.
import multiprocessing
import os
import time

import torch
import torchft
import twill.torch.ft
from torchft.coordination import LighthouseServer


def replica(number, lighthouse):
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse.get()
    torch.manual_seed(1)
    model = torch.nn.Linear(1000, 1000)
    store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=twill.torch.ft.ProcessGroupTwill(), min_replica_size=2, load_state_dict=model.load_state_dict, state_dict=model.state_dict,
        rank=0, world_size=1, store_addr="127.0.0.1", store_port=store.port, replica_id=f"replica{number}", hostname="127.0.0.1")
    network = twill.torch.ft.DistributedDataParallel(manager, model)
    optimizer = torchft.Optimizer(manager, torch.optim.SGD(model.parameters(), 0.01))
    begin = time.perf_counter()
    while manager.current_step() < 100:
        optimizer.zero_grad()
        network(torch.full((2, 1000), 0.01 * number)).square().mean().backward()
        optimizer.step()
    if number == 0:
        print("result", sum(p.double().sum().item() for p in model.parameters()), "steps/s", round(100 / (time.perf_counter() - begin), 1), flush=True)
    time.sleep(2)  # the last step of the other
    manager.shutdown(wait=False)
    os._exit(0)


context = multiprocessing.get_context("fork")
lighthouse = context.SimpleQueue()
replicas = [context.Process(target=replica, args=(number, lighthouse)) for number in range(2)]
for process in replicas:
    process.start()
server = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=2000, quorum_tick_ms=50)  # it has threads, so after the fork
for process in replicas:
    lighthouse.put(server.address())
for process in replicas:
    process.join()
server.shutdown()
