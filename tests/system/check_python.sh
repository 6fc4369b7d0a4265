#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package on this build: its unit tests, alone and as ranks; and its wheel, which pip builds and installs into a virtual
# environment (left out where pip has no scikit-build-core: it comes from PyPI). Takes the first Python with NumPy of
# $TEST_PYTHON, python3 and /usr/bin/python3 (Debian's: python3-numpy); skipped (77) without one.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"

python=
for candidate in ${TEST_PYTHON:-} python3 /usr/bin/python3; do
    if [ -z "$python" ] && "$candidate" -c 'import numpy, sys; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; then
        python=$candidate
    fi
done
[ -n "$python" ] || skip "no Python from 3.9 with NumPy (python3-numpy)"
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1
units=$here/unit/python

# unit NAME RANKS: run tests/unit/python/test_NAME.py on RANKS ranks, or without twillrun for 0.
unit()
{
    if [ "$2" -eq 0 ]; then
        timeout -k 10 "$patience" "$python" "$units/test_$1.py" >"$scratch/out" 2>&1 || fail "test_$1.py"
    else
        ranks "$2" "$python" "$units/test_$1.py" || fail "test_$1.py on $2 ranks"
    fi
    grep -qx 'OK.*' "$scratch/out" "$scratch/err" || fail "test_$1.py: no test has run"
    echo "ok: test_$1.py, ${2#0} ranks"
}

unit declarations 0
unit buffers 0
unit calls 1
unit calls 3
unit training 3
unit servers 3
unit failures 0

# The example: any number of ranks computes the same model. NumPy's own threads only get in each other's way.
export OPENBLAS_NUM_THREADS=1
for n in 1 3; do
    timeout -k 10 "$patience" "$python" -m twill.run -n $n "$source/examples/train.py" "$source/examples/data/wdbc.csv" 10 \
        >"$scratch/out" 2>"$scratch/err" || fail "examples/train.py on $n ranks"
    sed 's/, with [0-9]* ranks//' "$scratch/out" >"$scratch/train$n"
    [ "$(grep -c '^epoch' "$scratch/out")" -eq 5 ] || fail "examples/train.py prints no epochs"
done
# The last digit may differ: sums of more shards are rounded in another order.
awk 'NR == FNR {expected[FNR] = $0; next} $1 == "epoch" {
    split(expected[FNR], e); if ($2 != e[2] || ($4 - e[4]) ^ 2 > 1e-10) {print; bad = 1}
} END {exit bad}' "$scratch/train1" "$scratch/train3" || fail "one rank and three train different models"
echo "ok: examples/train.py"

# The wheel brings its own library and twillrun: nothing of the build folder is in the environment, and the program is elsewhere. What
# it is made of has been compiled with the same options before; ccache has it, as long as the sources are as near to the build folder.
wheel()
{
    wheel_python=$scratch/venv/bin/python
    unset PYTHONPATH
    rm -rf "$build-wheel"
    { "$python" -m venv --without-pip --system-site-packages "$scratch/venv" && timeout 120 "$wheel_python" -m pip install -q --disable-pip-version-check \
        'scikit-build-core>=1.0'; } >"$scratch/out" 2>&1 || { echo "left out: the wheel: $(tail -n 1 "$scratch/out")" && return; }
    timeout -k 10 "$patience" "$wheel_python" -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps \
        --config-settings=build-dir="$build-wheel" --config-settings=cmake.define.TWILL_WERROR=ON \
        --config-settings=cmake.define.CMAKE_C_COMPILER="$(cached CMAKE_C_COMPILER)" "$source/lib/python" \
        >"$scratch/out" 2>&1 || fail "pip install lib/python"
    rm -rf "$build-wheel"
    cat >"$scratch/summed.py" <<'END'
import importlib.metadata, os, sys, numpy, twill, twill_entry
with twill.init() as comm:
    total = comm.allreduce(numpy.full(1000, comm.rank + 1.0))
    library = [line.split()[-1] for line in open("/proc/self/maps") if "/libtwill.so" in line][0]
    assert library.startswith(os.path.realpath(sys.prefix)), library
    assert any(entry.name == "twill" for entry in importlib.metadata.distribution("twill").entry_points if entry.group == "torch.backends")
    print(f"sum {total[999]:g} of {comm.size}\n", end="", flush=True)
END
    for run in "$wheel_python -m twill.run" "$scratch/venv/bin/twillrun-python"; do
        # shellcheck disable=SC2086 # words
        (cd "$scratch" && timeout -k 10 "$patience" $run -n 3 summed.py) >"$scratch/out" 2>&1 || fail "the wheel: $run"
        [ "$(grep -c '^sum 6 of 3$' "$scratch/out")" -eq 3 ] || fail "the wheel: $run: not the sum of 3 ranks"
    done
    echo "ok: the wheel, in a virtual environment"
}
wheel
