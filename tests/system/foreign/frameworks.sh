#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# frameworks.sh FOLDER [NAME...] runs the programs of examples/frameworks over twill, then over Gloo. A row for each
# says its version, whether the results are the same, and the median of three speeds. FOLDER keeps gigabytes of packages, the
# newest that pip finds. TEST_BUILD is twill's build folder, and PYTHON a Python that has PyTorch 2.5 or later.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TEST_BUILD:-$here/../../../build}" && pwd) examples=$(cd "$here/../../../examples/frameworks" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd) base=${PYTHON:-python3}
shift
[ $# -gt 0 ] || set -- lightning accelerate trainer ray deepspeed
[ -e "$folder/bin/deepspeed" ] || {
    "$base" -m venv "$folder"
    packages=$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    "$base" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' >"$packages/torch.pth"
    "$folder/bin/pip" install -q lightning accelerate transformers 'ray[train]' deepspeed
}
export PATH="$folder/bin:$PATH" PYTHONPATH="$build/python" TORCH_TWILL_CACHE="${TORCH_TWILL_CACHE:-$build/torch}" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
unset TORCH_TWILL_GLOO
python -m twill.torch.build >/dev/null 2>&1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# once NAME WORD prints what rank 0 has printed.
once()
{
    program=$scratch/$1_job.py starts="python -m torch.distributed.run --standalone --nproc-per-node 2"
    sed "s/\"twill\"/\"$2\"/" "$examples/$1_job.py" >"$program"
    case $1 in
    lightning | ray) starts=python ;;
    accelerate | trainer) [ "$2" = gloo ] || starts="env TORCH_TWILL_GLOO=1 $starts" ;;
    deepspeed) # its own shared memory does not build everywhere, and is not compared here
        sed -i 's/^deepspeed.init/deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False\n&/' "$program"
        starts="env DS_ACCELERATOR=cpu $starts"
        ;;
    esac
    # shellcheck disable=SC2086 # words
    (cd "$scratch" && timeout 200 $starts "$program") >"$scratch/out" 2>&1 || { cat "$scratch/out" >&2 && exit 1; }
    sed -n 's/.*\(result .*\)/\1/p' "$scratch/out" | head -n 1
}

median() # FILE
{
    sort -n "$1" | sed -n 2p
}

echo "framework,version,result,steps/s twill,steps/s gloo"
for name in "$@"; do
    package=$name
    [ "$name" != trainer ] || package=transformers
    version=$(python -c "import importlib.metadata as m; print(m.version('$package'))")
    for word in twill gloo; do
        : >"$scratch/$word"
        : >"$scratch/$word.results"
    done
    for word in twill gloo twill gloo twill gloo; do
        once "$name" $word >"$scratch/line"
        awk '{ print $4 }' "$scratch/line" >>"$scratch/$word"
        awk '{ print $2 }' "$scratch/line" >>"$scratch/$word.results"
    done
    same=$(sort -u "$scratch/twill.results" "$scratch/gloo.results" | wc -l)
    [ "$same" -eq 1 ] && same=same || same=differs
    echo "$name,$version,$same,$(median "$scratch/twill"),$(median "$scratch/gloo")"
done
