#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill below torchft (replicas of which one dies and comes back, with gradients one by one and by its DistributedDataParallel) and below
# Ray's collectives. Takes the first Python that has them of $TEST_PYTHON, python3 and /usr/bin/python3 (neither is in Debian:
# pip install torchft ray); skipped (77) without one.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"
TORCH_TWILL_CACHE=${TORCH_TWILL_CACHE:-$build/torch}
export PYTHONPATH="$build/python" TORCH_TWILL_CACHE OMP_NUM_THREADS=1 RAY_USAGE_STATS_ENABLED=0
units=$here/unit/python done=

# python_with MODULE: set $python to the first one that has it.
python_with()
{
    python=
    for candidate in ${TEST_PYTHON:-} python3 /usr/bin/python3; do
        [ -n "$python" ] || ! "$candidate" -c "import $1" 2>/dev/null || python=$candidate
    done
    [ -n "$python" ] || echo "skipped: no Python with $1"
    [ -n "$python" ]
}

if python_with torchft; then
    launcher=$(command -v ccache) || launcher=
    timeout -k 10 "$patience" env CXX="$launcher ${CXX:-c++}" "$python" -m twill.torch.build >"$scratch/out" 2>"$scratch/err" || fail "the C++ part cannot be built"
    for how in hook ddp; do
        expect 0 "torchft over twill, $how: OK" "$python" "$units/test_torchft.py" twill "$how"
    done
    echo "ok: torchft: a replica dies and comes back" && done=1
fi
if python_with ray; then
    expect 0 "ray: OK" "$python" "$units/test_ray.py"
    echo "ok: Ray's collectives" && done=1
fi
[ -n "$done" ] || skip "no Python with torchft or Ray"
