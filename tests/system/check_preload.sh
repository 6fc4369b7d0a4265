# SPDX-License-Identifier: Apache-2.0
# TWILL_HEAP: programs that use malloc only, under libtwill-heap.so. Ordinary programs run unchanged, blocks are right
# under threads and forks, ranks' buffers need no bounce copies, and those that come back are promoted.
# shellcheck disable=SC2016 # what is in single quotes is for others to expand
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

cc=$(cached CMAKE_C_COMPILER)
library=$build/lib/libtwill-heap.so
run=$build/bin/twillrun
flags="-std=gnu11 -O1 -g -Wall -Wextra -Werror -D_GNU_SOURCE -I$source/lib -I$source"
unset TWILL_HEAP LD_PRELOAD
TWILL_TIMEOUT=300
TWILL_TUNE=reach=none # XPMEM would spare the staging without any of this
export TWILL_TIMEOUT TWILL_TUNE

# shellcheck disable=SC2086
must_end 0 "hammer.c compiles" "$cc" $flags -o "$scratch/hammer" "$source/tests/system/preload/hammer.c" \
    -L"$build/lib" -ltwill -ldl -lpthread -Wl,-rpath,"$build/lib" || finish

# shellcheck disable=SC2086
must_end 0 "returning.c compiles" "$cc" $flags -o "$scratch/returning" "$source/tests/system/preload/returning.c" \
    -L"$build/lib" -ltwill -lpthread -Wl,-rpath,"$build/lib" || finish

# --- ordinary programs: the library is loaded and does nothing ------------------------------

same_output() # title command...
{
    title=$1
    shift
    "$@" >"$scratch/plain" 2>&1
    LD_PRELOAD=$library TWILL_HEAP=shared "$@" >"$scratch/loaded" 2>&1 || fault "$title failed"
    if cmp -s "$scratch/plain" "$scratch/loaded"; then
        echo "ok: $title"
    else
        fault "$title says something else: $(head -n 5 "$scratch/loaded")"
    fi
}

awk 'BEGIN {for (i = 0; i < 200000; i++) print (i * 7919) % 200003, "line"}' >"$scratch/lines"
same_output "ls" ls -l "$source/tests"
same_output "sort, with threads" sort --parallel=4 -S 16M -n "$scratch/lines"
same_output "a shell that forks" sh -c 'seq 1000 | (read -r a; echo "$a"; wc -l); echo $(date +%Y)'
same_output "cmake" cmake -E sha256sum "$scratch/lines"
if python3 -c pass 2>/dev/null; then
    # shellcheck disable=SC2016
    same_output "python3, with a fork" python3 -c 'import os
x = list(range(300000))
pid = os.fork()
if pid == 0:
    x[0] = 5
    os._exit(0)
print(os.waitpid(pid, 0)[1], sum(x), len(bytes(1 << 20)))'
fi

# --- blocks ----------------------------------------------------------------------------------------

must_end 0 "threads, forks, every name of malloc" env TWILL_HEAP=shared TWILL_TUNE=reach=none,heap_limit=512M \
    "$run" -n 2 "$scratch/hammer"
[ "$(grep -c 'blocks, [1-9][0-9]* of them shared' "$scratch/output")" -eq 2 ] ||
    fault "not all ranks have hammered: $(cat "$scratch/output")"
must_end failure "self-test: hammer notices that the library is not loaded" "$scratch/hammer"

# --- ranks -----------------------------------------------------------------------------------------

count() # pattern wanted
{
    [ "$(grep -c "$1" "$scratch/output")" -eq "$2" ] ||
        fault "'$1' is not said $2 times: $(cat "$scratch/output")"
}

for ranks in 2 4; do
    must_end 0 "$ranks ranks: nothing is staged" env TWILL_HEAP=shared "$run" -n "$ranks" \
        "$build/tests/buffers"
    count ': 0 wrong, nothing staged' "$ranks"
done
must_end 0 "self-test: without it, buffers are staged" "$run" -n 2 "$build/tests/buffers"
count ': 0 wrong, staged' 2
must_end 0 "blocks from a size up: smaller ones are staged" env TWILL_HEAP=shared:1M "$run" -n 2 \
    "$build/tests/buffers"
count ': 0 wrong, staged' 2
must_end 0 "on two nodes" env TWILL_HEAP=shared TWILL_LAYOUT=nodes=2x1 "$run" -n 2 "$build/tests/buffers"
count ': 0 wrong' 2
must_end 0 "one rank" env TWILL_HEAP=shared "$run" -n 1 "$build/tests/buffers"
must_end 0 "a small region: what does not fit is staged" env TWILL_HEAP=shared \
    TWILL_TUNE=reach=none,heap_limit=4M "$run" -n 2 "$build/tests/buffers"
count ': 0 wrong, staged' 2
must_end 2 "a value that is none" env TWILL_HEAP=share "$run" -n 2 --grace 900 sh -c "$build/tests/buffers || exit 2"
count 'TWILL_HEAP=share: must be off, shared, shared:BYTES, promote or promote:BYTES' 2

cat >"$scratch/without" <<PROGRAM
#!/bin/sh
[ "\$RANK" = "\$1" ] && unset LD_PRELOAD
exec "$build/tests/buffers"
PROGRAM
chmod +x "$scratch/without"
for rank in 0 2; do
    must_end 0 "4 ranks, rank $rank without the library" env TWILL_HEAP=shared "$run" -n 4 \
        "$scratch/without" "$rank"
    count ': 0 wrong, staged' 4
    count "twill.$rank.: TWILL_HEAP does nothing on 1 rank" 1
done

must_end 0 "buffers that come back are promoted until they are freed, resized or unmapped" \
    env TWILL_HEAP=promote "$run" -n 2 "$scratch/returning"
count 'all right' 2
must_end failure "self-test: it notices that the library is not loaded" "$run" -n 2 "$scratch/returning"
must_end 0 "promotion: buffers that never come back" env TWILL_HEAP=promote:64K "$run" -n 4 "$build/tests/buffers"
count ': 0 wrong' 4

# Others that are preloaded stay so.
must_end 0 "twillrun keeps LD_PRELOAD" env TWILL_HEAP=shared LD_PRELOAD=libc.so.6 "$run" -n 1 \
    sh -c 'echo "<$LD_PRELOAD>"'
count '</.*libtwill-heap.so:libc.so.6>' 1
must_end 0 "and sets none unasked" "$run" -n 1 sh -c 'echo "<$LD_PRELOAD>"'
count '<>' 1
finish
