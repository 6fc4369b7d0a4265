#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# torch_releases.sh WHEEL FOLDER PYTORCH... tries a wheel of twill that lib/python/wheels.sh made on releases of PyTorch, by hand. Three ranks
# make calls and two train beside Gloo. PYTORCH is a wheel or a version, of which pip downloads up to 1 GB, deleted after the try. Most are
# builds for CUDA, whose libraries are gigabytes more. Libraries without code take the place of these, and report that there is no device.
# A release fails for which twill's C++ part would have to be compiled. PYTHON is a Python of the version that the wheels are for.
set -eu
tests=$(cd "$(dirname "$0")/../.." && pwd)
wheel=$(realpath "$1")
mkdir -p "$2" && work=$(cd "$2" && pwd)
shift 2
python=$work/venv/bin/python
export OMP_NUM_THREADS=1 PYTHONPATH="$work/site" TORCH_TWILL_CACHE="$work/compiled" PATH="$work/venv/bin:$PATH"

# Put libraries without code in the place of CUDA's that PyTorch's need. Each function returns 100, "no device".
stubs()
{
    cd "$work/site/torch/lib"
    readelf -d lib*.so | sed -n 's/.*NEEDED.*\[\(lib\(cu\|nccl\|nv\).*\)\]/\1/p' | sort -u >stubs.needed
    readelf -W --dyn-syms lib*.so | awk '$7 == "UND" {sub(/\(.*/, "", $8); print $8}' | sort -u >stubs.symbols
    readelf -WV lib*.so | awk '{
        for (i = 1; i < NF; i++) {
            if ($i == "File:") file = $(i + 1)
            if ($i == "Name:" && file ~ /^lib(cu|nccl|nv)/) print file, $(i + 1)
        }}' | sort -u >stubs.versions
    while read -r name; do
        version=$(awk -v name="$name" '$1 == name {print $2; exit}' stubs.versions)
        {
            [ -z "$version" ] || grep "@$version\$" stubs.symbols || :
            # Symbols without versions are in one of the libraries.
            [ "${name%%.*}" != libcudart ] || grep -E '^(cu|nccl|nv)[^@]*$' stubs.symbols
        } | awk -F@ '{print ".globl " $1 "\n.type " $1 ", @function\n" $1 ":"} END {print "mov $100, %eax\nret\n.section .note.GNU-stack"}' >stubs.s
        echo "${version:+$version }{ global: *; };" >stubs.map
        gcc -shared -nostdlib -Wl,-soname,"$name" -Wl,--version-script=stubs.map -o "$name" stubs.s
    done <stubs.needed
    rm stubs.*
}

# unit NAME RANKS: test_NAME.py of tests/unit/python
unit()
{
    port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    timeout -k 10 1800 twillrun -n "$2" env MASTER_PORT="$port" "$python" "$tests/unit/python/test_$1.py" >"$work/$release-$1.log" 2>&1 &&
        [ "$(grep -o OK "$work/$release-$1.log" | wc -l)" -ge "$2" ]
}

[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$work/venv"
"$python" -m pip install -q filelock typing-extensions sympy networkx jinja2 fsspec numpy setuptools
"$python" -m pip install -q --no-deps --force-reinstall "$wheel"
failed=0
for given in "$@"; do
    file=$given
    rm -rf "$work/site" "$work/compiled" "$work/download"
    if [ ! -e "$file" ]; then
        PIP_CONSTRAINT=/dev/null "$python" -m pip download -q --no-deps --no-cache-dir -d "$work/download" "torch==$given"
        file=$(echo "$work"/download/*.whl)
    fi
    unzip -q "$file" -d "$work/site"
    rm -rf "$work/download"
    (stubs)
    release=$("$python" -c 'import torch, torch.distributed; print(torch.__version__)') || release=
    result=
    [ -n "$release" ] || { release=$given result=" cannot be imported"; }
    [ -n "$result" ] || "$python" -c 'import sys, twill.torch.build as build; sys.exit(build.prebuilt() is None)' || result=" has no C++ part in the wheel"
    if [ -z "$result" ]; then
        for test in torch:3 torch_parallel:2; do
            unit "${test%:*}" "${test#*:}" || result="$result test_${test%:*}"
        done
        [ ! -e "$TORCH_TWILL_CACHE" ] || result="$result something-was-compiled"
    fi
    [ -z "$result" ] || failed=1
    echo "PyTorch $release: ${result:-ok}"
done
rm -rf "$work/site"
exit $failed
