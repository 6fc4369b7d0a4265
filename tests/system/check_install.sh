# SPDX-License-Identifier: Apache-2.0
# Install the build into a temporary prefix; build and run programs outside the tree with find_package(twill) and with
# pkg-config, shared and static, C and C++.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

prefix=$scratch/prefix
cc=$(cached CMAKE_C_COMPILER)
generator=$(cached CMAKE_GENERATOR) # what CMake would take by itself, make, may not be here

EXPECTED="$(cd "$TEST_SOURCE/lib" && printf 'include/%s\n' twill.h twill_*.h)"'
include/twill.hpp
include/twill.F90
include/twill_calls.inc
LIBDIR/libtwill.so
LIBDIR/libtwill.so.0
LIBDIR/libtwill.a
LIBDIR/libtwill-heap.so
LIBDIR/pkgconfig/twill.pc
LIBDIR/cmake/twill/twill-config.cmake
LIBDIR/cmake/twill/twill-config-version.cmake
LIBDIR/cmake/twill/twill-targets.cmake
bin/twillrun
bin/twill-bench
bin/twill-info
bin/twill-place
bin/twill-simulate
bin/twill-trace
bin/twill-compare
libexec/twill/compare-bound
libexec/twill/compare-twill
libexec/twill/simulate-run
libexec/twill/twill-check
share/twill/compare/peer.h
share/twill/compare/peer_call.h
share/twill/compare/peer_timing.h
share/twill/compare/peer_link.h
share/twill/tools/tool.py
share/twill/tools/compare.py
share/twill/tools/trace_tool.py
share/twill/tools/simulate_tool.py
share/twill/compare/peer_mpi.c
share/twill/compare/played_compute.h
share/man/man1/twillrun.1
share/man/man1/twill-bench.1
share/man/man1/twill-info.1
share/man/man1/twill-place.1
share/man/man1/twill-simulate.1
share/man/man1/twill-trace.1
share/man/man1/twill-compare.1
share/doc/twill/LICENSE
share/doc/twill/README.md
share/doc/twill/docs/tutorials/first-program.md
share/doc/twill/examples/CMakeLists.txt
share/doc/twill/examples/train.c
share/twill/gradients/README.md
share/twill/gradients/resnet50.txt
share/man/man7/twill-fabric.7
share/man/man7/twill-mpi.7
share/man/man7/twill.7'

# Made by doxygen: pages of a function, of a form of one, of the types.
MANUAL='share/man/man3/twill_allreduce.3
share/man/man3/twill_allreduce_start.3
share/man/man3/twill_gradients_ready.3
share/man/man3/twill.h.3'
[ ! -x "$(cached DOXYGEN_EXECUTABLE)" ] || EXPECTED="$EXPECTED
$MANUAL"

check_files() # prefix
{
    printf '%s\n' "$EXPECTED" | sed "s|LIBDIR|$libdir|" | while read -r file; do
        [ -s "$1/$file" ] || echo "$file is missing"
    done
    for mpi in "$build"/lib/libtwill-mpi*.so; do # of the MPIs that were found, of the ABI, of all
        [ -f "$mpi" ] || continue
        name=$(basename "$mpi" .so)
        [ -s "$1/$libdir/$name.so" ] || echo "$name.so is missing"
        [ -s "$1/$libdir/pkgconfig/${name#lib}.pc" ] || [ "${name#libtwill-mpi-calls-}" != "$name" ] || echo "${name#lib}.pc is missing"
    done
    # These are the only installed headers.
    find "$1/include" -name '*.h*' ! -path "$1/include/twill.h" ! -path "$1/include/twill_*.h" ! -path "$1/include/twill.hpp" | sed 's/$/ is no public header/'
}

# Links between the installed documents lead somewhere.
check_document_links() # prefix
{
    find "$1/share/doc/twill" -name '*.md' | while read -r page; do
        grep -oE '\]\([^)#]+' "$page" | sed 's/^](//' | grep -v '://' | sort -u | while read -r link; do
            [ -e "${page%/*}/$link" ] || echo "${page#"$1/"} links to $link, which is not installed"
        done
    done
}

# The target uninstall leaves nothing of ours, and no folder that it has made; in another prefix, with a file of another's.
by_uninstall()
{
    other=$scratch/other
    mkdir -p "$other/lib/pkgconfig" "$other/share/man"
    : >"$other/lib/pkgconfig/another.pc"
    must_end 0 "install once more" cmake --install "$build" --prefix "$other" || return
    cp "$build/install_manifest.txt" "$build/install_folders.txt" "$scratch/"
    must_end 0 "uninstall" cmake --build "$build" --target uninstall
    must_pass "uninstall leaves nothing" find "$other" -mindepth 1 ! -path "$other/lib" ! -path "$other/lib/pkgconfig" \
        ! -path "$other/lib/pkgconfig/another.pc" ! -path "$other/share" ! -path "$other/share/man"
    [ -e "$other/lib/pkgconfig/another.pc" ] || fault "uninstall: a file of another was removed"
    [ -d "$other/share/man" ] || fault "uninstall: a folder that was there before was removed"
    must_end failure "uninstall again" cmake --build "$build" --target uninstall
    grep -q 'nothing was installed from here' "$scratch/output" || fault "uninstall again: not said why"
}

