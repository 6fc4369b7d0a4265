# SPDX-License-Identifier: Apache-2.0
"""Make the name "twill" known to PyTorch, and load nothing else of twill before the first group is made.

From 2.5 on `import torch` calls register(), an entry point of the group `torch.backends`, unless
TORCH_DEVICE_BACKEND_AUTOLOAD=0."""
import inspect
import os


def name_backend() -> None:
    """Make "twill" a name of a backend of torch.distributed, unless it is one."""
    import torch.distributed as dist
    if not dist.is_available() or hasattr(dist.Backend, "TWILL"):
        return
    if "devices" in inspect.signature(dist.Backend.register_backend).parameters:
        dist.Backend.register_backend("twill", _create, devices=["cpu"])
    else:  # before 2.1
        dist.Backend.register_backend("twill", _create)


def register() -> None:
    """Name the backend. With TORCH_TWILL_GLOO=1, load twill.torch, which lets twill answer for "gloo"."""
    name_backend()
    if os.environ.get("TORCH_TWILL_GLOO", "0") not in ("", "0"):
        import twill.torch  # noqa: F401


def _create(*arguments):  # type: ignore[no-untyped-def] # store, rank, size, timeout
    import twill.torch
    return twill.torch.create(*arguments)
