#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# own_lists.sh BUILD SOURCE OUT [FILE...] runs PyTorch's own distributed tests with twill in Gloo's place, and those
# that have failed once more over Gloo itself. It prints a line for each file (docs/results/pytorch-tests.md). BUILD is
# twill's build folder. SOURCE is an unpacked source of PyTorch, as from apt-get source pytorch. OUT is a folder for the
# results. A file whose results are there is not run again. FILE is a file of SOURCE/test/distributed without .py;
# without any FILE it takes the list below. PYTHON is a Python with PyTorch (python3). LIMIT is the seconds for a file
# (1500), SECONDS_A_TEST those for a test (120). If ON_CPU is set, tests of CUDA devices run on the CPU (own_tests.py
# --on-cpu).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "$1" && pwd) tests=$(cd "$2/test/distributed" && pwd)
mkdir -p "$3" && out=$(cd "$3" && pwd)
shift 3
python=${PYTHON:-python3} limit=${LIMIT:-1500}
export PYTHONPATH="$build/python:$here${PYTHONPATH:+:$PYTHONPATH}" TORCH_TWILL_CACHE="${TORCH_TWILL_CACHE:-$build/torch}" PYTHONDONTWRITEBYTECODE=1 OMP_NUM_THREADS=1 DISTRIBUTED_TESTS_DEFAULT_TIMEOUT="${SECONDS_A_TEST:-120}"
[ $# -gt 0 ] || set -- test_c10d_common test_c10d_gloo test_c10d_object_collectives test_c10d_spawn_gloo test_c10d_functional_native test_functional_api \
    test_device_mesh _composable/fsdp/ _composable/test_replicate _tensor/ tensor/parallel/ optim/ checkpoint/ pipelining/

# results NAME FILE OPTIONS... runs the tests of a file, and writes what they print to OUT/NAME.log.
results()
{
    run=$1 file=$2
    shift 2
    (cd "$(dirname "$file")" &&
        timeout -k 10 "$limit" "$python" "$here/own_tests.py" "$(basename "$file")" --out "$out/$run.txt" ${ON_CPU:+--on-cpu} "$@") >"$out/$run.log" 2>&1 ||
        echo "    did not end, or could not be imported: $(grep Error "$out/$run.log" | tail -n 1)"
    [ -e "$out/$run.txt" ] || : >"$out/$run.txt"
}

# count WHAT NAME prints how many tests of a file have that result.
count()
{
    grep -c "^$1" "$out/$2.txt" || :
}

for argument in "$@"; do
    for path in "$tests/$argument"*.py; do
        case $(basename "$path") in test_*) ;; *) continue ;; esac
        name=$(echo "${path#"$tests"/}" | sed 's/\.py$//; s:/:.:g')
        if [ ! -e "$out/$name.txt" ]; then
            results "$name" "$path"
            failed=$(sed -n 's/^failed\t[^\t]*\.\([^\t.]*\)\t.*/\1/p' "$out/$name.txt" | sort -u | tr '\n' ',')
            [ -z "$failed" ] || results "$name.gloo" "$path" --gloo --only "$failed"
        fi
        echo "$name: $(count passed "$name") passed, $(count failed "$name") failed, $(count skipped "$name") skipped"
        sed -n 's/^failed\t\([^\t]*\)\t/\1: /p' "$out/$name.txt" | while IFS=: read -r test reason; do
            cut -f 1,2 "$out/$name.gloo.txt" | grep -Fqx "passed	$test" && over=passes || over=fails
            echo "    $test:$reason ($over over Gloo)"
        done
    done
done