# What is installed must work without the tree it came from.
check_no_tree_paths() # prefix
{
    grep -rlF -e "$source/" -e "$build/" "$1/$libdir/cmake" "$1/$libdir/pkgconfig" \
        "$1/include" | sed 's/$/ names a path of the build/'
    for program in "$1"/bin/*; do
        readelf -d "$program" 2>"$scratch/no_elf" | grep -E 'R(UN)?PATH' | grep -F -e "$build" |
            sed "s|^|$program: |"
    done
}

check_shared() # program
{
    ldd "$1" | grep -q "libtwill.so.0 => $prefix" || echo "$1 does not use the installed libtwill.so.0"
}

check_static() # program
{
    ldd "$1" | grep libtwill | sed "s|^|$1 needs |"
}

# One rank alone, and two by the installed launcher. Ranks say their line each.
run() # program
{
    must_end 0 "${1##*/}: 1 rank" env -u RANK -u WORLD_SIZE "$1"
    grep -q 'rank 0 of 1,.* success, 0 wrong' "$scratch/output" || fault "${1##*/}: 1 rank: values"
    must_end 0 "${1##*/}: 2 ranks" "$prefix/bin/twillrun" -n 2 "$1"
    for rank in 0 1; do
        grep -q "rank $rank of 2,.* success, 0 wrong" "$scratch/output" ||
            fault "${1##*/}: 2 ranks: values of rank $rank"
    done
}

by_cmake()
{
    must_end 0 "find_package(twill): configure" cmake -G "$generator" \
        -S "$scratch/project" -B "$scratch/out" -DCMAKE_C_COMPILER="$cc" \
        -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_BUILD_TYPE=Release || return
    must_end 0 "find_package(twill): build" cmake --build "$scratch/out" || return
    for program in consumer consumer_cxx; do
        must_pass "${program}_twill is shared" check_shared "$scratch/out/${program}_twill"
        must_pass "${program}_twill_static is static" check_static \
            "$scratch/out/${program}_twill_static"
        run "$scratch/out/${program}_twill"
        run "$scratch/out/${program}_twill_static"
    done
    sed -i 's/find_package(twill 0.1 /find_package(twill 7.0 /' "$scratch/project/CMakeLists.txt"
    must_end failure "find_package(twill 7.0) is refused" cmake -G "$generator" \
        -S "$scratch/project" -B "$scratch/refused" -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix"
    grep -q 'requested version "7.0"' "$scratch/output" || fault "7.0 is refused for another reason"
}

# Words of pkg-config are split on purpose.
# shellcheck disable=SC2046
by_pkg_config()
{
    PKG_CONFIG_PATH=$prefix/$libdir/pkgconfig
    export PKG_CONFIG_PATH
    must_end 0 "pkg-config: shared" "$cc" -o "$scratch/shared" "$scratch/project/consumer.c" \
        $(pkg-config --cflags --libs twill) -Wl,-rpath,"$prefix/$libdir" || return
    must_pass "by pkg-config, shared" check_shared "$scratch/shared"
    run "$scratch/shared"
    # The archive by name: with both there, -ltwill takes the shared library.
    must_end 0 "pkg-config: static" "$cc" -o "$scratch/static" "$scratch/project/consumer.c" \
        $(pkg-config --static --cflags --libs twill | sed 's/-ltwill/-l:libtwill.a/') || return
    must_pass "by pkg-config, static" check_static "$scratch/static"
    run "$scratch/static"
    # Nothing shared at all. Debian has no libudev.a, which its libhwloc.a needs: what it calls there may return NULL.
    if [ -f "$("$cc" -print-file-name=libhwloc.a)" ] && [ -f "$("$cc" -print-file-name=libsodium.a)" ]; then
        nm "$("$cc" -print-file-name=libhwloc.a)" 2>/dev/null | sed -n 's/^ *U \(udev_.*\)/void *\1(void) { return 0; }/p' | sort -u >"$scratch/udev.c"
        must_end 0 "pkg-config: -static" "$cc" -w -static -o "$scratch/all_static" "$scratch/project/consumer.c" \
            $(pkg-config --static --cflags --libs twill) "$scratch/udev.c" || return
        must_pass "by pkg-config, -static" sh -c "readelf -d '$scratch/all_static' | grep NEEDED"
        run "$scratch/all_static"
    fi
    [ "$(pkg-config --modversion twill)" = "$(cached CMAKE_PROJECT_VERSION)" ] ||
        fault "pkg-config: version"
}

