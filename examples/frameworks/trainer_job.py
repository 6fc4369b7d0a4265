# SPDX-License-Identifier: Apache-2.0
# TORCH_TWILL_GLOO=1 torchrun --nproc-per-node 2 trainer_job.py: the Trainer of transformers knows "gloo" only.
import tempfile
import time

import torch
import transformers


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(1000, 1000)

    def forward(self, x, labels=None):
        return {"loss": (self.layer(x) - labels).square().mean()}


transformers.set_seed(1)
data = [{"x": torch.full((1000,), i / 16), "labels": torch.ones(1000)} for i in range(16)]
with tempfile.TemporaryDirectory() as folder:
    arguments = transformers.TrainingArguments(folder, use_cpu=True, max_steps=100, per_device_train_batch_size=2, report_to="none",
                                               save_strategy="no", logging_strategy="no", disable_tqdm=True)
    trainer = transformers.Trainer(Model(), arguments, train_dataset=data)
    begin = time.perf_counter()
    loss = trainer.train().training_loss
if trainer.is_world_process_zero():
    print("result", loss, "steps/s", round(100 / (time.perf_counter() - begin)))
