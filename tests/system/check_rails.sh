#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Rails: two hosts with two networks; the bytes over each are counted by twill and by the kernel.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh disable=SC2154 # here is of rules.sh
. "$here/support/hosts.sh"
# shellcheck source-path=SCRIPTDIR source=../support/pair.sh
. "$here/support/pair.sh"
unset TWILL_INTERFACE TWILL_RAILS TWILL_PROVIDER TWILL_LAYOUT

# sent INTERFACE: bytes that host 0 has sent over it, as its kernel counts.
sent()
{
    # shellcheck disable=SC2016 # columns of awk
    host_run 0 awk -v name="$1:" '$1 == name { print $10 }' /proc/net/dev
}
# begin, then carried LEAST0 LEAST1: what went over each in between, in MiB, at least.
begin()
{
    before0=$(sent eth0) before1=$(sent eth1)
}
carried()
{
    mib0=$((($(sent eth0) - before0) >> 20)) mib1=$((($(sent eth1) - before1) >> 20))
    echo "$TWILL_RAILS: $mib0 MiB over eth0, $mib1 over eth1"
    grep '^# rail' "$scratch/out" | sed 's/^/    /'
    if [ $mib0 -lt "$1" ] || [ $mib1 -lt "$2" ]; then
        fail "rails carried too little"
    fi
}
rails()
{
    [ "$(grep -c '^# rail [0-9]*: .* message' "$scratch/out")" -eq "$1" ] || fail "not $1 rails"
}

hosts_up 2 --rails 2

# Large messages over both, by number and by name; 16 MiB are sent 5 times and more.
for TWILL_RAILS in 2 eth0,eth1; do
    export TWILL_RAILS
    begin
    good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 16M -e 16M -n 5 -w 0
    carried 20 20
    rails 2
done

# Each rank with its own names; small messages alternate.
begin
unset TWILL_RAILS
# shellcheck disable=SC2016 # expanded by the ranks
good_pair 10.88.0.1 sh -c 'export TWILL_INTERFACE=10.88.0.$((RANK + 1)),10.88.1.$((RANK + 1)); exec "$0" "$@"' \
    "$bin/twill-bench" allreduce -b 4K -e 4K -n 5000 -w 0
TWILL_RAILS=turns carried 8 8
rails 2

# By default a network that may be slower, or virtual, is no rail; one rail; two streams over one.
begin
good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 1M -e 1M -n 5 -w 0
rails 1
for TWILL_RAILS in 1 eth1; do
    export TWILL_RAILS
    good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 1M -e 1M -n 5 -w 0
    rails 1
    [ "$TWILL_RAILS" = 1 ] || grep -q '^# rail 0: eth1 10.88.1.1' "$scratch/out" || fail "not eth1"
done
[ $(($(sent eth1) - before1)) -gt 1000000 ] || fail "nothing went over eth1"
export TWILL_RAILS=eth1,eth1
good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 8M -e 8M -n 5 -w 0
rails 2
[ "$(grep -c '^# rail [01]: eth1 .* messages' "$scratch/out")" -eq 2 ] || fail "not two streams over eth1"

# A rail that is much slower than its driver says is not used beside a fast one.
export TWILL_RAILS=2
if hosts_shape 100mbit; then
    begin
    good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 4M -e 4M -n 5 -w 0
    carried 0 16
    [ $mib0 -le 4 ] || fail "a slow rail was used beside a fast one"
    rails 1
    for k in 0 1; do
        nsenter -t "$(cat "$hosts_dir/switch.pid")" -n tc qdisc del dev "port$k-0" root
    done
else
    echo "not checked: a slow rail, there is no tc tbf"
fi

# Invalid settings.
for TWILL_RAILS in 0 9 eth0,eth7 ,eth0; do
    export TWILL_RAILS
    pair 10.88.0.1 "$bin/twill-bench" allreduce -b 8 -e 8 -n 1
    [ $pair_status -ne 0 ] || fail "TWILL_RAILS=$TWILL_RAILS was taken"
    grep -q "TWILL_RAILS=$TWILL_RAILS\|=eth7: " "$scratch/out" || fail "TWILL_RAILS=$TWILL_RAILS: no words"
done
unset TWILL_RAILS
# shellcheck disable=SC2016 # expanded by the ranks
pair 10.88.0.1 sh -c 'export TWILL_RAILS=$((RANK + 1)); exec "$0" "$@"' "$bin/twill-bench" allreduce -b 8 -e 8 -n 1
[ $pair_status -ne 0 ] || fail "another number of rails was taken"
grep -q "the number of rails must be the same" "$scratch/out" || fail "no message about different numbers"
