# SPDX-License-Identifier: Apache-2.0
# The library must not disturb the process that loads it: no writable variable, no call that ends the process, prints
# or starts a thread that was not asked for, and no name without a prefix.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"


# Sections that are written to while the program runs. .data.rel.ro is read-only once loaded. Two objects have one variable each:
# a handler of signals and those of fork() get no argument.
check_no_variables() # archive...
{
    for archive in "$@"; do
        objdump -h "$archive" 2>&1 | awk -v archive="${archive##*/}" '
            / file format / {object = $1}
            $2 ~ /^\.(data|bss|tdata|tbss|sdata|sbss|ldata|lbss)(\.|$)/ && $2 !~ /^\.data\.rel\.ro/ &&
                $3 !~ /^0+$/ && archive object !~ /^libtwill_lib\.a(stop|promotion)\.c\.o/ {print archive "(" object " has " $2}' | sed 's/:\{0,1\} has/) has/'
        nm -A "$archive" 2>/dev/null | awk '$(NF-1) == "C" {print $1, $NF, "is common"}'
        # Sort by name.
        objdump -t "$archive" 2>/dev/null | awk '
            / O / && / \.(data|bss|tdata|tbss)/ && !/ \.data\.rel\.ro/ && $NF !~ /^(wishes|process)$/ {print "  variable", $NF}'
    done
}

# Calls that the library must not make. The log writes with fprintf(stderr), in base.c only. One object starts
# threads: that of TWILL_PROGRESS=thread, and those of gradient sets. One object restores signal actions that libfabric's libraries
# have changed, and one installs the handler of TWILL_STOP_SIGNAL. One has forked children copy promoted memory.
check_no_calls() # archive...
{
    for archive in "$@"; do
        nm -A --undefined-only "$archive" | awk -v archive="${archive##*/}" '
            $NF ~ /^(exit|_exit|_Exit|quick_exit|abort|__assert_fail|atexit|signal)$/ ||
            ($NF == "sigaction" && $1 !~ /libtwill_(fabric\.a:ofi_library|lib\.a:stop)\.c\.o:$/) ||
            $NF ~ /^(printf|puts|putchar|vprintf|__printf_chk|__vprintf_chk|perror|stdout)$/ ||
            ($NF == "pthread_create" && $1 !~ /libtwill_base\.a:thread_start\.c\.o:$/) ||
            $NF ~ /^(thrd_create|fork|vfork|system|popen)$/ ||
            ($NF == "pthread_atfork" && $1 !~ /libtwill_lib\.a:promotion\.c\.o:$/) ||
            $NF ~ /^(setenv|putenv|unsetenv|chdir|setlocale|srand|rand|strtok)$/ ||
            ($NF ~ /^(strto(d|f|ld)|atof|strn?casecmp|(__)?v(sn|as)printf(_chk)?)$/ &&
                archive !~ /libtwill_base/) || # twill_print(), twill_read_real(): the same in every locale
            ($NF ~ /^(stderr|fprintf|__fprintf_chk)$/ && archive !~ /libtwill_base/) {
                print $1, "calls", $NF
            }'
    done
}

# The functions a header promises.
promised_by() # header
{
    ${CC:-cc} -E -P -U__GNUC__ -DTWILL_API=PROMISED "$1" | tr '\n' ' ' | tr ';' '\n' |
        grep -oE 'PROMISED [^(]*\(' | grep -oE '[A-Za-z0-9_]+ *\($' | tr -d ' (' | sort -u
}

shown_by() # shared library
{
    nm -D --defined-only "$1" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort -u
}

check_exports() # header library
{
    promised_by "$1" >"$scratch/promised"
    shown_by "$2" >"$scratch/shown"
    [ -s "$scratch/promised" ] || echo "no TWILL_API function found in $1"
    comm -23 "$scratch/promised" "$scratch/shown" | sed 's/$/ is promised but not exported/'
    comm -13 "$scratch/promised" "$scratch/shown" | sed 's/$/ is exported but not promised/'
}

check_soname() # library soname
{
    readelf -d "$1" | grep -q "SONAME.*\[$2\]" || echo "${1##*/}: soname is not $2"
}