# The lines of docs/guides/install.md for an installation in a folder of the user's, as they stand there.
by_install_page()
{
    {
        sed -n '/^## For yourself/,/^## As Debian/s/^\(export PATH=.*PKG_CONFIG_PATH=.*\)/\1/p' "$source/docs/guides/install.md"
        sed -n '/^## For yourself/,/^## As Debian/s/^\(cc .*-rpath.*\|twillrun .*\)/\1/p' "$source/docs/guides/install.md"
        grep -o '\. ~/opt/twill/share/bash-completion/[a-z/]*' "$source/docs/guides/install.md" | sed 's/^/bash -c "/; s/$/ \&\& complete -p twillrun"/'
        sed -n 's/^    \(cc examples.*-rpath.*\)/\1/p' "$source/README.md"
        [ -z "$(command -v gfortran)" ] || sed -n 's/^\(include=.*\|gfortran .*\)/\1/p' "$source/docs/guides/install.md"
        echo 'twillrun -n 2 ./a.out'
    } >"$scratch/lines"
    [ "$(wc -l <"$scratch/lines")" -ge 6 ] || fault "docs/guides/install.md: its lines for a folder of the user are not found"
    mkdir -p "$HOME/here" "$HOME/opt"
    ln -s "$prefix" "$HOME/opt/twill"
    [ "$libdir" = lib ] || ln -s "$prefix/$libdir" "$prefix/lib" # the path on the page is that of most systems
    cp -r "$source/examples" "$HOME/here"
    (cd "$HOME/here" && must_end 0 "docs/guides/install.md: its lines" env -u PKG_CONFIG_PATH sh -e "$scratch/lines" && finish)
}

# Configure a tree with pkg-config files of these names only, which are made up.
configure_with() # code label modules option...
{
    code=$1 label=$2 modules=$3
    shift 3
    rm -rf "$scratch/pc" "$scratch/configured"
    mkdir "$scratch/pc"
    for module in $modules; do
        printf 'Name: x\nDescription: x\nVersion: 99\n' >"$scratch/pc/$module.pc"
    done
    must_end "$code" "$label" env PKG_CONFIG_PATH= PKG_CONFIG_LIBDIR="$scratch/pc" cmake -G "$generator" -S "$source" \
        -B "$scratch/configured" -DCMAKE_C_COMPILER="$cc" -DCMAKE_DISABLE_FIND_PACKAGE_OpenMP=ON -DTWILL_BUILD_MPI=OFF \
        -DTWILL_BUILD_EXAMPLES=OFF -DTWILL_BUILD_MANUAL=OFF "$@"
}

says() # label text...
{
    label=$1
    shift
    tr -s ' \n' ' ' <"$scratch/output" >"$scratch/in_a_line" # CMake breaks lines
    for text in "$@"; do
        grep -qF -e "$text" "$scratch/in_a_line" || fault "$label: '$text' is not said"
    done
}

# What is not on the machine: what is needed is named at once, with its packages; what is not is left out, and said.
by_missing_libraries()
{
    configure_with failure "no library" ''
    says "no library" "libhwloc-dev" "libsodium-dev" "libjson-c-dev" "-DTWILL_BUILD_BENCH=OFF"
    configure_with failure "no library for tests" 'hwloc libsodium json-c' -DTWILL_BUILD_TESTS=ON
    says "no library for tests" "libcmocka-dev" "-DTWILL_BUILD_TESTS=OFF"
    configure_with 0 "no optional library" 'hwloc libsodium json-c'
    says "no optional library" "twill is built without these" "libfabric-dev" "libmemkind-dev" "libpmix-dev" "libgomp1" "libmicrohttpd-dev"
    for name in LIBFABRIC MEMKIND PMIX OPENMP MICROHTTPD; do
        configure_with failure "$name is asked for" 'hwloc libsodium json-c' "-DTWILL_WITH_$name=ON"
        says "$name is asked for" "-DTWILL_WITH_$name=OFF builds without it" "(packages: lib"
    done
    configure_with 0 "without, as asked for" 'hwloc libsodium' -DTWILL_WITH_LIBFABRIC=OFF -DTWILL_WITH_MEMKIND=OFF \
        -DTWILL_WITH_PMIX=OFF -DTWILL_WITH_OPENMP=OFF -DTWILL_BUILD_BENCH=OFF
    ! grep -q 'built without' "$scratch/output" || fault "what was not asked for is said to be missing"
}

