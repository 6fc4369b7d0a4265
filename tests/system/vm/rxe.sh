#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verbs;ofi_rxm over soft-RoCE in a virtual machine (qemu, software emulation): the conformance of
# providers, test_fabric_providers, as init's only child. Not part of CI: it takes a minute, and is for
# correctness only. Usage: sh tests/system/vm/rxe.sh BUILD [KERNEL]
#   BUILD   a build tree with bin/../tests/test_fabric_providers (default: build-release)
#   KERNEL  a directory with boot/vmlinuz-* and lib/modules: a Debian kernel image, unpacked. Default: that of
#           TEST_KERNEL, else the one that runs here. To get one:
#               apt-get download linux-image-6.1.0-56-amd64 && dpkg-deb -x linux-image-*.deb KERNEL
# Needs what guest.sh says, iproute2, and rdma-core's librxe (ibverbs-providers). Where one of them is
# missing it says so and ends with 77: skipped.
set -eu

source=$(cd "$(dirname "$0")/../../.." && pwd)
# shellcheck source-path=SCRIPTDIR source=guest.sh
. "$source/tests/system/vm/guest.sh"
build=${1:-$source/build-release}
[ ! -d "$build" ] || build=$(cd "$build" && pwd)
kernel=${2:-${TEST_KERNEL:-}}
program=$build/tests/test_fabric_providers
patience=${TEST_VM_TIMEOUT:-300}
libraries=/usr/lib/$(uname -m)-linux-gnu

[ -x "$program" ] || skip "no $program: build it first"
guest_tools ip rdma
[ -e "$libraries/libibverbs/librxe-rdmav34.so" ] || skip "no driver of rxe (package ibverbs-providers)"
guest_kernel "$kernel"
[ -n "$(find "${kernel%/}/lib/modules/$version" -name 'rdma_rxe.ko' 2>/dev/null)" ] ||
    skip "kernel $version has no rdma_rxe, or a packed one (a -cloud image?)"

guest_begin insmod
mkdir -p "$root/etc/libibverbs.d" "$root/modules"
guest_add "$(command -v ip)" "$(command -v rdma)" "$libraries/libibverbs/librxe-rdmav34.so" "$program"
cp /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/"

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

guest_pack <<INIT
while read -r module; do insmod /modules/\$module || echo "insmod \$module failed"; done </modules/order
$(command -v ip) link add roce0 type veth peer name roce1
$(command -v ip) addr add 10.5.0.1/24 dev roce0
$(command -v ip) link set roce0 up; $(command -v ip) link set roce1 up
sleep 1
$(command -v rdma) link add rxe0 type rxe netdev roce0 || echo "no soft-RoCE link"
ulimit -l unlimited
export FI_UNIVERSE_SIZE=16 TEST_PROVIDER=verbs TEST_ADDRESS=10.5.0.1 ${TEST_VM_ENVIRONMENT:-}
timeout $((patience - 30)) $program
echo "rxe.sh: the program ended with \$?"
INIT
echo "rxe.sh: kernel $version, software emulation, at most $patience s"
guest_boot "$patience" "" -cpu max -machine q35 -m 1536 -smp 2
grep -qx 'rxe.sh: the program ended with 0' "$scratch/log" || {
    echo "rxe.sh: FAILED"
    exit 1
}
