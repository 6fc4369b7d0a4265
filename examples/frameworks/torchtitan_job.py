# SPDX-License-Identifier: Apache-2.0
# TORCH_TWILL_GLOO=1 torchrun --nproc-per-node 2 torchtitan_job.py: torchtitan selects "gloo" for CPUs, and cannot be told another name.
# Its Trainer needs an accelerator. This program has torchtitan's model, groups and FSDP, and another loop.
import time

import torch

torch._utils._get_available_device_type = lambda: "cpu"  # torchtitan has no word for it
from torchtitan.distributed import ParallelDims, utils
from torchtitan.models.common import ScaledDotProductAttention
from torchtitan.models.llama3.config_registry import llama3_debugmodel

config = llama3_debugmodel()
spec, config.parallelism.spmd_backend, config.training.mixed_precision_param = config.model_spec, "partial_dtensor", "float32"
spec.model.layers = spec.model.layers[:2]
for layer in spec.model.layers:  # its default, FlexAttention, has no gradient on CPUs
    layer.attention.inner_attention = ScaledDotProductAttention.Config()
dims = ParallelDims.from_config(config.parallelism, utils.init_distributed(config.comm))
utils.set_spmd_backend(config.parallelism.spmd_backend)
with torch.device("meta"):
    model = spec.model.build()
model = spec.parallelize_fn(model, parallel_dims=dims, training=config.training, parallelism=config.parallelism,
                            compile_config=config.compile, ac_config=None, dump_folder=".")
model.to_empty(device="cpu")
torch.manual_seed(1)
with torch.no_grad():
    model.init_weights(buffer_device=None)
optimizer, rank = torch.optim.SGD(model.parameters(), 0.01), torch.distributed.get_rank()
tokens = torch.arange(rank, rank + 64).reshape(2, 32)
begin = time.perf_counter()
for step in range(10):
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten())
    loss.backward()
    optimizer.step()
seconds = time.perf_counter() - begin
total = sum(p.detach().full_tensor().double().sum().item() for p in model.parameters())
if rank == 0:
    print("result", total, "steps/s", round(10 / seconds, 1))
torch.distributed.destroy_process_group()
