# SPDX-License-Identifier: Apache-2.0
# Which module may use which other: checked by includes, and by the undefined symbols of each module's archive.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

# --- includes ---------------------------------------------------------------------------------

# May a file of this module include this file of ours? Paths start at the top of the tree.
may_know() # module includer included
{
    case $3 in lib/base/plural.h | lib/base/times.h | lib/base/rest.h | lib/base/thread_rates.h) return 0 ;; esac
    case $1:$3 in
    lib:*)
        case $2 in
        lib/base/*) case $3 in lib/base/* | lib/twill.h | lib/twill_train.h) return 0 ;; esac; return 1 ;;
        lib/twill_*.h) case $3 in lib/twill.h | lib/twill_train.h) return 0 ;; esac; return 1 ;;
        lib/heap/*) case $3 in lib/base/base.h | lib/heap/*) return 0 ;; esac; return 1 ;;
        lib/mpi/*) case $3 in lib/base/base.h | lib/base/lists.h | lib/twill.h | lib/twill_recover.h | lib/mpi/*) return 0 ;; esac; return 1 ;;
        lib/python/*) case $3 in lib/python/*) return 0 ;; esac; return 1 ;;
        # Prices are those by which the library chooses, threads and their memory have places: algorithms, numa.
        lib/train/*) case $3 in lib/server/*) return 1 ;; lib/* | kernels/* | algorithms/select/*.h | numa/topology.h) ;; *) return 1 ;; esac ;;
        lib/server/*) case $3 in lib/* | kernels/* | numa/memory.h) ;; *) return 1 ;; esac ;;
        lib/window/*) case $3 in lib/train/* | lib/server/*) return 1 ;; lib/* | kernels/*) ;; *) return 1 ;; esac ;;
        esac
        case $3 in
        lib/mpi/* | lib/python/*) return 1 ;;
        lib/* | kernels/* | algorithms/* | numa/* | fabric/*) return 0 ;;
        esac ;;
    kernels:lib/base/base.h | kernels:lib/base/lists.h | kernels:lib/base/thread_start.h | kernels:lib/twill.h | kernels:lib/twill_train.h | kernels:kernels/*) return 0 ;;
    algorithms:lib/base/base.h | algorithms:lib/base/lists.h | algorithms:lib/twill.h | algorithms:algorithms/*) return 0 ;;
    numa:lib/base/base.h | numa:lib/twill.h | numa:numa/*) return 0 ;;
    fabric:lib/base/base.h | fabric:lib/twill.h | fabric:algorithms/world/world.h) return 0 ;;
    fabric:numa/* | fabric:fabric/*) return 0 ;;
    # The preflight check is a program beside the launcher.
    fabric:bench/common/* | fabric:lib/twill_*.h | fabric:lib/base/lists.h)
        case $2 in fabric/launcher/preflight/*) return 0 ;; esac
        return 1 ;;
    # Kernels are timed alone; the library does not export them.
    bench:kernels/*.h | bench:lib/base/base.h)
        case $2:$3 in
        bench/tools/place/*:kernels/kernels.h | bench/tools/place/*:kernels/thread_pool.h) return 0 ;;
        bench/tools/bench/kernels/*:kernels/* | bench/tools/bench/kernels/*:lib/base/base.h) return 0 ;;
        esac
        return 1 ;;
    # Messages are also measured without the library above the transport.
    bench:fabric/transports.h | bench:fabric/shm/node_memory.h | bench:fabric/bootstrap/oob_batch.h)
        case $2 in bench/tools/bench/fabric/fabric_transport.c) return 0 ;; esac
        return 1 ;;
    # The functions that place threads also draw them.
    bench:numa/topology.h | bench:lib/base/plural.h)
        case $2 in bench/tools/info/print_threads.c) return 0 ;; esac
        return 1 ;;
    # Events are timed alone.
    bench:lib/base/trace.h)
        case $2 in bench/studies/trace_overhead.c) return 0 ;; esac
        return 1 ;;
    # Schedules are simulated on networks.
    bench:algorithms/*)
        case $2 in bench/studies/network/*) return 0 ;; esac
        return 1 ;;
    bench:lib/twill.h | bench:lib/twill_*.h | bench:lib/base/lists.h | bench:bench/*) return 0 ;;
    examples:lib/twill.h | examples:lib/twill_*.h | examples:examples/*) return 0 ;;
    esac
    return 1
}

# May this file include a header of somebody else's?
may_use() # includer header
{
    # The C++ part of twill.torch is a program of the library's: PyTorch's headers, C++, the public ones, getpid().
    case $1 in
    lib/python/twill/torch/csrc/*)
        case $2 in torch/* | ATen/* | pybind11/* | twill.h | twill_*.h | unistd.h) return 0 ;; *[./]*) return 1 ;; esac
        return 0 ;;
    esac
    case $2 in
    rdma/*) case $1 in fabric/ofi/* | bench/tools/compare/peers/peer_fabric.c) return 0 ;; esac; return 1 ;;
    sodium*) case $1 in fabric/auth/job_key.c | fabric/auth/seal.c) return 0 ;; esac; return 1 ;;
    pmix*) case $1 in fabric/bootstrap/bootstrap_pmix.c) return 0 ;; esac; return 1 ;;
    hwloc*) case $1 in numa/topology*) return 0 ;; esac; return 1 ;;
    memkind* | hbwmalloc*) case $1 in numa/memory*) return 0 ;; esac; return 1 ;;
    *intrin.h | arm_acle.h | omp.h | cpuid.h) case $1 in kernels/* | bench/tools/compare/peers/peer_bound.c) return 0 ;; esac; return 1 ;;
    mpi.h) case $1 in bench/tools/compare/peers/peer_mpi.c | bench/studies/server/central_mpi.c | lib/mpi/*) return 0 ;; esac; return 1 ;;
    ggml.h | ggml-*.h) case $1 in examples/frameworks/ggml_*) return 0 ;; esac; return 1 ;;
    mpi-ext.h) case $1 in lib/mpi/*) return 0 ;; esac; return 1 ;;
    ucc/api/ucc.h) case $1 in bench/tools/compare/peers/peer_ucc.c) return 0 ;; esac; return 1 ;;
    simgrid/*) case $1 in bench/studies/network/*) return 0 ;; esac; return 1 ;;
    microhttpd.h) case $1 in bench/tools/page/*) return 0 ;; esac; return 1 ;;
    json.h | json-c/*) case $1 in bench/* | fabric/launcher/preflight/* | examples/*) return 0 ;; esac; return 1 ;;
    twill.h | twill_*.h) case $1 in bench/* | fabric/launcher/preflight/* | examples/*) return 0 ;; esac; return 1 ;;
    # C11
    assert.h | ctype.h | errno.h | fenv.h | float.h | inttypes.h | limits.h | locale.h | math.h) ;;
    signal.h | stdalign.h | stdarg.h | stdatomic.h | stdbool.h | stddef.h | stdint.h) ;;
    stdio.h | stdlib.h | string.h | time.h) ;;
    # POSIX and Linux
    sys/* | net/* | netinet/* | arpa/* | linux/*) ;;
    dirent.h | dlfcn.h | fcntl.h | ftw.h | getopt.h | glob.h | ifaddrs.h | link.h | malloc.h | netdb.h) ;;
    poll.h | pthread.h | pwd.h) ;;
    sched.h | semaphore.h | spawn.h | strings.h | termios.h | unistd.h) ;;
    *) return 1 ;; # a header that belongs to no module yet
    esac
    return 0
}

# Set `target` to where a quoted include leads, from the top of the tree: next to the includer, else from the top,
# else a public header, which users find by -I. (Without a process for each of some thousand includes.)
resolve() # root includer header
{
    case $3 in *../*) target="$3 (leave out the dots)"; return ;; esac
    if [ -f "$1/${2%/*}/$3" ]; then
        target=${2%/*}/$3
    elif [ -f "$1/$3" ]; then
        target=$3
    elif case $2 in examples/recipes/*) [ -f "$1/examples/$3" ] ;; *) false ;; esac; then
        target=examples/$3 # its CMakeLists.txt has that folder on the path
    elif case $3 in twill.h | twill_*.h) [ -f "$1/lib/$3" ] ;; *) false ;; esac; then
        target=lib/$3
    else
        target="$3 (no such file)"
    fi
}

check_includes() # root
{
    for module in kernels algorithms numa fabric lib bench examples; do
        [ -d "$1/$module" ] || continue
        find "$1/$module" -name '*.[ch]' -exec \
            grep -HE '^[[:space:]]*#[[:space:]]*include' {} + |
            sed -E "s|^$1/||; s/^([^:]*):[^<\"]*([<\"])([^>\"]*)[>\"].*/\1:\2:\3/" |
            while IFS=: read -r file kind header; do
                case $kind in
                \")
                    resolve "$1" "$file" "$header"
                    may_know "$module" "$file" "$target" ||
                        echo "$file: $module must not know $target" ;;
                \<)
                    may_use "$file" "$header" || echo "$file: <$header> has no place here" ;;
                *) echo "$file: cannot read: $kind" ;;
                esac
            done
    done
}