# libtwill-heap.so shows the names of malloc and of calls that unmap, and the one that libtwill looks for; it needs libc alone,
# since every process gets it; and a malloc has no context: what it remembers is in one variable.
HEAP_NAMES='aligned_alloc calloc free malloc malloc_usable_size memalign mremap munmap posix_memalign pvalloc
realloc reallocarray twill_preload_heap valloc'
check_heap() # library variable
{
    echo "$HEAP_NAMES" | tr " " "\n" | sort >"$scratch/promised"
    shown_by "$1" | diff "$scratch/promised" - | grep '^[<>]'
    readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux.*|libdl)\.so' |
        sed "s/^/needs /"
    nm -S "$1" | awk -v one="$2" '$3 ~ /^[bBdD]$/ && $4 != one && $4 !~ /^(__dso_handle|completed\..*|_DYNAMIC|_GLOBAL_OFFSET_TABLE_|twill_preload_heap)$/ {
            print "variable", $4
        }'
}

# libtwill-mpi-calls-*.so shows names of MPI's only (Fortran's, too), none of them PMPI's in C, and what it
# remembers is in one variable.
check_mpi() # library variable
{
    shown_by "$1" | grep -vE '^(MPIX?_[A-Z][A-Za-z_0-9]*|p?mpix?_[a-z_0-9]+|ompix?_[a-z_0-9]+_f)$' |
        sed 's/$/ is no name of MPI/'
    shown_by "$1" | grep -qx MPI_Init || echo "does not show MPI_Init"
    objdump -t "$1" | awk -v one="$2" '
        / O / && / \.(data|bss|tdata|tbss)/ && !/ \.data\.rel\.ro/ && $NF != one &&
            $NF !~ /^(__dso_handle|completed\..*|__TMC_END__)$/ {print "variable", $NF}'
}

# _.stapsdt.base is made by sys/sdt.h: hidden, and the same in all programs.
check_prefix() # archive
{
    nm --defined-only --extern-only "$1" | awk 'NF == 3 && $3 !~ /^twill_|^_\.stapsdt\.base$/ {print $3}'
}

# --- bad inputs ---------------------------------------------------------------------------------

bad_archive() # source
{
    printf '%s\n' "$1" >"$scratch/bad.c"
    "${CC:-cc}" -fPIC "-f${2:-no-common}" -c -o "$scratch/bad.o" "$scratch/bad.c"
    rm -f "$scratch/bad.a"
    ar rc "$scratch/bad.a" "$scratch/bad.o"
}

self_test()
{
    bad_archive 'static int calls; int twill_f(void){return ++calls;}'
    must_complain 'variable calls' check_no_variables "$scratch/bad.a"
    bad_archive 'int twill_level = 3;'
    must_complain 'has .data' check_no_variables "$scratch/bad.a"
    bad_archive '_Thread_local int twill_depth;'
    must_complain 'has .tbss' check_no_variables "$scratch/bad.a"
    bad_archive 'int twill_common;' common
    must_complain 'is common' check_no_variables "$scratch/bad.a"
    bad_archive 'const char *const twill_names[] = {"a", "b"}; const int twill_table[2] = {1, 2};'
    must_pass "self-test: constants are allowed" check_no_variables "$scratch/bad.a"
    bad_archive 'void exit(int); void twill_f(void){exit(1);}'
    must_complain 'calls exit' check_no_calls "$scratch/bad.a"
    bad_archive '#include <stdio.h>
                 void twill_f(int n){fprintf(stderr, "%d", n);}'
    must_complain 'calls stderr' check_no_calls "$scratch/bad.a"
    bad_archive '#include <stdlib.h>
                 double twill_f(const char *s){return strtod(s, NULL);}'
    must_complain 'calls strtod' check_no_calls "$scratch/bad.a"
    bad_archive 'int pthread_create(void), fork(void); void twill_f(void){pthread_create(); fork();}'
    must_complain 'calls pthread_create' check_no_calls "$scratch/bad.a"
    mkdir "$scratch/in"
    cp "$scratch/bad.o" "$scratch/in/thread_start.c.o"
    ar rc "$scratch/in/libtwill_base.a" "$scratch/in/thread_start.c.o"
    ar rc "$scratch/in/libtwill_numa.a" "$scratch/in/thread_start.c.o"
    must_complain 'calls fork' check_no_calls "$scratch/in/libtwill_base.a"
    must_complain 'numa.a:.* calls pthread_create' check_no_calls "$scratch/in/libtwill_numa.a"
    bad_archive 'int sigaction(void); void twill_f(void){sigaction();}'
    must_complain 'calls sigaction' check_no_calls "$scratch/bad.a"
    check_no_calls "$scratch/in/libtwill_base.a" | grep -q pthread_create &&
        fault "self-test: threads are started in one place"
    must_complain 'exported' check_prefix_and_exports_of 'int twill_more(void){return 0;}'
    must_complain 'not exported' check_prefix_and_exports_of 'int other(void){return 0;}'
    must_complain '^other$' check_prefix_and_exports_of 'int other(void){return 0;}'
    must_complain 'soname' check_soname "$scratch/bad.so" libtwill.so.0
}

