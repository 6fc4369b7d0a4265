#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The library between hosts with networks of their own (namespaces, not TWILL_LAYOUT=nodes): values of all collectives, even
# and uneven, over IPv4, IPv6 and slow links, with different congestion controls; a rank that is killed and a link
# that goes down are reported by name and in time.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016,SC2154 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
bench=$bin/twill-bench
[ -x "$bench" ] || skip "no twill-bench in $bin"

# right HOSTS COLLECTIVE options...: twill-bench, from host 0; it must find all values right.
right()
{
    right_hosts=$1 right_collective=$2
    shift 2
    hosts_job "$right_hosts" "$bench" "$right_collective" "$@" || fail "status $?: $right_collective on $right_hosts"
    grep -q '^# Out of bounds values : 0 OK$' "$scratch/out" || fail "values: $right_collective on $right_hosts"
}
# begin SIZE options...: start endless allreduces, in $pid; ranks' pids are in $scratch/pids. If a rank will be killed
# ($scratch/killed), the others may print before its death is seen, but end only after it.
begin()
{
    begin_size=$1
    shift
    : >"$scratch/pids"
    : >"$scratch/out"
    rm -f "$scratch/killed"
    "$hosts_in" 0 "$bin/twillrun" --timeout "$patience" --hosts h0:2,h1:2 --grace "$patience" --agent "$hosts_agent" "$@" \
        sh -c 'dir=$0; "$@" & echo "$RANK $!" >>"$dir/pids"; code=0; wait $! || code=$?
            [ $code -eq 137 ] || [ ! -e "$dir/killed" ] || until grep -q "^twillrun: " "$dir/err"; do sleep 0.05; done
            exit $code' "$scratch" \
        "$bench" allreduce -b "$begin_size" -e "$begin_size" -n 20 -N 0 -w 0 -c 0 \
        >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for_row $pid
    wait_for -p $pid has_lines "$scratch/pids" 4
}
# ends STATUS PATTERN N: the job must end with this status, and N ranks must print this about their call.
ends()
{
    ends_status=$1 ends_text=$2 ends_left=$3 ends_got=0
    wait "$pid" || ends_got=$?
    [ $ends_got -eq "$ends_status" ] || fail "status $ends_got, not $ends_status"
    [ "$(grep -cE "^twill-bench: rank [0-3]: [a-z_]+ #[0-9]+[ :].*$ends_text" "$scratch/err")" -eq "$ends_left" ] ||
        fail "not said by $ends_left ranks: $ends_text"
}

# --- values
hosts_up 3
for collective in allreduce barrier reduce allgather reduce_scatter alltoall sendrecv scatterv; do
    right h0:2,h1:2 $collective -b 8 -e 128K -f 128 -n 1 --verify
done
grep -q '^# ranks: 4 on 2 nodes' "$scratch/out" || fail "not two nodes"
for collective in allreduce broadcast gather scatter allgatherv reduce_scatterv gatherv alltoallv; do
    right h0:3,h1:2,h2 $collective -b 40 -e 256K -f 80 -n 1 -r 2 --verify
done
right h0,h1 allreduce -b 8 -e 16M -f 128 -n 2
TWILL_PROVIDER=ofi:tcp right h0:2,h1:2 allreduce -b 8 -e 2M -f 64 -n 2
grep -q '^# transport: tcp;ofi' "$scratch/out" || fail "not by libfabric's tcp"
hosts_job h0:2,h1,h2:2 --map node "$bench" allreduce -b 8 -e 256K -f 64 -n 2 || fail "status $? round the hosts"
grep -q '^# ranks: 5 on 3 nodes' "$scratch/out" || fail "not three nodes"

# --- hosts that differ in their congestion control, and a slow link
if hosts_congestion cubic; then
    host_run 1 sh -c 'echo reno >/proc/sys/net/ipv4/tcp_congestion_control' || fail "reno"
    right h0,h1 allreduce -b 8 -e 4M -f 64 -n 2
fi
if host_run 0 tc qdisc add dev eth0 root netem delay 3ms 1ms 2>/dev/null ||
    host_run 0 tc qdisc add dev eth0 root tbf rate 50mbit burst 32k latency 20ms 2>/dev/null; then
    right h0:2,h1:2 allreduce -b 8 -e 512K -f 256 -n 2 -w 0
    host_run 0 tc qdisc del dev eth0 root
fi

# --- a rank is killed: the others say who, and end by themselves
for victim in 3 0; do
    begin 1M -x TWILL_PROVIDER="$([ $victim = 3 ] || echo ofi:tcp)"
    : >"$scratch/killed"
    kill -KILL "$(sed -n "s/^$victim //p" "$scratch/pids")"
    # libfabric may be the first to notice
    ends 137 "rank $victim( has died|, lane [0-9]+: .*: the rank is gone)" 3
done

# --- a link goes down, under jobs of both transports and one whose ranks still gather: all notice, with no need for a timeout
joined()
{
    host_run 0 grep -q ' 0200580A:[0-9A-F]* 01 ' /proc/net/tcp
}
# put_by NAME, take_up NAME: keep the files of the job in $pid, whose processes go on writing to them, and get them back
put_by()
{
    for file in out err; do
        mv "$scratch/$file" "$scratch/$file.$1"
    done
    echo $pid >"$scratch/pid.$1"
}
take_up()
{
    for file in out err; do
        mv "$scratch/$file.$1" "$scratch/$file"
    done
    pid=$(cat "$scratch/pid.$1")
}
"$hosts_in" 0 "$bin/twillrun" --timeout "$patience" --hosts h0,h1,h2 --grace 1 --agent "$hosts_agent" \
    -x TWILL_TIMEOUT="$patience" sh -c '[ "$RANK" -ne 2 ] || sleep 600; exec "$@"' sh "$bench" allreduce -b 8 -e 8 \
    >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid joined
put_by gathering
for provider in tcp ofi:tcp; do
    begin 64K -x TWILL_TIMEOUT="$patience" -x TWILL_PROVIDER=$provider
    put_by $provider
done
sleep 2 # the kernel has the one that gathers connected; its rank 0 is to know, too
host_link 1 down
for provider in tcp ofi:tcp; do
    take_up $provider
    ends 1 "rank [0-3] .*(died|lost|reach)" 4
done
take_up gathering
code=0
wait "$pid" || code=$?
[ $code -eq 1 ] || fail "status $code with a host lost before all ranks had joined"
grep -q 'rank 1 joined and its host stopped answering before all ranks had joined' "$scratch/err" ||
    fail "the lost host is not named: $(cat "$scratch/err")"
# one is down from the beginning
code=0
hosts_job h0,h1 -x TWILL_TIMEOUT=2 "$bench" allreduce -b 8 -e 8 || code=$?
[ $code -eq 1 ] || fail "status $code without a link"
grep -qE 'rank 0: .*rank 1|rank 1: .*(rank 0|MASTER_ADDR)' "$scratch/err" || fail "no rank is named without a link"
host_link 1 up

# --- firewalls: one that refuses connections to a host is no death; where one drops them, that is said with address and
# port, early and when the time is over
# said TEXT: this must be printed
said()
{
    grep -qE "$1" "$scratch/err" || fail "not said: $1"
}
# barred RULE TIMEOUT PROGRAM...: a job of three hosts, of which h1 treats new connections by RULE; it must fail
barred()
{
    host_run 1 nft add table ip f
    host_run 1 nft add chain ip f in '{ type filter hook input priority 0; }'
    # shellcheck disable=SC2086 # words of nft
    host_run 1 nft add rule ip f in 'tcp flags & (syn|ack) == syn' $1
    barred_timeout=$2 code=0
    shift 2
    hosts_job h0,h1,h2 -x TWILL_TIMEOUT="$barred_timeout" "$@" "$bench" allreduce -b 8 -e 8 || code=$?
    host_run 1 nft delete table ip f
    [ $code -eq 1 ] || fail "status $code behind a firewall"
}
if command -v nft >/dev/null && host_run 1 nft list tables >"$scratch/nft.log" 2>&1; then
    barred 'reject with tcp reset' "$patience"
    said 'failure detector: .*to 10.88.0.2:[0-9]*: Connection refused \(firewall\? twillrun --check\)'
    said 'rank 0: .*host 10.88.0.2 of rank 1 refuses connections to port [0-9]+ \(firewall\? twillrun --check\)'
    ! grep -q 'rank 1 has died' "$scratch/err" || fail "a live rank is said to have died"
    barred drop 6
    said 'connecting to rank 1 at 10.88.0.2, port [0-9]+: no answer for 3 s \(firewall'
    said 'rank 0: .*within 6.0 s .*the connection to 10.88.0.2, port [0-9]+, is not answered \(firewall'
    said 'rank 1: .*(rank 0 has not connected to 10.88.0.2:[0-9]+|died|reported by)'
    host_run 0 nft add table ip f
    host_run 0 nft add chain ip f in '{ type filter hook input priority 0; }'
    host_run 0 nft add rule ip f in ip saddr 10.88.0.2 'tcp flags & (syn|ack) == syn' drop
    code=0
    hosts_job h0,h1 -x TWILL_TIMEOUT=12 "$bench" allreduce -b 8 -e 8 || code=$?
    host_run 0 nft delete table ip f
    [ $code -eq 1 ] || fail "status $code with rank 0 behind a firewall"
    said 'rank 1 has looked for rank 0 at .*: connect to 10.88.0.1:[0-9]+: no answer \(firewall'
    said 'rank 0 has waited at 10.88.0.1:[0-9]+ .*: rank 1 \('
else
    echo "not checked: firewalls, there is no nft"
fi

# --- loopback that is down, or whose TCP is dropped: no use in waiting
expect 1 "(the loopback interface is down: ip link set lo up)" unshare -n "$bin/twillrun" -n 2 "$bench" allreduce -b 8 -e 8
! command -v nft >/dev/null || expect 1 "(TCP over loopback is dropped: a firewall" unshare -n sh -c 'ip link set lo up
    nft add table ip f
    nft add chain ip f in "{ type filter hook input priority 0; }"
    nft add rule ip f in "tcp flags & (syn|ack) == syn" drop
    exec "$@"' sh "$bin/twillrun" -n 2 "$bench" allreduce -b 8 -e 8
hosts_down

# --- a rank that may open too few files says so, and the others hear it at once; also in the set-up of a communicator, where
# libfabric says nothing
cat >"$scratch/dup.c" <<'END'
#include <stdio.h>
#include <twill.h>
int main(void)
{
    twill_comm *comm, *other = NULL;
    float x = 1;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    twill_status status = twill_comm_dup(&other, comm);
    for (int i = 0; i < 2 && status == TWILL_OK; i++) /* a rank may have its sum of the first before another one fails */
        status = twill_allreduce(other, &x, &x, 1, TWILL_F32, TWILL_SUM);
    if (status != TWILL_OK)
        fprintf(stderr, "dup: %s\n", twill_comm_message(other != NULL ? other : comm));
    twill_comm_destroy(other);
    twill_finalize(comm);
    return status != TWILL_OK;
}
END
"$(cached CMAKE_C_COMPILER)" -I"$source/lib" "$scratch/dup.c" -o "$scratch/dup" -L"$build/lib" -ltwill -Wl,-rpath,"$build/lib"
hosts_up 3
for provider in tcp ofi:tcp; do
    failed=0
    for files in 14 16 18 20 21 22; do
        code=0
        # shellcheck disable=SC2016 # that shell's
        hosts_job h0,h1,h2 -x TWILL_TIMEOUT="$patience" -x TWILL_PROVIDER=$provider --grace "$patience" \
            sh -c '[ "$RANK" -ne 1 ] || ulimit -n "$0"; exec "$@"' $files "$scratch/dup" || code=$?
        [ $code -ne 0 ] || continue
        failed=$((failed + 1))
        # Of a line that several ranks say, twillrun prints "(N ranks)".
        said=$(awk '/oo many open files/ { n += match($0, /\([0-9]+ ranks\)$/) ? substr($0, RSTART + 1) + 0 : 1 } END { print n + 0 }' "$scratch/err")
        [ "$said" -ge 3 ] || fail "$provider, $files files: not said by all ranks"
    done
    [ $failed -gt 0 ] || fail "$provider: 14 files were enough"
done
hosts_down

# --- IPv6 only
hosts_up 2 --ipv6
right h0,h1 allreduce -b 8 -e 64K -f 64 -n 2
grep -q '^# bootstrap: .* fd88::1' "$scratch/out" || grep -q 'fd88:' "$scratch/out" || fail "not over IPv6"
echo "ok: hosts"