# The installed examples are a separate project.
by_examples()
{
    cp -r "$prefix/share/doc/twill/examples" "$scratch/examples"
    must_end 0 "examples: configure" cmake -G "$generator" -S "$scratch/examples" -B "$scratch/examples/out" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_PREFIX_PATH="$prefix" || return
    must_end 0 "examples: build" cmake --build "$scratch/examples/out" || return
    for program in "$scratch/examples/out/bin"/hello*; do
        must_end 0 "examples: ${program##*/}" "$prefix/bin/twillrun" -n 2 "$program"
    done
}

# Inside another project: the library alone, whose warnings are not errors there, without optional parts.
by_subdirectory()
{
    mkdir "$scratch/host"
    copy_tree "$scratch/tree"
    CCACHE_BASEDIR=$scratch
    cp "$scratch/project/consumer.c" "$scratch/host"
    cat >"$scratch/host/CMakeLists.txt" <<-END
	cmake_minimum_required(VERSION 3.20)
	project(host LANGUAGES C)
	add_subdirectory($scratch/tree twill)
	add_executable(host consumer.c)
	target_link_libraries(host PRIVATE twill::twill)
	END
    must_end 0 "add_subdirectory: configure" cmake -G "$generator" -S "$scratch/host" -B "$scratch/host/out" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS=-Wpadded -DTWILL_WITH_LIBFABRIC=OFF \
        -DTWILL_WITH_MEMKIND=OFF -DTWILL_WITH_PMIX=OFF -DTWILL_WITH_OPENMP=OFF || return
    must_end 0 "add_subdirectory: build" cmake --build "$scratch/host/out" || return
    grep -q 'warning:.*-Wpadded' "$scratch/output" || fault "add_subdirectory: no warning was to be seen"
    must_pass "add_subdirectory: the library alone" find "$scratch/host/out" \( -name 'twill-*' -o -name twillrun \
        -o -name hello -o -name 'libtwill-*.so' -o -name 'test_*' \) -type f -perm -u+x
    must_pass "add_subdirectory: no manual is made" find "$scratch/host/out" -name 'twill*.3'
    run "$scratch/host/out/host"
    must_end 0 "without libfabric: two nodes" env TWILL_LAYOUT=nodes=2x1 "$prefix/bin/twillrun" -n 2 "$scratch/host/out/host"
    must_end failure "without libfabric: asked for" env TWILL_LAYOUT=nodes=2x1 TWILL_PROVIDER=ofi:tcp \
        "$prefix/bin/twillrun" -n 2 "$scratch/host/out/host"
    grep -q 'TWILL_PROVIDER=ofi:tcp: this library was built without libfabric' "$scratch/output" ||
        fault "it is not said that libfabric is not built in"
}

must_end 0 "cmake --install" cmake --install "$build" --prefix "$prefix" || finish
libdir=$(cd "$prefix" && dirname "$(find . -name libtwill.a)" | sed 's|^\./||')
mkdir "$scratch/project"
cp "$source"/tests/system/install/* "$scratch/project/"
must_pass "installed files" check_files "$prefix"
must_pass "no paths of the tree" check_no_tree_paths "$prefix"
must_pass "links of the installed documents" check_document_links "$prefix"
by_uninstall
by_cmake
by_pkg_config
by_install_page
by_examples
by_subdirectory
by_missing_libraries
# The installed launcher finds the library that was installed with it.
must_end 0 "TWILL_HEAP=shared, installed" env TWILL_HEAP=shared "$prefix/bin/twillrun" -n 2 \
    "$prefix/bin/twill-bench" allreduce -b 64K -e 64K -n 3 --memory malloc
grep -q 'memory for malloc: shared' "$scratch/output" || fault "the installed libtwill-heap.so is not used"
for tool in twill-info twill-bench; do
    must_end 0 "the installed $tool runs" "$prefix/bin/$tool" -h
done

# Beside libtwill, from the installed tree alone.
for mpi in "$prefix/$libdir"/libtwill-mpi-calls-*.so; do
    [ ! -f "$mpi" ] || must_pass "${mpi##*/} is shared" check_shared "$mpi"
done

# Self-test: a file that is missing, a header too many, a path of the build, is detected.
touch "$prefix/include/base.h"
rm "$prefix/$libdir/libtwill.a"
echo "# $source/lib" >>"$prefix/$libdir/pkgconfig/twill.pc"
must_complain 'libtwill.a is missing' check_files "$prefix"
must_complain 'base.h is no public header' check_files "$prefix"
rm "$prefix/share/doc/twill/CONTRIBUTING.md"
must_complain 'links to CONTRIBUTING.md, which is not installed' check_document_links "$prefix"
must_complain 'twill.pc names a path' check_no_tree_paths "$prefix"
must_complain 'does not use' check_shared /bin/sh
finish
