#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The Python package on this build: its unit tests, alone and as ranks. Takes the first Python with NumPy of
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
