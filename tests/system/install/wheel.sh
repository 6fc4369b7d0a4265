#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Try the wheel of lib/python/wheels.sh in a Debian root that has no compiler. Packages come from Debian and PyPI.
# Root runs this by hand with the folder of wheels.sh, and with aarch64 for that processor. The root is kept there.
# On x86_64 pip installs from dist alone. Two ranks compute a sum, and the page of a job is read. They also make a step of
# DDP if dist has PyTorch.
# On aarch64 two ranks compute a sum in the emulation of qemu-user.
set -eu
folder=$(cd "$1" && pwd) processor=${2:-x86_64}
root=$folder/root-$processor
debian=http://deb.debian.org/debian
cat >"$folder/sum.py" <<'END'
import platform, numpy, twill
with twill.init() as comm:
    total = comm.allreduce(numpy.full(1000, comm.rank + 1.0))[999]
    # A line must be one write. PYTHONUNBUFFERED makes several of one print otherwise.
    print(f"{platform.machine()} {comm.rank} {comm.size} {total}\n", end="", flush=True)
END
cat >"$folder/ddp.py" <<'END'
import torch, torch.distributed as dist
dist.init_process_group("twill")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 1))
model(torch.full((8, 64), dist.get_rank() + 1.0)).sum().backward()
print(f"DDP {dist.get_rank()} {model.module.weight.grad[0, 0].item()}\n", end="", flush=True)
dist.destroy_process_group()
END
cat >"$folder/idle.py" <<'END'
import time, twill
with twill.init() as comm:
    comm.barrier()
    time.sleep(5)
END
cat >"$folder/look.py" <<'END'
import sys, time, urllib.request
address, _, token = sys.argv[1].partition("?")
assert b"<title>twill job</title>" in urllib.request.urlopen(sys.argv[1]).read()
for _ in range(100):
    state = urllib.request.urlopen(address + "state?" + token).read().decode()
    if '"rank":1' in state:
        break
    time.sleep(0.03)
print("page:", state[:300], flush=True)
sys.exit('"rank":1' not in state)
END

native()
{
    [ -e "$root/usr/bin/python3" ] || debootstrap --variant=minbase --include=python3-venv bookworm "$root" "$debian"
    mkdir -p "$root/wheels"
    rm -rf "$root/tmp/venv"
    echo "127.0.0.1 localhost $(uname -n)" >"$root/etc/hosts"
    cp "$folder"/dist/*.whl "$folder"/*.py "$root/wheels"
    extra=
    [ -z "$(find "$folder/dist" -name 'torch-*.whl')" ] || extra='[torch]'
    cat >"$root/wheels/try.sh" <<END
set -ex
mount -t proc proc /proc
mount -t sysfs sysfs /sys
! command -v cc gcc c++ g++
python3 -m venv /tmp/venv
time /tmp/venv/bin/pip install -q --no-index --find-links /wheels 'twill$extra'
time /tmp/venv/bin/twillrun -n 2 /tmp/venv/bin/python /wheels/sum.py | tee /tmp/out
grep -c '3\.0\$' /tmp/out | grep -x 2
/tmp/venv/bin/twill-info | head -n 2
/tmp/venv/bin/twill-bench allreduce --help >/tmp/help
/tmp/venv/bin/twillrun -n 2 --page /tmp/venv/bin/python /wheels/idle.py 2>/tmp/page &
until grep -q 'page: http' /tmp/page; do sleep 0.1; done
/tmp/venv/bin/python /wheels/look.py "\$(sed -n 's/.*: page: //p' /tmp/page)"
wait
[ -z "$extra" ] || { time /tmp/venv/bin/torchrun --nproc-per-node 2 /wheels/ddp.py | tee /tmp/out && grep -c '12\.0\$' /tmp/out | grep -x 2; }
[ ! -e /root/.cache/twill ] # nothing was compiled
END
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C OMP_NUM_THREADS=1 unshare -m -p -f chroot "$root" bash /wheels/try.sh
}

emulated()
{
    mkdir -p "$root/apt/lists/partial" "$root/apt/archives/partial" "$root/site"
    apt="apt-get -qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State=$root/apt -o Dir::Cache=$root/apt
         -o Dir::State::status=/dev/null -o APT::Sandbox::User=root"
    cd "$root/apt"
    # shellcheck disable=SC2086 # words
    [ -e "$root/usr/bin/python3.11" ] || {
        $apt update
        $apt download python3.11-minimal libpython3.11-minimal libpython3.11-stdlib libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libffi8
        for package in *.deb; do
            dpkg-deb -x "$package" "$root"
        done
        python3 -m pip download -q --no-deps --only-binary :all: --platform manylinux_2_28_aarch64 --python-version 311 -d "$root/apt" numpy
    }
    unzip -qo "$root/apt/numpy-*.whl" -d "$root/site"
    unzip -qo "$folder/dist/twill-*aarch64.whl" -d "$root/site"
    qemu="qemu-aarch64 -L $root"
    # shellcheck disable=SC2086 # words
    $qemu "$root/site/twill/bin/twillrun" -n 2 $qemu -E PYTHONHOME="$root/usr" -E PYTHONPATH="$root/site" "$root/usr/bin/python3.11" "$folder/sum.py" |
        tee "$folder/out"
    grep -c '^aarch64.* 3\.0$' "$folder/out" | grep -x 2
}

case $processor in
aarch64) emulated ;;
*) native ;;
esac
echo "ok: the wheel for $processor"
