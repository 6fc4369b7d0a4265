#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# LightGBM's distributed training over twill and over its own sockets: the same model. Takes a Python that has LightGBM
# ($TEST_PYTHON, python3), or installs it from PyPI; skipped (77) where neither is possible.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"

python=
for candidate in ${TEST_PYTHON:-} python3; do
    if [ -z "$python" ] && "$candidate" -c 'import lightgbm' 2>/dev/null; then
        python=$candidate
    fi
done
if [ -z "$python" ]; then
    python=$scratch/venv/bin/python
    { python3 -m venv --without-pip "$scratch/venv" && timeout 300 python3 -m pip --python "$python" install -q --no-compile lightgbm; } >"$scratch/out" 2>&1 ||
        skip "LightGBM is not here, and PyPI cannot be reached"
fi
# Modules are compiled as they are imported, once for all processes.
export PYTHONPATH="$build/python" PYTHONPYCACHEPREFIX="$scratch/compiled" OMP_NUM_THREADS=1
for data in wdbc digits; do # the label comes first
    sed 1d "$source/examples/data/$data.csv" | awk -F, '{printf "%s", $NF; for (i = 1; i < NF; i++) printf ",%s", $i; print ""}' \
        >"$scratch/$data.csv"
done
for data in "$scratch/wdbc.csv" "$scratch/digits.csv" 5000x20; do
    case $data in *digits*) number=2 ;; *) number=3 ;; esac # sums of two are rounded alike in any order
    ranks $number "$python" "$here/system/lightgbm/train_boosted.py" "$data" 5 15 1 || fail "LightGBM on $data"
    grep -q '^1 model, [89][0-9.]*%' "$scratch/out" || fail "LightGBM on $data: no model, or a bad one"
    echo "ok: LightGBM, ${data##*/}, $number ranks"
done
