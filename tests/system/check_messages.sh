#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-bench latency, bandwidth, ...: columns that agree with each other and bytes that arrive, by twill's calls and by
# the transports alone, on one host and between two; bytes that arrive wrong are counted. Times are not judged.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh disable=SC2154
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
bench=$bin/twill-bench
unset TWILL_LAYOUT TWILL_PROVIDER TWILL_MEMORY

# check_csv MEASUREMENT ROWS PAIRS WINDOW: the table of --csv; messages of a window in PAIRS pairs
check_csv()
{
    # shellcheck disable=SC2016 # awk's dollars
    awk -F, -v what="$1" -v rows="$2" -v pairs="$3" -v window="$4" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        function near(a, b) { return a - b < 0.001 * b + 0.002 && b - a < 0.001 * b + 0.002 }
        /^transport/ { headers++; fields = NF; next }
        { n++; seen[$1 "," $2 "," $3]++ }
        NF != fields { bad(NF " fields") }
        $(NF - 1) != 0 { bad("wrong bytes") }
        what == "latency" && !($4 > 0 && $5 <= $4 && $5 <= $6 && $6 <= $7) { bad("min, mean, p50, p99") }
        what ~ /^(rate|multi-pair|incast)$/ && !near($4, $5 * $3 / 1e6) { bad("MB/s, messages/s") }
        what == "rate" && !near($5 * $6, 1e9) { bad("messages/s, ns") }
        what == "incast" && !($6 > 0 && $6 <= $7 && near($5, window * pairs / $7 * 1e6)) { bad("the slowest sender") }
        what ~ /^bi?bw|bandwidth$/ && !($4 > 0) { bad("no bandwidth") }
        what == "overlap" && !($7 >= 0 && $7 <= 100 && $4 > 0 && $5 > 0 && $6 > 0) { bad("overlap") }
        what == "registration" && !(near($4 - $5, $6) || near($5 - $4, -$6)) { bad("cost") }
        END {
            for (one in seen) if (seen[one] != 1) bad("twice: " one)
            if (n != rows) print n + 0, "rows, not", rows
            exit n != rows || failures > 0 || headers == 0
        }' "$scratch/out" || fail "the table of $1"
}

# Every measurement over twill's own transports, by both interfaces: two sizes each.
for measurement in latency bandwidth bibw rate overlap registration; do
    ranks 2 "$bench" $measurement -b 8 -e 32K -f 4096 -n 3 -w 1 --window 5 --transport shm,tcp --interface both --csv ||
        fail "$measurement"
    check_csv $measurement 8 1 5
done
ranks 2 "$bench" latency -b 8 -e 32K -f 4096 -n 3 -w 1 --transport shm,tcp --interface puts --csv || fail "puts"
check_csv latency 4 1 5
ranks 5 "$bench" multi-pair -b 1 -e 1 -n 2 -w 0 --window 3 --transport shm,tcp --csv || fail "multi-pair"
check_csv multi-pair 2 2 3
ranks 3 "$bench" incast -b 64 -e 64 -n 2 -w 0 --window 3 --memory twill --csv || fail "incast"
check_csv incast 1 2 3
ranks 3 "$bench" incast -b 64 -e 64 -n 2 -w 0 --window 3 --transport tcp --interface alone --csv || fail "incast alone"
check_csv incast 1 2 3

