# SPDX-License-Identifier: Apache-2.0
# python3 ray_job.py: Ray Train starts the two ranks. The word is "twill".
import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train():
    import time

    import ray.train.torch
    import torch
    torch.manual_seed(1)
    model = ray.train.torch.prepare_model(torch.nn.Linear(1000, 1000))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    rank = ray.train.get_context().get_world_rank()
    begin = time.perf_counter()
    for step in range(100):
        optimizer.zero_grad()
        model(torch.full((2, 1000), 0.01 * rank)).square().mean().backward()
        optimizer.step()
    if rank == 0:
        print("result", sum(p.double().sum().item() for p in model.parameters()), "steps/s", round(100 / (time.perf_counter() - begin)))


ray.init(num_cpus=2)
TorchTrainer(train, torch_config=TorchConfig(backend="twill"), scaling_config=ScalingConfig(num_workers=2)).fit()
