# SPDX-License-Identifier: Apache-2.0
"""Entry points of the wheel, which load nothing of twill before it is needed.

From 2.5 on `import torch` calls register(), an entry point of the group `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.
It makes the name "twill" known to PyTorch. The programs in PATH call program()."""
import inspect
import os
import sys


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


def program() -> None:
    """Replace this process by the program of the package that has its name, such as twillrun."""
    name = os.path.basename(sys.argv[0])
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "twill", "bin", name)
    if not os.path.exists(path):
        sys.exit(f"{name}: this wheel was built without it (TWILL_BUILD_BENCH in lib/python/CMakeLists.txt)")
    os.execv(path, [path, *sys.argv[1:]])
