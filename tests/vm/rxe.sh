#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verbs;ofi_rxm over soft-RoCE in a machine of its own (qemu, software emulation): the conformance of
# providers, test_fabric_providers, as init's only child. Not part of CI: it takes a minute, and is for
# correctness only. Usage: sh tests/vm/rxe.sh BUILD [KERNEL]
#   BUILD   a build tree with bin/../tests/test_fabric_providers (default: build-release)
#   KERNEL  a directory with boot/vmlinuz-* and lib/modules: a Debian kernel image, unpacked. Default: that of
#           TEST_KERNEL, else the one that runs here. To get one:
#               apt-get download linux-image-6.1.0-56-amd64 && dpkg-deb -x linux-image-*.deb KERNEL
# Needs qemu-system-x86, busybox-static, cpio, iproute2, rdma-core's librxe (ibverbs-providers). Where one
# of them is missing it says so and ends with 77: skipped.
set -eu

skip()
{
    echo "rxe.sh: skipped: $*"
    exit 77
}

source=$(cd "$(dirname "$0")/../.." && pwd)
build=${1:-$source/build-release}
kernel=${2:-${TEST_KERNEL:-}}
program=$build/tests/test_fabric_providers
patience=${TEST_VM_TIMEOUT:-300}
libraries=/usr/lib/$(uname -m)-linux-gnu

[ -x "$program" ] || skip "no $program: build it first"
for tool in qemu-system-x86_64 cpio gzip ldd timeout ip rdma; do
    command -v "$tool" >/dev/null || [ -x "/sbin/$tool" ] || [ -x "/usr/sbin/$tool" ] || skip "no $tool here"
done
PATH=$PATH:/usr/sbin:/sbin
busybox=$(command -v busybox) || skip "no busybox here"
ldd "$busybox" 2>&1 | grep -q 'not a dynamic' || skip "$busybox is not static (package busybox-static)"
[ -e "$libraries/libibverbs/librxe-rdmav34.so" ] || skip "no driver of rxe (package ibverbs-providers)"
image=
for candidate in "${kernel%/}"/boot/vmlinuz-*; do
    [ ! -r "$candidate" ] || image=$candidate
done
[ -n "$image" ] || skip "no kernel image in '${kernel:-/}boot': see the head of this file"
version=${image##*/vmlinuz-}
[ -n "$(find "${kernel%/}/lib/modules/$version" -name 'rdma_rxe.ko' 2>/dev/null)" ] ||
    skip "kernel $version has no rdma_rxe, or a packed one (a -cloud image?)"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
root=$scratch/root
mkdir -p "$root/bin" "$root/proc" "$root/sys" "$root/dev" "$root/tmp" "$root/run" "$root/etc/libibverbs.d" \
    "$root/modules" "$root/doubles"

# A file and what it is linked with, at the places they have here.
add()
{
    for file in "$@"; do
        mkdir -p "$root${file%/*}"
        cp -L "$file" "$root$file"
        ldd "$file" 2>/dev/null | grep -oE '/[^ )]+' | while read -r library; do
            [ -e "$root$library" ] || { mkdir -p "$root${library%/*}" && cp -L "$library" "$root$library"; }
        done
    done
}

cp "$busybox" "$root/bin/busybox"
for applet in sh mount mkdir insmod sleep poweroff cat ls timeout grep dmesg; do
    ln -s busybox "$root/bin/$applet"
done
add "$(command -v ip)" "$(command -v rdma)" "$libraries/libibverbs/librxe-rdmav34.so" "$program"
unwinder=/lib/$(uname -m)-linux-gnu/libgcc_s.so.1 # for back-traces
[ ! -e "$unwinder" ] || add "$unwinder"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"
echo '127.0.0.1 localhost' >"$root/etc/hosts"
echo 'root:x:0:0:root:/:/bin/sh' >"$root/etc/passwd"

# Modules in the order they are to be loaded, by what each says it depends on (no depmod is needed).
modules=$kernel/lib/modules/$version
load_order()
{
    for name in "$@"; do
        path=$(find "$modules" -name "$(echo "$name" | sed 's/[-_]/[-_]/g').ko" | head -n 1)
        [ -n "$path" ] || continue # built in
        tr '\0' '\n' <"$path" | sed -n -e 's/^depends=//p' -e 's/^softdep=pre: //p' | tr -s ', ' '\n' |
            while read -r before; do
                [ -z "$before" ] || load_order "$before"
            done
        echo "$path"
    done
}
load_order ipv6 veth crc32_generic ib_uverbs rdma_ucm rdma_rxe | awk '!seen[$0]++' | while read -r path; do
    cp "$path" "$root/modules/"
    echo "${path##*/}" >>"$root/modules/order"
done

cat >"$root/init" <<INIT
#!/bin/sh
export PATH=/bin
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev
exec </dev/ttyS0 >/dev/ttyS0 2>&1
mkdir -p /dev/shm; mount -t tmpfs tmpfs /dev/shm; mount -t tmpfs tmpfs /run
while read -r module; do insmod /modules/\$module || echo "insmod \$module failed"; done </modules/order
$(command -v ip) link set lo up
$(command -v ip) link add roce0 type veth peer name roce1
$(command -v ip) addr add 10.5.0.1/24 dev roce0
$(command -v ip) link set roce0 up; $(command -v ip) link set roce1 up
sleep 1
$(command -v rdma) link add rxe0 type rxe netdev roce0 || echo "no soft-RoCE link"
ulimit -l unlimited
export FI_UNIVERSE_SIZE=16 TEST_PROVIDER=verbs TEST_ADDRESS=10.5.0.1 ${TEST_VM_ENVIRONMENT:-}
timeout $((patience - 30)) $program
echo "rxe.sh: the program ended with \$?"
poweroff -f
INIT
chmod +x "$root/init"
(cd "$root" && find . | cpio -o -H newc --quiet | gzip -1) >"$scratch/initrd.gz"

echo "rxe.sh: kernel $version, software emulation, at most $patience s"
timeout "$patience" qemu-system-x86_64 -accel tcg,thread=multi -cpu max -machine q35 -m 1536 -smp 2 -nodefaults \
    -no-reboot -display none -serial stdio -kernel "$image" -initrd "$scratch/initrd.gz" \
    -append "console=ttyS0 panic=-1 quiet" </dev/null | tr -d '\r' | tee "$scratch/log"
grep -qx 'rxe.sh: the program ended with 0' "$scratch/log" || {
    echo "rxe.sh: FAILED"
    exit 1
}
