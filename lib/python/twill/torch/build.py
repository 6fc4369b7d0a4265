# SPDX-License-Identifier: Apache-2.0
"""Builds the C++ part of twill.torch against the PyTorch that is installed, once for each pair of versions, unless the wheel
has it for this version.

The result is kept in $TORCH_TWILL_CACHE, or else in twill/ of $XDG_CACHE_HOME or ~/.cache. `python -m twill.torch.build`
builds before the first use, for example in an image or on the login node of a cluster with a shared home."""
from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from types import ModuleType

import torch

from .._library import PATH as LIBRARY

_HERE = os.path.dirname(os.path.realpath(__file__))
_SOURCES = os.path.join(_HERE, "csrc")
_MAIN = os.path.join(_SOURCES, "backend.cpp")
_NAME = "_twill_torch"


class NoCompiler(RuntimeError):
    """No extension was built before, and the tools to build one are missing."""


def _version() -> tuple[int, int]:
    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def compiler() -> str | None:
    """Return the path of the C++ compiler: $CXX, or the first of c++, g++ and clang++ that exists. None without one."""
    named = os.environ.get("CXX")
    candidates = [named] if named else ["c++", "g++", "clang++"]
    return next((found for name in candidates if (found := shutil.which(shlex.split(name)[0]))), None)


def _headers() -> str | None:
    """Return the folder of twill.h, which a wheel has in the package and a source tree above it. None if not found."""
    for folder in (os.path.join(_HERE, "..", "include"), os.path.join(_HERE, "..", "..", ".."), "/usr/local/include",
                   "/usr/include"):
        if os.path.exists(os.path.join(folder, "twill.h")):
            return os.path.normpath(folder)
    return None


def _library() -> str | None:
    """Return the path of the libtwill.so that the package has opened, or None if it is not found."""
    if os.path.sep in LIBRARY:
        return os.path.realpath(LIBRARY)
    with open("/proc/self/maps", encoding="utf-8") as maps:
        return next((line.split()[-1] for line in maps if os.path.basename(LIBRARY) in line), None)


def _pybind_flags() -> list[str]:
    """Return flags with which pybind11 knows the classes of a PyTorch built by another compiler (on PyPI before 2.7)."""
    known = {name: getattr(torch._C, f"_PYBIND11_{name}", None) for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")}
    return [f'-DPYBIND11_{name}="{value}"' for name, value in known.items() if value is not None]


def _key() -> str:
    """Return the file name of the extension, which is unique for everything that it depends on."""
    digest = hashlib.sha256()
    files = [os.path.join(_SOURCES, name) for name in sorted(os.listdir(_SOURCES))]
    headers = _headers()
    if headers is not None:
        files += [os.path.join(headers, name) for name in ("twill.h", "twill_recover.h", "twill_window.h")]
    for name in files:
        with open(name, "rb") as source:
            digest.update(source.read())
    abi = sysconfig.get_config_var("SOABI") or f"{sys.version_info.major}{sys.version_info.minor}"
    digest.update(f"{torch.__version__} {abi} {torch.__file__} {_library()} {_pybind_flags()}".encode())
    return f"{_NAME}-{torch.__version__}-{abi}-{digest.hexdigest()[:16]}.so"


def prebuilt() -> str | None:
    """Return the path of the extension that the wheel has for releases of PyTorch like this one, or None. Flags of the user's
    for the compiler (TORCH_TWILL_CXXFLAGS) ask for one of their own."""
    release = re.fullmatch(r"(\d+\.\d+)\.\d+(\+(cpu|cu\d+|rocm[\d.]+|xpu))?", torch.__version__)
    if release is None or "TORCH_TWILL_CXXFLAGS" in os.environ:
        return None
    name = f"{_NAME}-{release[1]}-{sysconfig.get_config_var('SOABI')}-cxx11abi{int(torch._C._GLIBCXX_USE_CXX11_ABI)}.so"
    path = os.path.join(_HERE, "prebuilt", name)
    return path if os.path.exists(path) else None


def cache_folder() -> str:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return os.environ.get("TORCH_TWILL_CACHE") or os.path.join(base, "twill")


def _commands(path: str, *definitions: str) -> list[list[str]]:
    """Return two commands, which compile to path.o and link to path. ccache accepts no command that does both."""
    from torch.utils import cpp_extension  # slow to import, and only needed here

    headers, library, cxx = _headers(), _library(), compiler()
    if cxx is None or headers is None or library is None:
        missing = "a C++ compiler (install g++, or set CXX)" if cxx is None else "twill.h" if headers is None else "libtwill.so"
        raise NoCompiler(f"twill.torch: its C++ part needs to be built, and {missing} is not found")
    standard = "c++17" if _version() < (2, 9) else "c++20"
    includes = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    named = shlex.split(os.environ["CXX"]) if "CXX" in os.environ else [cxx]
    flags = shlex.split(os.environ.get("TORCH_TWILL_CXXFLAGS", ""))
    compiled = [*named, f"-std={standard}", "-O1", *flags, "-fPIC", "-fvisibility=hidden", "-w",
                f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
                *_pybind_flags(), *definitions, f"-I{headers}", *(flag for folder in includes for flag in ("-isystem", folder)),
                "-c", _MAIN, "-o", f"{path}.o"]
    linked = [*named, *flags, "-shared", f"{path}.o", "-o", path, *(f"-L{folder}" for folder in cpp_extension.library_paths()),
              "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", library]
    return [compiled, linked]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        tail = "\n".join(done.stdout.splitlines()[-30:])
        raise RuntimeError(f"twill.torch: its C++ part could not be built by\n{shlex.join(command)}\n{tail}")


def _compile(path: str) -> None:
    temporary = f"{path}.{os.getpid()}"
    commands = _commands(temporary)
    print(f"twill.torch: building its C++ part for PyTorch {torch.__version__}, once: this takes about a minute",
          file=sys.stderr, flush=True)
    try:
        try:
            _run(commands[0])
        except RuntimeError as error:
            if "torch/csrc/comms/" not in str(error) and "comms.h" not in str(error) and "comms_window.h" not in str(error):
                raise
            print(f"{error}\ntwill.torch: this PyTorch has another torch.comms than twill knows, so it is built without",
                  file=sys.stderr, flush=True)
            _run(_commands(temporary, "-DTWILL_TORCH_COMMS=0")[0])
        _run(commands[1])
        os.rename(temporary, path)
    finally:
        for left in (temporary, f"{temporary}.o"):
            if os.path.exists(left):
                os.unlink(left)


def build() -> str:
    """Return the path of the extension, after building it if necessary. The ranks of a host build it once."""
    path = os.path.join(cache_folder(), _key())
    if os.path.exists(path):
        return path
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            _compile(path)
    return path


def _module(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_NAME, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"twill.torch: {path} is not a Python module")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[_NAME] = module
    return module


def load() -> ModuleType:
    """Return the extension as a module: the wheel's if it fits, or else one that is built here."""
    if _NAME in sys.modules:
        return sys.modules[_NAME]
    path = prebuilt()
    if path is not None:
        try:
            return _module(path)
        except ImportError as error:
            print(f"twill.torch: {path} does not fit this PyTorch: {error}", file=sys.stderr, flush=True)
    return _module(build())


if __name__ == "__main__":
    print(prebuilt() or build())
