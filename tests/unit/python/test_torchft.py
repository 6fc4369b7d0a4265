# SPDX-License-Identifier: Apache-2.0
"""Replicas of torchft (0.2) over twill: of three one dies in the middle of a step and is started again. The others go on
without it, the new one joins, and all end with equal parameters.

    test_torchft.py [twill | gloo] [hook | ddp]     gradients one by one, or by torchft's DistributedDataParallel
"""
from __future__ import annotations

import datetime
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
import torchft
from torchft.coordination import LighthouseServer

REPLICAS, DEATH, MORE = 3, 3, 3


def group_of(backend: str) -> Any:
    timeout = datetime.timedelta(seconds=30)
    if backend == "gloo":
        return torchft.ProcessGroupGloo(timeout=timeout)
    import twill.torch.ft

    return twill.torch.ft.ProcessGroupTwill(timeout=timeout)


def wrap(manager: Any, model: torch.nn.Module, backend: str) -> torch.nn.Module:
    """Two buckets, so that one of them is reduced after the other one has failed."""
    options: dict[str, Any] = {"bucket_cap_mb": 0.001}
    if backend == "gloo":
        return torchft.DistributedDataParallel(manager, model, **options)
    import twill.torch.ft

    return twill.torch.ft.DistributedDataParallel(manager, model, **options)


def is_last(step: int, number: int, dies: bool, shared: str) -> bool:
    """All end some steps after the one that the new replica has taken part in first."""
    path = os.path.join(shared, "last")
    if number == 1 and not dies and step > DEATH and not os.path.exists(path):
        with open(path + ".new", "w", encoding="ascii") as out:
            out.write(str(step + MORE))
        os.rename(path + ".new", path)
    if not os.path.exists(path):
        return False
    with open(path, encoding="ascii") as last:
        return step >= int(last.read())


def replica(backend: str, how: str, number: int, dies: bool, shared: str) -> None:
    torch.manual_seed(number)  # the first quorum makes all of one replica's state
    model: torch.nn.Module = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)

    def load(state: dict[str, Any]) -> None:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=group_of(backend), load_state_dict=load, min_replica_size=2, rank=0, world_size=1, store_addr="127.0.0.1",
        state_dict=lambda: {"model": model.state_dict(), "optimizer": optimizer.state_dict()}, store_port=store.port,
        replica_id=f"replica{number}", timeout=datetime.timedelta(seconds=60), hostname="127.0.0.1")
    network = wrap(manager, model, backend) if how == "ddp" else model
    steps = torchft.Optimizer(manager, optimizer)
    while not is_last(manager.current_step(), number, dies, shared):
        steps.zero_grad()
        generator = torch.Generator().manual_seed(100 * manager.current_step() + number)
        loss = network(torch.randn(8, 32, generator=generator)).square().mean()
        if dies and manager.current_step() >= DEATH:  # it may have joined later
            manager.wait_quorum()
            os.kill(os.getpid(), signal.SIGKILL)
        loss.backward()
        for parameter in model.parameters() if how != "ddp" else ():
            assert parameter.grad is not None
            manager.allreduce(parameter.grad).wait()
        steps.step()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(f"replica {number}: step {manager.current_step()}, parameters {digest.hexdigest()[:16]}", flush=True)
    time.sleep(2)  # the others' last step
    manager.shutdown(wait=False)
    os._exit(0)


def start(backend: str, how: str, number: int, dies: bool, shared: str) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, backend, how, str(number), str(int(dies)), shared]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def main(backend: str, how: str) -> None:
    lighthouse = LighthouseServer(
        bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=2000, quorum_tick_ms=50, heartbeat_timeout_ms=1000)
    os.environ["TORCHFT_LIGHTHOUSE"] = lighthouse.address()
    with tempfile.TemporaryDirectory() as shared:
        processes = [start(backend, how, number, number == 1, shared) for number in range(REPLICAS)]
        try:
            assert processes[1].wait(timeout=200) == -signal.SIGKILL, "replica 1 has not died"
            processes[1] = start(backend, how, 1, False, shared)
            said = [process.communicate(timeout=200)[0] for process in processes]
        finally:
            for process in processes:
                process.kill()  # nothing, if it has ended
            lighthouse.shutdown()
    print("".join(said), end="")
    assert all(process.returncode == 0 for process in processes), [process.returncode for process in processes]
    lines = {line.partition(": ")[2] for text in said for line in text.splitlines() if line.startswith("replica ")}
    assert len(lines) == 1, lines
    print(f"torchft over {backend}, {how}: OK", flush=True)


if __name__ == "__main__":
    arguments = sys.argv[1:] + ["twill", "hook"][len(sys.argv[1:]):]
    if len(arguments) > 2:
        replica(arguments[0], arguments[1], int(arguments[2]), arguments[3] == "1", arguments[4])
    else:
        main(arguments[0], arguments[1])
