# SPDX-License-Identifier: Apache-2.0
"""A rank of a torch.distributed job dies: the others get an exception that names it, in time, and go on without it."""
import datetime
import os
import sys
import time

import torch
import torch.distributed as dist

import twill.torch

dist.init_process_group("twill", timeout=datetime.timedelta(seconds=60))
rank, size = dist.get_rank(), dist.get_world_size()
values = torch.ones(4)
dist.all_reduce(values)
if rank == 1:
    os.kill(os.getpid(), 9)
begin = time.monotonic()
try:
    while True:
        dist.all_reduce(values)
except RuntimeError as error:
    assert "rank 1" in str(error) and "died" in str(error), error
assert time.monotonic() - begin < 50
rest = twill.torch.shrink([1])
assert (rest.rank(), rest.size()) == (rank // 2, size - 1)
values = torch.full((3,), float(rank))
rest.allreduce([values]).wait()
assert values.tolist() == [2.0] * 3, values
print(f"survived: rank {rank}", flush=True)
os._exit(0)