# OSU's columns, and what is not here with its reason. Without libfabric ofi is not here either.
ranks 4 "$bench" multi-pair -b 8 -e 16 -n 1 -w 0 --window 2 || fail "the table"
grep -q '^# \[ pairs: 2 \] \[ window size: 2 \]$' "$scratch/out" || fail "pairs and window"
grep -qE '^# Size +MB/s +Messages/s +#wrong$' "$scratch/out" || fail "the header"
ranks 2 env PATH=/nonexistent "$bench" latency -b 8 -e 8 -n 2 --transport all --pingpong --json "$scratch/all.json" || fail "all"
[ "$(grep -c '^8 .* 0 *N/A$' "$scratch/out")" -ge 2 ] || fail "shm and tcp, without fi_pingpong"
grep -q '^# ofi:[a-z0-9]* by calls is not here: .' "$scratch/out" || fail "no reason for a missing provider"
cat >"$scratch/json.cmake" <<'END'
file(READ "${FILE}" text)
string(JSON what GET "${text}" measurement)
string(JSON ranks GET "${text}" ranks)
string(JSON rows LENGTH "${text}" rows)
string(JSON transport GET "${text}" rows 0 transport)
string(JSON bytes GET "${text}" rows 0 bytes)
string(JSON wrong GET "${text}" rows 0 wrong)
string(JSON time TYPE "${text}" rows 0 p99_us)
string(JSON pingpong TYPE "${text}" rows 1 fi_pingpong_us)
string(JSON absent LENGTH "${text}" absent)
if(NOT "${what},${ranks},${transport},${bytes},${wrong},${time},${pingpong}" STREQUAL "latency,2,shm,8,0,NUMBER,NULL" OR
   rows LESS 2 OR absent LESS 1)
    message(FATAL_ERROR "${what},${ranks},${transport},${bytes},${wrong},${time},${pingpong}: ${rows} rows, ${absent} absent")
endif()
END
cmake -DFILE="$scratch/all.json" -P "$scratch/json.cmake" >"$scratch/out" 2>&1 || fail "the JSON"
if command -v fi_pingpong >/dev/null; then
    ranks 2 "$bench" latency -b 64 -e 64 -n 5 --transport tcp --pingpong || fail "fi_pingpong"
    grep -qE '^64 .* 0 +[0-9]+\.[0-9][0-9]$' "$scratch/out" || fail "no time of fi_pingpong"
else
    echo "no fi_pingpong here: its column is not checked"
fi

# The first byte of each message is wrong: one of five messages each, and the status says so.
if [ -e "$build/tests/libaltered_messages.so" ]; then
    if ranks 2 env LD_PRELOAD="$build/tests/libaltered_messages.so" "$bench" bandwidth -b 8 -e 8 -n 2 --window 5; then
        fail "wrong bytes, and status 0"
    fi
    grep -qE '^8 +[0-9.]+ +5$' "$scratch/out" || fail "five wrong bytes are not counted"
    grep -q '^twill-bench: 5 bytes are wrong$' "$scratch/err" || fail "wrong bytes are not reported"
fi

while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$bench" $arguments
done <<'END'
latency: -b/--minbytes: 'x' is not a size|latency -b x
latency: -b/--minbytes is above|latency -b 8 -e 4
rate: --transport: 'ip' is not all, or a list of|rate --transport ip
rate: --transport: 'shm,' is not all, or a list of|rate --transport shm,
bibw: --interface: 'raw' is not calls, alone, both or puts|bibw --interface raw
bibw: --interface: puts are measured by latency only|bibw --interface puts
bibw: --interface: alone needs --transport|bibw --interface alone
bibw: --interface: a transport alone has no memory|bibw --interface alone --transport shm --memory twill
incast: --window: '0' is not a number from 1 to 4096|incast --window 0
incast: unexpected argument: 8|incast 8
incast: at least two ranks are needed|incast
END
expect 1 "$scratch/all.json: File exists" "$bin/twillrun" -n 2 "$bench" latency -J "$scratch/all.json"

# Between two hosts, of two ranks each; shared memory does not reach.
hosts_up 2
hosts_job h0:2,h1:2 "$bench" multi-pair -b 8 -e 32K -f 4096 -n 2 -w 0 --window 3 --transport tcp --interface both --csv ||
    fail "between hosts"
check_csv multi-pair 4 2 3
if hosts_job h0:1,h1:1 "$bench" latency -b 8 -e 8 -n 2 --transport shm; then
    fail "shared memory between hosts"
fi
grep -q 'shm: ranks are on several hosts' "$scratch/err" || fail "why shared memory does not reach"
echo "ok: messages by calls and by transports alone"