# A tree of empty headers.
tree_of_headers()
{
    rm -rf "$scratch/tree"
    for header in lib/base/base.h lib/comm/comm.h lib/mpi/shim.h fabric/shm/node_memory.h fabric/transports.h algorithms/world/world.h \
        algorithms/algorithms.h numa/memory.h kernels/kernels.h; do
        mkdir -p "$scratch/tree/${header%/*}"
        : >"$scratch/tree/$header"
    done
    mkdir -p "$scratch/tree/fabric/ofi" "$scratch/tree/fabric/bootstrap/tcp" "$scratch/tree/lib/heap" "$scratch/tree/bench/bench" \
        "$scratch/tree/examples" "$scratch/tree/lib/python/twill/torch/csrc"
}

# Every include of the list is complained about, and no other.
self_test_includes()
{
    cat >"$scratch/list" <<-'LIST'
	kernels/a.c "lib/comm/comm.h"
	kernels/a.c "algorithms/world/world.h"
	algorithms/a.c "../fabric/shm/node_memory.h"
	algorithms/a.c "numa/memory.h"
	numa/a.c "fabric/shm/node_memory.h"
	fabric/a.c "algorithms/algorithms.h"
	fabric/a.c "kernels/kernels.h"
	fabric/ofi/a.c "lib/comm/comm.h"
	lib/base/base.c "fabric/shm/node_memory.h"
	lib/heap/a.c "lib/comm/comm.h"
	bench/a.c "lib/base/base.h"
	bench/bench/a.c "kernels/kernels.h"
	bench/bench/b.c "fabric/transports.h"
	examples/a.c "lib/comm/comm.h"
	fabric/a.c <rdma/fabric.h>
	fabric/bootstrap/bootstrap.c <sodium.h>
	fabric/bootstrap/tcp/bootstrap_tcp.c <pmix.h>
	lib/a.c <hwloc.h>
	numa/memory.c <hwloc.h>
	numa/topology.c <memkind.h>
	lib/a.c <immintrin.h>
	fabric/a.c <omp.h>
	lib/a.c <json-c/json.h>
	kernels/a.c <somebody_elses.h>
	lib/mpi/a.c "lib/comm/comm.h"
	lib/mpi/a.c "fabric/shm/node_memory.h"
	lib/a.c "lib/mpi/shim.h"
	lib/python/twill/torch/csrc/a.h "lib/base/base.h"
	lib/python/twill/torch/csrc/a.h <hwloc.h>
	lib/a.c <mpi.h>
	lib/a.c <ggml.h>
	fabric/a.c <mpi-ext.h>
	bench/a.c <mpi.h>
	bench/a.c <ucc/api/ucc.h>
	kernels/a.c MACRO
LIST
    tree_of_headers
    while read -r file operand; do
        echo "#include $operand" >>"$scratch/tree/$file"
    done <"$scratch/list"
    check_includes "$scratch/tree" >"$scratch/complaints" 2>&1
    while read -r file operand; do
        header=${operand#[<\"]}
        must_complain "^$file: .*${header%[>\"]}" cat "$scratch/complaints"
    done <"$scratch/list"
    [ "$(wc -l <"$scratch/complaints")" -eq "$(wc -l <"$scratch/list")" ] || fault "complaints: $(cat "$scratch/complaints")"
    tree_of_headers
    printf '#include %s\n' '<rdma/fabric.h>' '"algorithms/world/world.h"' >"$scratch/tree/fabric/ofi/a.c"
    must_pass "self-test: what is allowed is allowed" check_includes "$scratch/tree"
}

# --- lib's folders ----------------------------------------------------------------------------

# From the bottom up: a file includes files of its own folder and of those before it. Extensions, above them all, include
# the base, lib/extend.h and the waiter; servers also what sets share with them, lib/train/shared/.
# (Any may include public headers.)
layers="base job engine wait comm report api"
# The folders of an extension, in the same way; what is beside its README is above them all.
train_layers="shared set compression optimizer reducers"
server_layers="layout shard state"

# Complain about includes that run up.
check_tower() # root
{
    (cd "$1" && grep -rHoE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"lib/[^"]+/[^"]+"' --include='*.[ch]' lib) |
        sed -E 's/:[^"]*"/ /; s/"$//' |
        awk -v layers="$layers" -v train="$train_layers" -v server="$server_layers" '
            function folder(path) { split(path, part, "/"); return part[2] }
            function height(path) { # of a folder of an extension; of one that is not listed: above all
                n = split(path, part, "/")
                return n > 3 && (part[2], part[3]) in inner ? inner[part[2], part[3]] : n > 3 ? 99 : 98
            }
            BEGIN {n = split(train, name, " "); for (i = 1; i <= n; i++) inner["train", name[i]] = i
                   n = split(server, name, " "); for (i = 1; i <= n; i++) inner["server", name[i]] = i
                   layered = n = split(layers, name, " "); for (i = 1; i <= n; i++) place[name[i]] = i
                   place["train"] = n + 1; place["server"] = n + 2; place["window"] = n + 3}
            {from = folder($1); to = folder($2)}
            from == to && from in place && place[from] > layered {if (height($2) > height($1)) print; next}
            from == to || !(from in place) || !(to in place) {next}
            from == "server" && $2 == "lib/train/shared/shared.h" {next}
            place[from] > layered && $2 == "lib/wait/wait.h" {next}
            place[from] > layered ? to != "base" : place[to] >= place[from]' |
        sed 's/ \(.*\)/: must not include \1, which is above it/'
}

self_test_tower()
{
    rm -rf "$scratch/tree"
    for folder in base engine comm train; do
        mkdir -p "$scratch/tree/lib/$folder"
        : >"$scratch/tree/lib/$folder/a.h"
    done
    printf '#include "lib/%s/a.h"\n' base engine comm >"$scratch/tree/lib/engine/a.c"
    printf '#include "lib/%s/a.h"\n' base engine comm >"$scratch/tree/lib/comm/a.c"
    printf '#include "%s"\n' lib/base/a.h lib/train/a.h lib/extend.h >"$scratch/tree/lib/train/a.c"
    printf '#include "lib/comm/a.h"\n' >"$scratch/tree/lib/train/b.c"
    mkdir -p "$scratch/tree/lib/train/set" "$scratch/tree/lib/train/reducers"
    printf '#include "lib/train/%s.h"\n' a reducers/reducers set/set >"$scratch/tree/lib/train/set/a.c"
    printf '#include "lib/train/%s.h"\n' reducers/reducers set/set >"$scratch/tree/lib/train/reducers/a.c"
    must_complain '^lib/engine/a.c: must not include lib/comm/a.h' check_tower "$scratch/tree"
    must_complain '^lib/train/b.c: must not include lib/comm/a.h' check_tower "$scratch/tree"
    must_complain '^lib/train/set/a.c: must not include lib/train/a.h' check_tower "$scratch/tree"
    must_complain '^lib/train/set/a.c: must not include lib/train/reducers/reducers.h' check_tower "$scratch/tree"
    [ "$(check_tower "$scratch/tree" | wc -l)" -eq 4 ] || fault "self-test: what is allowed is not: $(check_tower "$scratch/tree")"
}

# --- archives ---------------------------------------------------------------------------------

modules_known_to()
{
    case $1 in
    base) ;;
    kernels | algorithms | numa) echo base ;;
    fabric) echo base numa algorithms ;;
    lib) echo base kernels algorithms numa fabric ;;
    esac
}

