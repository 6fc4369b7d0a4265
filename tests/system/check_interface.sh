#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The choice of the interface, on two hosts with two networks: by the route to rank 0, whatever else is up; by
# TWILL_INTERFACE; and on hosts that have IPv6 only, or only link-local addresses.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh disable=SC2154 # here is of rules.sh
. "$here/support/hosts.sh"
# shellcheck source-path=SCRIPTDIR source=../support/pair.sh
. "$here/support/pair.sh"
info=$bin/twill-info
unset TWILL_INTERFACE TWILL_RAILS TWILL_PROVIDER TWILL_LAYOUT

said()
{
    grep -qF -e "$1" "$scratch/out" || fail "'$1' was not said"
}

hosts_up 2 --rails 2
# What container runtimes leave behind, before the wires in the kernel's list or after them.
for k in 0 1; do
    host_run $k ip link add docker0 type bridge
    host_run $k ip address add 172.17.0.1/16 dev docker0
    host_run $k ip link set docker0 up
    host_run $k ip link add weird7 type bridge
    host_run $k ip address add 172.18.0.1/16 dev weird7
    host_run $k ip link set weird7 up
done

# Two interfaces: the route to rank 0 decides, not the default route.
host_run 0 ip route add default via 10.88.1.254
host_run 1 ip route add default via 10.88.1.254
good_pair 10.88.0.1 "$info"
said "interface               eth0 address 10.88.0.1: where other ranks reach rank 0"
good_pair 10.88.1.1 "$info"
said "eth1 address 10.88.1.1"
good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 8 -e 64K -f 16 -n 3
said "interface: eth0 address 10.88.0.1"

# Alone: the default route; without it what is a wire, not a bridge.
expect 0 "between hosts it would be: eth1 address 10.88.1.1: the default route" \
    "$hosts_in" 0 "$info"
host_run 0 ip route del default
expect 0 "between hosts it would be: eth0 address 10.88.0.1: the best of the interfaces" \
    "$hosts_in" 0 "$info"

# Set by the user.
expect 0 "eth1 address 10.88.1.1: set by TWILL_INTERFACE=eth1" \
    env TWILL_INTERFACE=eth1 "$hosts_in" 0 "$info"
export TWILL_INTERFACE=eth1
good_pair 10.88.0.1 "$bin/twill-bench" allreduce -b 8 -e 64K -f 16 -n 3
said "interface: eth1 address 10.88.1.1: set by TWILL_INTERFACE=eth1"
said "at 10.88.1.1:"
unset TWILL_INTERFACE
expect 1 "TWILL_INTERFACE=eth7: eth7 is no interface or address that is up here; there are: eth" \
    env TWILL_INTERFACE=eth7 RANK=0 WORLD_SIZE=2 MASTER_ADDR=10.88.0.1 MASTER_PORT=20999 \
    "$hosts_in" 0 "$info"
expect 1 "eth8 is no interface" env TWILL_INTERFACE=eth0,eth8 RANK=0 WORLD_SIZE=2 \
    MASTER_ADDR=10.88.0.1 MASTER_PORT=20999 "$hosts_in" 0 "$info"
hosts_down

# IPv6 only: rendezvous, failure detector and messages.
hosts_up 2 --ipv6
host_run 0 sh -c 'test -e /proc/net/if_inet6' || skip "no IPv6 here"
good_pair fd88:0:0:0::1 "$bin/twill-bench" allreduce -b 8 -e 1M -f 16 -n 3
said "interface: eth0 address fd88::1"
expect 0 "between hosts it would be: eth0 address fd88::1" "$hosts_in" 0 "$info"

# Nothing but link-local addresses, and another name for the interface on the other host.
for k in 0 1; do
    host_run $k ip -6 address flush dev eth0 scope global
done
host_run 1 ip link set eth0 down
host_run 1 ip link set eth0 name wire5
host_run 1 ip link set wire5 up
# has_link_local HOST INTERFACE: its link-local address is usable, as no duplicate was found.
has_link_local()
{
    host_run "$1" ip -6 address show dev "$2" scope link -tentative | grep -q fe80
}
wait_for has_link_local 0 eth0
wait_for has_link_local 1 wire5
root=$(host_run 0 ip -6 -o address show dev eth0 scope link | sed 's/.*inet6 \([^/]*\).*/\1/')
bench="$bin/twill-bench allreduce -b 8 -e 1M -f 16 -n 3"
# shellcheck disable=SC2016 # expanded by the ranks
by_name='if [ $RANK -eq 0 ]; then scope=eth0; else scope=wire5; fi; MASTER_ADDR=$MASTER_ADDR%$scope; exec '
good_pair "$root" sh -c "$by_name $bench"
said "interface: eth0 address fe80:"

# There too a death is noticed.
# shellcheck disable=SC2016 # expanded by the ranks
by_name='[ $RANK -eq 0 ] || echo $$ >"$0"; '"$by_name"
pair_begin "$root" sh -c "$by_name $bin/twill-bench allreduce -b 8 -e 8 -n 20 -N 0 -w 0 -c 0" "$scratch/pid"
wait_for_row $pair_first
kill -KILL "$(cat "$scratch/pid")"
pair_end
[ $pair_status -eq 1 ] || fail "rank 0 has not noticed that rank 1 is dead: status $pair_status"
said "rank 1"
