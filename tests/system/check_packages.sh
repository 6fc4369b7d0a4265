#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Debian packages that cpack makes: dpkg installs them into a copy of this system (an overlay that is discarded),
# programs are compiled and started there without any path, and removing the packages leaves nothing.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

[ "$(id -u)" -eq 0 ] || skip "only root may install packages"
for program in dpkg-shlibdeps cpack dpkg unshare; do
    command -v $program >/dev/null 2>&1 || skip "no $program"
done

# In a mount namespace of its own: the system with the packages' folder on top.
if [ "${1:-}" != inside ]; then
    mkdir "$scratch/top"
    # shellcheck disable=SC2016 # for that shell to expand
    unshare -m sh -c 'mount -t tmpfs top "$0" && cd "$0" && mkdir new work root &&
        mount -t overlay over -o lowerdir=/,upperdir=new,workdir=work root' "$scratch/top" >"$scratch/out" 2>&1 || skip "no overlay may be mounted here: $(cat "$scratch/out")"

    expect 0 "libtwill0" env LC_ALL=C cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch/packages" \
        -D CPACK_PACKAGING_INSTALL_PREFIX=/usr
    rm -rf "$scratch/packages/_CPack_Packages"
    for name in libtwill0 libtwill-dev twill-tools; do
        ls "$scratch/packages/$name"_*.deb >/dev/null || fail "no package $name"
    done
    cp "${source:?}/examples/hello.c" "$scratch/packages"
    PACKAGES=$scratch/packages TOP=$scratch/top
    export PACKAGES TOP
    unshare -m sh "$0" inside >"$scratch/out" 2>&1 || fail "the packages do not serve"
    cat "$scratch/out"
    exit 0
fi

mount -t tmpfs top "$TOP"
mkdir "$TOP/new" "$TOP/work" "$TOP/root"
mount -t overlay over -o "lowerdir=/,upperdir=$TOP/new,workdir=$TOP/work" "$TOP/root"
for folder in dev proc sys; do
    mount --rbind "/$folder" "$TOP/root/$folder"
done
mkdir -p "$TOP/root/packages"
mount --bind "$PACKAGES" "$TOP/root/packages"
cat >"$TOP/root/packages/inside.sh" <<'INSIDE'
set -eu
cd /packages
export DEBIAN_FRONTEND=noninteractive HOME=/packages LC_ALL=C.UTF-8
twill_files()
{
    find /usr/bin /usr/lib /usr/libexec /usr/include /usr/share/doc /usr/share/man /usr/share/twill -name '*twill*' 2>/dev/null | sort
}
before=$(twill_files)
packages="$(ls libtwill0_*.deb) $(ls libtwill-dev_*.deb) $(ls twill-tools_*.deb)"
for name in openmpi mpich abi; do # the first two where that MPI is installed
    [ ! -f "$(echo libtwill-mpi-${name}_*.deb)" ] || packages="$packages $(ls libtwill-mpi-${name}_*.deb)"
done
[ ! -f "$(echo libtwill-mpi_*.deb)" ] || packages="$packages $(ls libtwill-mpi_*.deb)"
dpkg -i $packages
for name in $(for file in $packages; do dpkg-deb -f "$file" Package; done); do
    grep -q '^License: Apache-2.0' "/usr/share/doc/$name/copyright"
done
for name in libfabric1 libmemkind0 libpmix2; do
    dpkg-query -W -f '${Recommends}' libtwill0 | grep -qw $name
done
cc -o hello hello.c $(pkg-config --cflags --libs twill)
twillrun -n 2 ./hello
twillrun -n 2 twill-bench allreduce -b 8 -e 8 -n 2
twill-info >/dev/null
ls /usr/share/doc/twill/LICENSE
cp -r /usr/share/doc/twill/examples .
cmake -S examples -B examples/build >/dev/null
cmake --build examples/build >/dev/null
twillrun -n 2 examples/build/bin/hello
for name in hello_cpp hello_fortran; do # those whose compiler is here
    [ ! -x examples/build/bin/$name ] || twillrun -n 2 examples/build/bin/$name
done
twillrun -n 2 examples/build/bin/train --data examples/data/wdbc.csv >train.out
tail -n 1 train.out
names=$(for file in $packages; do dpkg-deb -f "$file" Package; done)
dpkg -P $names
after=$(twill_files)
[ "$before" = "$after" ] || { echo "left behind: $after"; exit 1; }
! ldconfig -p | grep libtwill || exit 1
! dpkg -l 'libtwill*' twill-tools 2>/dev/null | grep '^[ir]' || exit 1
echo "packages: installed, used and removed"
INSIDE
chroot "$TOP/root" sh /packages/inside.sh