archive_of() # build module
{
    case $2 in
    base) echo "$1/lib/libtwill_base.a" ;;
    *) echo "$1/$2/libtwill_$2.a" ;;
    esac
}

# Every twill_ name that a module's archive needs is defined in itself or in a module it may know.
check_archives() # build
{
    for module in base kernels algorithms numa fabric lib; do
        archive=$(archive_of "$1" "$module")
        [ -f "$archive" ] || { echo "$module: no $archive"; continue; }
        nm --undefined-only "$archive" | awk '$NF ~ /^twill_/ {print $NF}' | sort -u \
            >"$scratch/needed"
        for known in $module $(modules_known_to "$module"); do
            nm --defined-only --extern-only "$(archive_of "$1" "$known")" 2>/dev/null
        done | awk 'NF == 3 {print $3}' | sort -u >"$scratch/known"
        comm -23 "$scratch/needed" "$scratch/known" | sed "s/^/$module: needs /"
    done
}

# Libraries of others are called from one module only: PREFIX MODULE.
check_foreign_calls() # build
{
    cat >"$scratch/owners" <<-'LIST'
	fi_ fabric
	hwloc_ numa
	memkind_ numa
	hbw_ numa
	omp_ kernels
	GOMP_ kernels
	__kmpc_ kernels
LIST
    for module in base kernels algorithms numa fabric lib; do
        nm --undefined-only "$(archive_of "$1" "$module")" 2>/dev/null |
            awk -v module="$module" '
                FILENAME != "-" {owner[$1] = $2; next}
                {for (prefix in owner)
                    if (owner[prefix] != module && index($NF, prefix) == 1)
                        print module ": must not call " $NF}' "$scratch/owners" -
    done
}

