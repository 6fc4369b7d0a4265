#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# frameworks.sh FOLDER [NAME...] runs the programs of examples/frameworks over twill, then over Gloo. A row for each says the word
# to change, whether the results are the same, and the median speed of ROUNDS (3), as bench/common/study_file.py reads it.
# NAME-patched is a copy of NAME with its patch. FOLDER keeps gigabytes of packages, the newest that pip finds. TEST_BUILD is twill's
# build folder, and PYTHON a Python that has PyTorch 2.7 or later.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(cd "${TEST_BUILD:-$here/../../../build}" && pwd) examples=$(cd "$here/../../../examples/frameworks" && pwd)
mkdir -p "$1"
folder=$(cd "$1" && pwd) base=${PYTHON:-python3}
shift
[ $# -gt 0 ] || set -- lightning accelerate accelerate-patched trainer trainer-patched ray deepspeed torchtitan torchft
installed='import importlib.util as u; print(all(map(u.find_spec, ("deepspeed", "torchft", "torchtitan", "triton"))))'
[ "$("$folder/bin/python" -c "$installed" 2>/dev/null)" = True ] || {
    "$base" -m venv "$folder"
    packages=$("$folder/bin/python" -c 'import site; print(site.getsitepackages()[0])')
    "$base" -c 'import torch, os; print(os.path.dirname(os.path.dirname(torch.__file__)))' >"$packages/torch.pth"
    "$folder/bin/pip" install -q lightning accelerate transformers 'ray[train]' deepspeed torchft torchtitan triton
}
export PATH="$folder/bin:$PATH" PYTHONPATH="$build/python" TORCH_TWILL_CACHE="${TORCH_TWILL_CACHE:-$build/torch}" OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1
unset TORCH_TWILL_GLOO
python -m twill.torch.build >/dev/null 2>&1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

package_of() # NAME
{
    package=${1%-patched}
    [ "$package" != trainer ] || package=transformers
    echo "$package"
}

# patch_copy NAME: patch copies of its packages, which are imported in place of them. The Trainer asks accelerate.
patch_copy()
{
    mkdir "$scratch/patched-$1"
    for package in accelerate $(package_of "$1" | grep -v accelerate); do
        cp -r "$(python -c "import importlib.util as u; print(u.find_spec('$package').submodule_search_locations[0])")" "$scratch/patched-$1"
        patch -s -d "$scratch/patched-$1" -p2 <"$examples/$package.patch"
    done
}

word_of() # NAME
{
    case $1 in
    accelerate | trainer | torchtitan) echo 'TORCH_TWILL_GLOO=1' ;;
    accelerate-patched) echo 'InitProcessGroupKwargs(backend="twill")' ;;
    trainer-patched) echo 'ddp_backend="twill"' ;;
    torchft) echo 'twill.torch.ft.ProcessGroupTwill' ;;
    deepspeed) echo 'dist_backend="twill"' ;;
    lightning) echo 'process_group_backend="twill"' ;;
    ray) echo 'TorchConfig(backend="twill")' ;;
    esac
}

# once NAME BACKEND prints what rank 0 has printed.
once()
{
    program=$scratch/$1_job.py paths=$scratch/patched-$1:$PYTHONPATH starts="python -m torch.distributed.run --standalone --nproc-per-node 2"
    cp "$examples/${1%-patched}_job.py" "$program"
    case $1 in
    lightning | ray) starts=python ;;
    torchft)
        starts=python
        [ "$2" = twill ] || sed -i 's/pg=twill.torch.ft.ProcessGroupTwill/pg=torchft.ProcessGroupGloo/' "$program"
        ;;
    accelerate | trainer | torchtitan)
        [ "$2" = gloo ] || starts="env TORCH_TWILL_GLOO=1 $starts"
        # Gloo has no PREMUL_SUM, which torchtitan makes FSDP call
        [ "$1$2" != torchtitangloo ] ||
            sed -i 's/^optimizer, rank/for part in model.modules():\n    getattr(part, "set_force_sum_reduction_for_comms", id)(True)\n&/' "$program"
        ;;
    accelerate-patched) sed -i "s/cpu=True/&, kwargs_handlers=[accelerate.$(word_of "$1")]/" "$program" ;;
    trainer-patched) sed -i "s/use_cpu=True/&, $(word_of "$1")/" "$program" ;;
    deepspeed) # its own shared memory does not build everywhere, and is not compared here
        sed -i 's/^deepspeed.init/deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False\n&/' "$program"
        starts="env DS_ACCELERATOR=cpu $starts"
        ;;
    esac
    sed -i "s/\"twill\"/\"$2\"/" "$program"
    # shellcheck disable=SC2086 # words
    (cd "$scratch" && PYTHONPATH=$paths timeout 200 $starts "$program") >"$scratch/out" 2>&1 || { cat "$scratch/out" >&2 && exit 1; }
    sed -n 's/.*\(result .*\)/\1/p' "$scratch/out" | head -n 1
}

median() # FILE
{
    sort -n "$1" | awk '{ all[NR] = $1 } END { print all[int((NR + 1) / 2)] }'
}

for name in "$@"; do
    version=$(python -c "import importlib.metadata as m; print(m.version('$(package_of "$name")'))")
    [ "$name" = "${name%-patched}" ] || patch_copy "$name"
    for backend in twill gloo; do
        : >"$scratch/$backend"
        : >"$scratch/$backend.results"
    done
    for _ in $(seq "${ROUNDS:-3}"); do
        for backend in twill gloo; do
            once "$name" $backend >"$scratch/line"
            awk '{ print $4 }' "$scratch/line" >>"$scratch/$backend"
            awk '{ print $2 }' "$scratch/line" >>"$scratch/$backend.results"
        done
    done
    same=$(sort -u "$scratch/twill.results" "$scratch/gloo.results" | wc -l)
    [ "$same" -eq 1 ] && same=same || same=differs
    printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$name" "$version" "$(word_of "$name")" "$same" "$(median "$scratch/twill")" "$(median "$scratch/gloo")"
done
