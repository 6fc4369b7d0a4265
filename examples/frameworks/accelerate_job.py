# SPDX-License-Identifier: Apache-2.0
# TORCH_TWILL_GLOO=1 torchrun --nproc-per-node 2 accelerate_job.py: accelerate knows "gloo" only.
import time

import accelerate
import torch

torch.manual_seed(1)
accelerator = accelerate.Accelerator(cpu=True)
model = torch.nn.Linear(1000, 1000)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), 0.01))
begin = time.perf_counter()
for step in range(100):
    optimizer.zero_grad()
    accelerator.backward(model(torch.full((2, 1000), 0.01 * accelerator.process_index)).square().mean())
    optimizer.step()
if accelerator.is_main_process:
    print("result", sum(p.double().sum().item() for p in model.parameters()), "steps/s", round(100 / (time.perf_counter() - begin)))
accelerator.end_training()