# Archives of modules made from one-line sources.
fake_module() # module source
{
    mkdir -p "$scratch/build/$1" "$scratch/build/lib"
    echo "$2" >"$scratch/fake.c"
    "${CC:-cc}" -c -o "$scratch/fake.o" "$scratch/fake.c"
    rm -f "$(archive_of "$scratch/build" "$1")"
    ar rc "$(archive_of "$scratch/build" "$1")" "$scratch/fake.o"
}

self_test_archives()
{
    fake_module base 'int twill_base(void){return 0;}'
    fake_module kernels 'int twill_base(void); int twill_kernel(void){return twill_base();}'
    fake_module algorithms 'int twill_kernel(void); int twill_algorithm(void){return twill_kernel();}'
    fake_module numa 'int twill_node(void); int twill_memory(void){return twill_node();}'
    fake_module fabric 'int twill_memory(void), twill_comm(void);
                      int twill_node(void){return twill_memory() + twill_comm();}'
    fake_module lib 'int twill_node(void), hwloc_free(void);
                   int twill_comm(void){return twill_node() + hwloc_free();}'
    must_complain 'algorithms: needs twill_kernel' check_archives "$scratch/build"
    must_complain 'numa: needs twill_node' check_archives "$scratch/build"
    must_complain 'fabric: needs twill_comm' check_archives "$scratch/build"
    must_complain 'lib: must not call hwloc_free' check_foreign_calls "$scratch/build"
    rm "$scratch/build/kernels/libtwill_kernels.a"
    must_complain 'kernels: no ' check_archives "$scratch/build"
}

if [ "${1:-}" != archives ]; then # of a build with other options: check_cuda.sh
    self_test_includes
    must_pass "includes" check_includes "$source"
    self_test_tower
    must_pass "lib's folders" check_tower "$source"
    if git -C "$source" ls-files >/dev/null 2>&1; then # a source archive has no list of its files
        must_end 0 "figures of the structure" env -C "$source" python3 "$here/lint/structure.py"
    fi
    self_test_archives
fi
must_pass "archives" check_archives "$build"
must_pass "libraries of others" check_foreign_calls "$build"
finish
