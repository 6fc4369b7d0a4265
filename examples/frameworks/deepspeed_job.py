# SPDX-License-Identifier: Apache-2.0
# DS_ACCELERATOR=cpu torchrun --nproc-per-node 2 deepspeed_job.py. The word is "twill".
import time

import deepspeed
import torch

torch.manual_seed(1)
deepspeed.init_distributed(dist_backend="twill")
model = torch.nn.Linear(1000, 1000)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config={
    "train_micro_batch_size_per_gpu": 2, "optimizer": {"type": "SGD", "params": {"lr": 0.01}}})
rank = torch.distributed.get_rank()
begin = time.perf_counter()
for step in range(100):
    engine.backward(engine(torch.full((2, 1000), 0.01 * rank)).square().mean())
    engine.step()
if rank == 0:
    print("result", sum(p.double().sum().item() for p in model.parameters()), "steps/s", round(100 / (time.perf_counter() - begin)))
torch.distributed.destroy_process_group()
