# SPDX-License-Identifier: Apache-2.0
"""Entry points of the wheel, which load nothing of twill before it is needed.

From 2.5 on `import torch` calls register(), an entry point of the group `torch.backends`, unless TORCH_DEVICE_BACKEND_AUTOLOAD=0.
It makes the name "twill" known to PyTorch. The programs in PATH call program(). vLLM calls vllm_platform() and SGLang
sglang_plugin(), which change nothing unless TORCH_TWILL_GLOO=1."""
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


def answers_for_gloo() -> bool:
    return os.environ.get("TORCH_TWILL_GLOO", "0") not in ("", "0")


def register() -> None:
    """Name the backend. With TORCH_TWILL_GLOO=1, load twill.torch, which lets twill answer for "gloo"."""
    name_backend()
    if answers_for_gloo():
        import twill.torch  # noqa: F401


def vllm_platform():  # type: ignore[no-untyped-def]
    """Return the name of vLLM's platform with collectives of twill, or None where vLLM does not run on CPUs, or must not use twill."""
    if not answers_for_gloo():
        return None
    from vllm.platforms import cpu_platform_plugin
    return "twill.torch.vllm.Platform" if cpu_platform_plugin() else None


def sglang_plugin() -> None:
    if answers_for_gloo():
        from twill.torch.engines import adapt_sglang
        adapt_sglang()


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
