#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun --check: hosts without a fault are ready; faults of hosts and networks are named, with their hosts, on the page
# and in JSON.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
run=$bin/twillrun
[ -x "$build/libexec/twill/twill-check" ] || skip "no twill-check in $build/libexec/twill"

expect 2 "--json goes with --check" "$run" --json -n 1 true
expect 2 "how many ranks?" "$run" --check
expect 0 "1 host, 1 rank: ready" "$run" --check -n 1
expect 2 "$scratch/no/where: No such file" "$run" --check -n 1 --json="$scratch/no/where"
expect 1 "the program no-such-program cannot be run: No such file" "$run" --check -n 1 no-such-program

hosts_up 4

# checked STATUS HOSTS options...: check hosts; the page is in $scratch/out, JSON in $scratch/json.
checked()
{
    checked_status=$1 checked_hosts=$2 checked_got=0
    shift 2
    hosts_job "$checked_hosts" --check --json="$scratch/json" "$@" </dev/null || checked_got=$?
    [ "$checked_got" -eq "$checked_status" ] || fail "status $checked_got, not $checked_status: $checked_hosts $*"
}
# named problem|warning CHECK HOSTS TEXT: a finding on the page; in_json looks for all of them, with the same hosts (h0,h1).
named()
{
    grep -qE "^ *[0-9]+\. $(echo "$3" | sed 's/,/, /g'): .*$4.*\($2\)\$" "$scratch/out" || fail "'$3: $4' ($2) is not on the page"
    echo "$1 $2 $3" >>"$scratch/named"
}
in_json()
{
    python3 - "$scratch/json" "$scratch/named" >"$scratch/json.log" <<'END' || fail "not in JSON"
import json, sys
page = json.load(open(sys.argv[1]))
for line in open(sys.argv[2]):
    kind, check, hosts = line.split()
    found = [one for one in page[kind + "s"] if one["check"] == check and one["hosts"] == hosts.split(",") and one["advice"]]
    if not found or page["checks"][check]["state"] not in ("problem", kind):
        sys.exit("not in JSON: " + line)
END
    rm "$scratch/named"
}
first_line()
{
    head -n 1 "$scratch/out" | grep -qE "^$1" || fail "the page does not begin with '$1'"
}

# --- nothing is wrong
checked 0 h0:2,h1,h2
first_line "3 hosts, 4 ranks: ready"
! grep -q '^Problems' "$scratch/out" || fail "problems of good hosts"
grep -q '^Test job of 4 ranks: an allreduce of 8 bytes takes [0-9]' "$scratch/out" || fail "no test job"
grep -q '^5 pairs of ranks between hosts: round trip [0-9]' "$scratch/out" || fail "no pairs between hosts"
grep -q '"ready":true' "$scratch/json" || fail "not ready in JSON"
[ "$(grep -c '"result":"good"' "$scratch/json")" -eq 6 ] || fail "not all connections are in JSON"

# --- hosts: another library, low limits, an unsafe key, a small /dev/shm, a program that cannot be run, a clock that is ahead
od -An -N32 -tx1 /dev/urandom | tr -d ' \n' >"$scratch/key"
cp "$scratch/key" "$scratch/open-key"
chmod 600 "$scratch/key"
chmod 644 "$scratch/open-key"
printf '#!/bin/sh\n' >"$scratch/program"
cp "$scratch/program" "$scratch/data"
chmod 755 "$scratch/program"
chmod 644 "$scratch/data"
cp "$build/libexec/twill/twill-check" "$scratch/real"
if [ -z "$sanitize" ]; then # their runtime must be the first library
    cat >"$scratch/shift.c" <<'END'
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    now->tv_sec += clock == CLOCK_REALTIME ? 3 : 0;
    return result;
}
END
    "$(cached CMAKE_C_COMPILER)" -shared -fPIC -o "$scratch/shift.so" "$scratch/shift.c"
    # shellcheck disable=SC2016 # that shell's
    printf '#!/bin/sh\nLD_PRELOAD="%s" exec "%s" "$@"\n' "$scratch/shift.so" "$scratch/real" >"$scratch/shifted"
    chmod +x "$scratch/shifted"
    host_run 3 mount --bind "$scratch/shifted" "$build/libexec/twill/twill-check"
fi
library=$(readlink -f "$build/lib/libtwill.so")
cp "$library" "$scratch/other.so"
echo >>"$scratch/other.so"
host_run 1 mount --bind "$scratch/other.so" "$library"
host_run 1 mount --bind "$scratch/open-key" "$scratch/key"
host_run 3 mount -t tmpfs -o size=1m tmpfs /dev/shm
host_run 3 mount --bind "$scratch/data" "$scratch/program"
# shellcheck disable=SC2016 # that shell's
printf '#!/bin/sh\n[ "$1" != h2 ] || { ulimit -n 96; ulimit -l 64; }\nexec "%s" "$@"\n' "$hosts_agent" >"$scratch/agent"
chmod +x "$scratch/agent"
usual=$hosts_agent hosts_agent=$scratch/agent
TWILL_KEY_FILE=$scratch/key checked 1 h0,h1,h2,h3 "$scratch/program"
first_line "4 problems, [0-9]+ warnings"
hosts_agent=$usual
named problem library h1 "libtwill.so.* differs from that of other hosts"
named problem key h1 ".* has mode 644"
named problem nofile h2 "only 96 files may be open in a rank; a job of 4 ranks needs up to 144"
named warning memlock h2 "only 64 KiB of memory may be locked"
named warning shm h3 "/dev/shm has 1.0 MiB"
named problem program h3 "the program $scratch/program cannot be run: Permission denied"
[ -n "$sanitize" ] || named warning clock h3 "the clock is 3[.0-9]* s ahead of that of h[012]"
in_json
host_run 1 umount "$library"
host_run 3 umount /dev/shm
[ -n "$sanitize" ] || host_run 3 umount "$build/libexec/twill/twill-check"

