#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill as a backend of PyTorch: its C++ part is built, and every collective, messages, groups and a training run on
# 3 ranks; ways of parallel training on 2, against Gloo; then one of 3 dies. Takes the first Python with PyTorch of $TEST_PYTHON, python3 and /usr/bin/python3 (Debian's: python3-torch
# with libtorch-dev and pybind11-dev); skipped (77) without one.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"

python=
for candidate in ${TEST_PYTHON:-} python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import torch.distributed, numpy' 2>/dev/null; then
        python=$candidate
    fi
done
[ -n "$python" ] || skip "no Python with PyTorch and NumPy (python3-torch)"
TORCH_TWILL_CACHE=${TORCH_TWILL_CACHE:-$build/torch}
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 TORCH_TWILL_CACHE OMP_NUM_THREADS=1
# twillrun listens at the port that it gives to ranks; torch's store needs another.
free_port()
{
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
units=$here/unit/python

launcher=$(command -v ccache) || launcher= # nearly all of the time is compiling PyTorch's headers
timeout -k 10 "$patience" env CXX="$launcher ${CXX:-c++}" "$python" -m twill.torch.build >"$scratch/out" 2>"$scratch/err" || fail "the C++ part cannot be built"
echo "ok: built for $("$python" -c 'import torch; print(torch.__version__)')"

ranks 3 env MASTER_PORT="$(free_port)" "$python" "$units/test_torch.py" || fail "test_torch.py"
[ "$(grep -o OK "$scratch/err" | wc -l)" -eq 6 ] || fail "test_torch.py: not all ranks have run their tests"
echo "ok: test_torch.py, 3 ranks, with the C++ part and without"

ranks 2 env MASTER_PORT="$(free_port)" "$python" "$units/test_torch_parallel.py" || fail "test_torch_parallel.py"
[ "$(grep -o OK "$scratch/err" | wc -l)" -eq 2 ] || fail "test_torch_parallel.py: not all ranks have run their tests"
echo "ok: test_torch_parallel.py, 2 ranks$(sed -n 's/^OK (\(skipped=[0-9]*\))$/, \1/p' "$scratch/err" | head -n 1)"

status=0
timeout -k 10 "$patience" "$bin/twillrun" -n 3 --grace 60 env MASTER_PORT="$(free_port)" \
    "$python" "$units/test_torch_survival.py" >"$scratch/out" 2>"$scratch/err" || status=$?
[ "$status" -eq 137 ] || fail "test_torch_survival.py: status $status"
[ "$(grep -o 'survived: rank [02]' "$scratch/out" | sort -u | wc -l)" -eq 2 ] || fail "test_torch_survival.py"
echo "ok: test_torch_survival.py: two of three ranks go on"
