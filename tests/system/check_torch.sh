#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill as a backend of PyTorch: its C++ part is built, and every collective, messages, groups and a training run on
# 3 ranks; ways of parallel training on 2, against Gloo; calls of inference engines; 2 under torchrun; then one of 3 dies. Takes the first of $TEST_PYTHON, a python3 that has PyTorch, and
# PyTorch 2.13 where pip has it on this machine; and Debian's (python3-torch with libtorch-dev and pybind11-dev), of which only collectives are
# tested if there was a newer one. Skipped (77) without any.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh source=../support/pip_torch.sh source=../support/hosts.sh
# shellcheck disable=SC2154 # of rules.sh
. "$(dirname "$0")/../support/check.sh"
. "$here/support/pip_torch.sh"
. "$here/support/hosts.sh"
TORCH_TWILL_CACHE=${TORCH_TWILL_CACHE:-$build/torch}
export PYTHONDONTWRITEBYTECODE=1 TORCH_TWILL_CACHE OMP_NUM_THREADS=1
units=$here/unit/python debian=/usr/bin/python3 tested=

# twillrun listens at the port that it gives to ranks; torch's store needs another.
free_port()
{
    "$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# build_cpp FLAGS...
build_cpp()
{
    launcher=$(command -v ccache) || launcher= # nearly all of the time is compiling PyTorch's headers
    timeout -k 10 "$patience" env CXX="$launcher ${CXX:-c++}" TORCH_TWILL_CXXFLAGS="$*" "$python" -m twill.torch.build >"$scratch/out" 2>"$scratch/err" ||
        fail "the C++ part cannot be built"
    tested=$("$python" -c 'import torch; print(torch.__version__)')
    echo "ok: built for $tested"
}

# unit NAME RANKS OK [CASES...]: test_NAME.py, which prints OK so often.
unit()
{
    unit_name=$1 unit_ranks=$2 unit_oks=$3
    shift 3
    ranks "$unit_ranks" env MASTER_PORT="$(free_port)" "$python" "$units/test_$unit_name.py" "$@" || fail "test_$unit_name.py"
    [ "$(grep -o OK "$scratch/err" | wc -l)" -eq "$unit_oks" ] || # maybe not at the beginning of a line: ranks' output mixes
        fail "test_$unit_name.py: not all ranks have run their tests"
    echo "ok: test_$unit_name.py${*:+: }$*, $unit_ranks ranks$(sed -n 's/^OK (\(skipped=[0-9]*\))$/, \1/p' "$scratch/err" | head -n 1)"
}

# between_hosts NAME OK: test_NAME.py by two ranks of a host and one of another, where hosts can be made.
between_hosts()
{
    between_status=0
    (
        hosts_up 2
        hosts_job h0:2,h1:1 env MASTER_PORT=29400 PYTHONPATH="$PYTHONPATH" TORCH_TWILL_CACHE="$TORCH_TWILL_CACHE" OMP_NUM_THREADS=1 "$python" "$units/test_$1.py" || fail "test_$1.py between hosts"
        [ "$(grep -o OK "$scratch/err" | wc -l)" -eq "$2" ] || fail "test_$1.py between hosts: not all ranks have run their tests"
        echo "ok: test_$1.py, two hosts"
        hosts_down
    ) || between_status=$?
    [ "$between_status" -eq 0 ] || [ "$between_status" -eq 77 ] || exit "$between_status"
}

# From 2.5 on `import torch` names the backend and loads nothing else of twill, or does not even that if it must not.
autoload()
{
    "$python" -c 'import torch; torch._import_device_backends' 2>"$scratch/err" || return 0
    for named in True False; do
        [ $named = True ] || export TORCH_DEVICE_BACKEND_AUTOLOAD=0
        "$python" -c "import sys, torch.distributed as dist
assert (hasattr(dist.Backend, 'TWILL'), 'twill_entry' in sys.modules, 'twill' in sys.modules) == ($named, $named, False), sys.modules" \
            >"$scratch/out" 2>"$scratch/err" || fail "import torch: named: $named"
    done
    unset TORCH_DEVICE_BACKEND_AUTOLOAD
    echo "ok: import torch"
}

# Ranks that torchrun starts, of a program with "gloo" and twill's names written into it.
torchrun()
{
    # PyTorch 1.13 cannot make a job again in the same store, nor does its torchrun start with Python 3.11.
    "$python" -c 'from torch.distributed.distributed_c10d import _is_barrier_after_init' 2>"$scratch/err" || {
        echo "left out: torchrun of $tested"
        return
    }
    cat >"$scratch/written.py" <<'END'
import sys, torch, torch.distributed as dist
def is_shared(tensor):
    for line in open("/proc/self/maps"):
        first, last = (int(end, 16) for end in line.split()[0].split("-"))
        if first <= tensor.data_ptr() < last:
            return line.split()[1].endswith("s")
for name in ["gloo", "twill"] + ["cpu:twill"] * hasattr(dist.distributed_c10d, "BackendConfig"):
    dist.init_process_group(name)
    tensor = torch.full((100000,), dist.get_rank() + 1.0)
    dist.all_reduce(tensor)
    served = "twill" in "".join(sys.modules["twill.torch"].backend_of().describe())
    where = "shared" if is_shared(tensor) else "private"
    print(f"{name}: sum {tensor[99999]:g} {'by twill' if served else ''} in {where} memory\n", end="", flush=True)
    dist.destroy_process_group()
END
    for how in private shared preloaded entry; do
        memory=shared option="-m twill.torch --shared"
        case $how in
        private) memory=private option="-m twill.torch" ;;
        entry) # nothing of twill is named but in the environment
            "$python" -c 'import torch; torch._import_device_backends' 2>"$scratch/err" || continue # before 2.5
            memory=private option=
            export TORCH_TWILL_GLOO=1
            ;;
        preloaded) export LD_PRELOAD="$build/lib/libtwill-heap.so" ;; # by hand, but TWILL_HEAP is not set
        esac
        # shellcheck disable=SC2086 # no option
        timeout -k 10 "$patience" "$python" -m torch.distributed.run --master_addr 127.0.0.1 --master_port "$(free_port)" --nproc_per_node 2 \
            $option "$scratch/written.py" >"$scratch/out" 2>"$scratch/err" || fail "torchrun $option, $how"
        unset LD_PRELOAD TORCH_TWILL_GLOO
        for name in gloo twill cpu:twill; do
            [ "$(grep -c "^$name: sum 3 by twill in $memory memory$" "$scratch/out")" -eq 2 ] || fail "torchrun: not the sum of two ranks by $name in $memory memory ($how)"
        done
        [ "$(grep -c '"gloo" means twill' "$scratch/err")" -eq 1 ] || fail "torchrun: it is not said once what gloo means"
        echo "ok: torchrun $option ($how)"
    done
    without_python
}