# --- hosts that say nothing more after their first answer, or end, and one that does not answer at all
# shellcheck disable=SC2016 # that shell's
printf '#!/bin/sh\n"%s" "$@" | { head -n 2; exec sleep 600; }\n' "$scratch/real" >"$scratch/silent"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" != h1 ] || exec sleep 600\nexec "%s" "$@"\n' "$hosts_agent" >"$scratch/agent"
# shellcheck disable=SC2016
printf '#!/bin/sh\n[ "$1" != --agent ] || exec "%s" "$@" </dev/null\nexec "%s" "$@"\n' "$scratch/real" "$scratch/real" >"$scratch/ended"
chmod +x "$scratch/silent" "$scratch/ended"
host_run 3 mount --bind "$scratch/ended" "$build/libexec/twill/twill-check"
host_run 2 mount --bind "$scratch/silent" "$build/libexec/twill/twill-check"
hosts_agent=$scratch/agent
checked 1 h0,h1,h2,h3 --timeout 1
hosts_agent=$usual
host_run 2 umount "$build/libexec/twill/twill-check"
host_run 3 umount "$build/libexec/twill/twill-check"
first_line "2 problems"
named problem answer h1 "no answer from a twillrun there within 1 s"
named problem answer h2,h3 "it stopped answering during the check"
in_json
grep -q "^Test job of 1 rank" "$scratch/out" || fail "no test job of h0"

# --- networks: a firewall that drops calls in one direction, one that refuses, a missing route, large packets that are lost,
# a small MTU, and a host that does not answer
ruled() # HOST RULE...: a rule of its firewall for what arrives
{
    ruled_at=$1
    shift
    host_run "$ruled_at" nft add rule ip preflight in "$@"
}
if ! command -v nft >/dev/null || ! host_run 1 nft add table ip preflight 2>"$scratch/nft.log"; then
    echo "ok: twillrun --check, but for networks: there is no nft"
    exit
fi
host_run 3 nft add table ip preflight
for k in 1 3; do
    host_run $k nft add chain ip preflight in '{ type filter hook input priority 0; }'
done
ruled 1 ip saddr 10.88.0.1 'tcp flags & (syn|ack) == syn' drop
ruled 1 ip saddr 10.88.0.4 'tcp flags & (syn|ack) == syn' reject with tcp reset
ruled 3 ip saddr 10.88.0.1 ip length '>=' 1024 drop
host_run 2 ip route add unreachable 10.88.0.4
host_run 2 ip link set eth0 mtu 1400
checked 1 h0,h1,h2,h3,nowhere
first_line "6 problems, [0-9]+ warning"
named problem answer nowhere "could not resolve hostname"
named problem connect h0 "no answer from h1 \(10.88.0.2\) within 3 s: packets are dropped.*; the other direction works"
named problem connect h3 "h1 \(10.88.0.2\) refuses connections; the other direction works"
named problem connect h2 "no way to h3 \(10.88.0.4\): No route to host"
named problem connect h3 "no answer from h2 \(10.88.0.3\)"
named problem data h0 "h3 \(10.88.0.4\) takes connections, but 64 KiB do not arrive"
named warning mtu h2 "eth0 has an MTU of 1400, where other hosts have 1500"
in_json
grep -q "^Test job of 2 ranks" "$scratch/out" || fail "no test job of h0 and h2, which reach each other"

# --- a slow way between two hosts: the outlier among six pairs
host_run 1 nft delete table ip preflight
host_run 3 nft delete table ip preflight
host_run 2 ip route del unreachable 10.88.0.4
host_run 2 ip link set eth0 mtu 1500
slow() # use HTB, and netem where the kernel has it
{
    host_run 0 tc qdisc add dev eth0 root handle 1: htb default 1 &&
        host_run 0 tc class add dev eth0 parent 1: classid 1:1 htb rate 20gbit quantum 60000 &&
        host_run 0 tc class add dev eth0 parent 1: classid 1:2 htb rate 40mbit quantum 60000 &&
        host_run 0 tc filter add dev eth0 parent 1: protocol ip u32 match ip dst 10.88.0.3 flowid 1:2
}
if slow >"$scratch/tc.log" 2>&1; then
    outlier='ranks 0 on h0 and 2 on h2 exchange [0-9.]+ MB/s; the median of pairs between hosts is [0-9.]+ MB/s \(bandwidth\)$'
    ! host_run 0 tc qdisc add dev eth0 parent 1:2 netem delay 40ms 2>>"$scratch/tc.log" ||
        outlier='ranks 0 on h0 and 2 on h2 have a round trip of [0-9]+ us; .* \(round_trip\)$'
    checked 0 h0,h1,h2,h3
    grep -qE "$outlier" "$scratch/out" || fail "the pair that is an outlier is not named"
else
    echo "not checked: a slow way, $(tail -n 1 "$scratch/tc.log")"
fi
echo "ok: twillrun --check"