check_prefix_and_exports_of() # source
{
    bad_archive "$1"
    check_prefix "$scratch/bad.a"
    "${CC:-cc}" -shared -Wl,-soname,libtwill.so.7 -o "$scratch/bad.so" "$scratch/bad.o"
    check_exports "$source/lib/twill.h" "$scratch/bad.so"
}

self_test
set --
for module in kernels algorithms numa fabric lib; do
    set -- "$@" "$build/$module/libtwill_$module.a"
done
set -- "$@" "$build/lib/libtwill_base.a"
for archive in "$@"; do
    [ -f "$archive" ] || fault "no $archive"
done
must_pass "no writable variable in any module" check_no_variables "$@"
must_pass "no call that disturbs the process" check_no_calls "$@"
grep -hv "^#include \"" "$source"/lib/twill.h "$source"/lib/twill_*.h >"$scratch/public.h"
must_pass "libtwill.so exports the public headers' functions and nothing else" \
    check_exports "$scratch/public.h" "$build/lib/libtwill.so"
heap=$build/lib/libtwill-heap.so
must_pass "libtwill-heap.so: names, libraries, one variable" check_heap "$heap" twill_preload_state
must_complain 'variable twill_preload_state' check_heap "$heap" twill_other
must_complain 'needs lib' check_heap "$build/lib/libtwill.so" twill_preload_state
must_complain '< malloc' check_heap "$build/lib/libtwill.so" twill_preload_state
must_pass "no writable variable in its allocator" check_no_variables "$build/lib/libtwill_arena.a"
for mpi in "$build"/lib/libtwill-mpi-calls-*.so; do
    [ -f "$mpi" ] || continue # not built
    must_pass "${mpi##*/}: names, one variable" check_mpi "$mpi" twill_mpi
    must_complain 'variable twill_mpi' check_mpi "$mpi" twill_other
    must_complain 'twill_allreduce is no name of MPI' check_mpi "$build/lib/libtwill.so" twill_mpi
done
# libtwill-mpi.so and libtwill-mpi-*.so, which are preloaded, show what these show; which MPI it calls is decided at run time.
check_detects() # library other...
{
    detects=$1
    shift
    for other in "$@"; do
        shown_by "$other"
    done | sort -u >"$scratch/promised"
    shown_by "$detects" | comm -3 "$scratch/promised" - | tr -d '\t' | sed 's/$/ is not shown by all/'
    for other in "$@"; do # the same calls for every MPI, whatever it has
        shown_by "$other" | grep '^MPI_[A-Z][a-z]' >"$scratch/calls"
        [ -n "${calls:-}" ] || { calls=$scratch/calls.first && cp "$scratch/calls" "$calls"; }
        diff "$calls" "$scratch/calls" | sed -n "s,^[<>].*,${other##*/}: &,p"
    done
    readelf -d "$detects" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' | grep -vE '^(libc|ld-linux.*|libdl)\.so' | sed "s/^/needs /"
}
for mpi in "$build"/lib/libtwill-mpi*.so; do
    case $mpi in *-calls-* | *\**) continue ;; esac
    must_pass "${mpi##*/}: names, one variable" check_mpi "$mpi" twill_mpi_detected
    must_pass "${mpi##*/}: all names, libc alone" check_detects "$mpi" "$build"/lib/libtwill-mpi-calls-*.so
done
[ ! -f "$build/lib/libtwill-mpi-calls-abi.so" ] ||
    must_complain 'needs libtwill' check_detects "$build/lib/libtwill-mpi-calls-abi.so" "$build"/lib/libtwill-mpi-calls-*.so
check_probes() # library
{
    readelf -n "$1" >"$scratch/notes"
    for probe in call_begin call_end wait_begin wait_end failure; do
        grep -A1 'Provider: twill' "$scratch/notes" | grep -q "Name: $probe\$" || echo "${1##*/} has no probe $probe"
    done
}
[ -z "$(cached TWILL_HAVE_SDT)" ] || must_pass "probes" check_probes "$build/lib/libtwill.so"
must_complain 'no probe wait_end' check_probes "$build/lib/libtwill-heap.so"
must_pass "soname" check_soname "$build/lib/libtwill.so" libtwill.so.0
must_pass "libtwill.a has no name without twill_" check_prefix "$build/lib/libtwill.a"
finish
