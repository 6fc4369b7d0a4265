# SPDX-License-Identifier: Apache-2.0
# python3 lightning_job.py: Lightning starts the two ranks. The word is "twill".
import time

import lightning
import torch
from lightning.pytorch.demos.boring_classes import BoringModel, RandomDataset
from lightning.pytorch.strategies import DDPStrategy


class Timed(lightning.Callback):
    def on_train_start(self, trainer, module):
        self.begin = time.perf_counter()

    def on_train_end(self, trainer, module):
        if trainer.global_rank == 0:
            print("result", module.layer.weight.double().sum().item(), "steps/s", round(200 / (time.perf_counter() - self.begin)))


lightning.seed_everything(1, verbose=False)
trainer = lightning.Trainer(accelerator="cpu", devices=2, max_steps=200, strategy=DDPStrategy(process_group_backend="twill"), logger=False,
                            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
                            callbacks=[Timed()])
trainer.fit(BoringModel(), torch.utils.data.DataLoader(RandomDataset(32, 800)))