# Ranks of a C program under torchrun, whose agent has a store at MASTER_PORT. twill-info finds them by the launcher's PID.
without_python()
{
    timeout -k 10 "$patience" "$python" -m torch.distributed.run --standalone --nproc_per_node 2 --no_python "$build/tests/where" \
        >"$scratch/out" 2>"$scratch/err" || fail "torchrun --no_python"
    [ "$(grep -c ', right: torchrun: RANK=' "$scratch/out")" -eq 2 ] || fail "torchrun --no_python: not two ranks"
    : >"$scratch/pids"
    timeout -k 10 "$patience" "$python" -m torch.distributed.run --standalone --nproc_per_node 2 --no_python "$build/tests/hangs" pauses \
        >"$scratch/pids" 2>"$scratch/err" &
    launcher=$!
    wait_for -p $launcher has_lines "$scratch/pids" 2
    wait_for -p $launcher is_behind
    kill $launcher
    wait $launcher || : # by the signal
    echo "ok: torchrun --no_python"
}
is_behind()
{
    "$bin/twill-info" --job "$launcher" >"$scratch/out" 2>&1 && grep -qF "rank 1 is 1 call behind" "$scratch/out"
}

whole()
{
    build_cpp
    export TORCH_TWILL_PROMOTE=1
    unit torch 3 12 # with the C++ part and without, then both by the name "gloo"
    unset TORCH_TWILL_PROMOTE
    unit calls 3 3  # twill's own calls, on tensors
    unit buffers 1 1
    autoload
    torchrun
    unit torch_parallel 2 2
    unit torch_engines 3 3
    between_hosts torch_engines 3
    if "$python" -c 'import torch.comms' 2>"$scratch/err"; then # PyTorch's main branch
        unit torch_comms 2 2
    else
        echo "left out: PyTorch $tested has no torch.comms"
    fi
    status=0
    timeout -k 10 "$patience" "$bin/twillrun" -n 3 --grace 60 env MASTER_PORT="$(free_port)" \
        "$python" "$units/test_torch_survival.py" >"$scratch/out" 2>"$scratch/err" || status=$?
    [ "$status" -eq 137 ] || fail "test_torch_survival.py: status $status"
    [ "$(grep -o 'survived: rank [02]' "$scratch/out" | sort -u | wc -l)" -eq 2 ] || fail "test_torch_survival.py"
    echo "ok: test_torch_survival.py: two of three ranks go on"
}

export PYTHONPATH="$build/python"
for python in ${TEST_PYTHON:-} python3; do
    [ -n "$tested" ] || ! imports_torch "$python" || whole
done
if [ -z "$tested" ]; then
    if pip_torch >"$scratch/out" 2>&1; then
        whole
    else
        echo "left out: PyTorch $pip_torch_version: $(tail -n 1 "$scratch/out")"
    fi
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$build/python"
python=$debian
if imports_torch "$python"; then
    case $tested in
    '') whole ;;
    "$("$python" -c 'import torch; print(torch.__version__)')") ;;
    *)
        build_cpp -O0
        unit torch 3 12 Collectives Forked Order WrongArguments
        ;;
    esac
fi
[ -n "$tested" ] || skip "no Python with PyTorch and NumPy (python3-torch)"
