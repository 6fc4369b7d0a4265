# SPDX-License-Identifier: Apache-2.0
# Hosts for tests, on one machine: each has its own network, host name, System V memory, /dev/shm,
# /sys, /etc/hosts and boot id (namespaces); they share files, process ids and cores. The switch is
# in a namespace, too, so nothing is visible outside, runs do not collide, addresses are always
# equal, and all of it ends with the script in any case. Source it after check.sh or rules.sh.
#
#   hosts_up N [--rails R] [--ipv6]  make hosts 0 .. N-1, named h0 h1 ..., with R networks; exits 77 if impossible
#   host_run K command...            run a command in host K, in the current directory
#   $hosts_in K command...           the same as a program (for expect, timeout, env); it execs the command,
#                                    so $! is its process when started in the background
#   host_name K, host_address K [R]  h0, 10.88.0.1 or fd88::1; interface eth0, 10.88.1.1 on rail 1, eth1
#   hosts_congestion NAME            set all hosts' congestion control; 1: not available
#   hosts_shape RATE [QUEUE [BURST]] limit what each host receives to RATE, such as 1gbit; 1: not available
#   hosts_job HOSTS options... program...
#                                    run twillrun in host 0; output and status as with ranks() of check.sh
#   host_link K up|down [R]          set its interface up or down
#   $hosts_agent HOST command...     like ssh (a line for the shell of HOST, a name or address)
#   hosts_down                       remove the hosts before the end, to make others
#
# The hosts are processes of this shell: wait for your own by number, never for all ("wait").
# shellcheck shell=sh source-path=SCRIPTDIR source=rules.sh disable=SC2154 # here and scratch are of rules.sh
hosts_in=$here/support/host.sh
# shellcheck disable=SC2034 # for the script that sources this
hosts_agent=$here/support/agent.sh

hosts_skip()
{
    hosts_down
    skip "no hosts: $*"
}

# hosts_hold NAME flags-of-unshare...: start a process that holds namespaces. It ends with this
# shell.
hosts_hold()
{
    hosts_held=$1
    shift
    setpriv --pdeathsig KILL unshare "$@" sh "$hosts_dir/begin" "$hosts_dir" "$hosts_held" \
        </dev/null >"$hosts_dir/$hosts_held.log" 2>&1 &
    echo $! >"$hosts_dir/$hosts_held.pid"
    hosts_turns=0
    until [ -e "$hosts_dir/$hosts_held.ready" ]; do
        hosts_turns=$((hosts_turns + 1))
        if ! kill -0 "$(cat "$hosts_dir/$hosts_held.pid")" 2>/dev/null || [ $hosts_turns -ge 6000 ]; then
            hosts_skip "$(tail -1 "$hosts_dir/$hosts_held.log")"
        fi
        sleep 0.05
    done
}

# Print what a host runs first. What cannot be mounted stays shared: network and host name suffice.
hosts_begin()
{
    cat <<'END'
dir=$1 name=$2
case $name in
h*)
    hostname "$name" || exit
    cat /proc/sys/kernel/random/uuid >"$dir/$name.boot"
    mount -t tmpfs -o mode=1777 tmpfs /dev/shm
    mount -t sysfs sysfs /sys
    mount --bind "$dir/hosts" /etc/hosts
    mount --bind "$dir/$name.boot" /proc/sys/kernel/random/boot_id
    ;;
esac
ip link set lo up || exit
: >"$dir/$name.ready"
exec sleep 1000000
END
}

host_name()
{
    echo "h$1"
}

host_address()
{
    if [ "$hosts_family" = 6 ]; then
        echo "fd88:0:0:${2:-0}::$(($1 + 1))"
    else
        echo "10.88.${2:-0}.$(($1 + 1))"
    fi
}

host_pid()
{
    cat "$hosts_dir/h$1.pid"
}

# hosts_names N R: print a line of /etc/hosts per host and network: h0 for the first network, h0-1
# for the second.
hosts_names()
{
    printf '127.0.0.1 localhost\n::1 localhost ip6-localhost\n'
    for hosts_k in $(seq 0 $(($1 - 1))); do
        echo "$(host_address "$hosts_k") h$hosts_k"
        for hosts_r in $(seq 1 $(($2 - 1))); do
            echo "$(host_address "$hosts_k" "$hosts_r") h$hosts_k-$hosts_r"
        done
    done
}

# hosts_plug K R: connect host K's interface on rail R.
hosts_plug()
{
    set -- "$1" "$2" "$(cat "$hosts_dir/switch.pid")" "$(host_pid "$1")"
    if [ "$hosts_family" = 6 ]; then
        set -- "$@" "$(host_address "$1" "$2")/64" nodad
    else
        set -- "$@" "$(host_address "$1" "$2")/24" "brd +"
    fi
    # shellcheck disable=SC2086 # two words
    nsenter -t "$3" -n ip link add "port$1-$2" type veth peer name "eth$2" netns "$4" &&
        nsenter -t "$3" -n ip link set "port$1-$2" master "rail$2" up &&
        nsenter -t "$4" -n ip address add "$5" $6 dev "eth$2" &&
        nsenter -t "$4" -n ip link set "eth$2" up
}

hosts_up()
{
    hosts_count=$1 hosts_rails=1 hosts_family=4
    shift
    while [ $# -gt 0 ]; do
        case $1 in
        --rails) hosts_rails=$2 && shift ;;
        --ipv6) hosts_family=6 ;;
        *) fail "hosts_up: $1?" ;;
        esac
        shift
    done
    hosts_dir=
    [ "$(id -u)" -eq 0 ] || skip "no hosts: network namespaces need root"
    for hosts_tool in unshare nsenter setpriv ip hostname; do
        command -v $hosts_tool >/dev/null || skip "no hosts: $hosts_tool is not installed"
    done
    hosts_dir=$(mktemp -d "$scratch/hosts-XXXXXX")
    export TEST_HOSTS="$hosts_dir"
    hosts_begin >"$hosts_dir/begin"
    hosts_names "$hosts_count" "$hosts_rails" >"$hosts_dir/hosts"
    hosts_hold switch -n
    for hosts_rail in $(seq 0 $((hosts_rails - 1))); do
        nsenter -t "$(cat "$hosts_dir/switch.pid")" -n \
            sh -c "ip link add rail$hosts_rail type bridge && ip link set rail$hosts_rail up" \
            >"$hosts_dir/log" 2>&1 || hosts_skip "no bridge: $(tail -1 "$hosts_dir/log")"
    done
    for hosts_host in $(seq 0 $((hosts_count - 1))); do
        hosts_hold "h$hosts_host" -n -u -i -m
        for hosts_rail in $(seq 0 $((hosts_rails - 1))); do
            hosts_plug "$hosts_host" "$hosts_rail" >"$hosts_dir/log" 2>&1 ||
                hosts_skip "no interface: $(tail -1 "$hosts_dir/log")"
        done
    done
}

# Processes in the hosts must be ended by those that started them.
hosts_down()
{
    [ -n "${hosts_dir:-}" ] || return 0
    for hosts_file in "$hosts_dir"/*.pid; do
        kill -KILL "$(cat "$hosts_file")" 2>/dev/null || :
        wait "$(cat "$hosts_file")" 2>/dev/null || :
    done
    rm -rf "$hosts_dir"
    hosts_dir=
}

host_run()
{
    "$hosts_in" "$@"
}

hosts_congestion()
{
    for hosts_host in $(seq 0 $((hosts_count - 1))); do
        host_run "$hosts_host" sh -c "echo $1 >/proc/sys/net/ipv4/tcp_congestion_control" 2>/dev/null ||
            return 1
    done
}

hosts_shape()
{
    for hosts_host in $(seq 0 $((hosts_count - 1))); do
        nsenter -t "$(cat "$hosts_dir/switch.pid")" -n tc qdisc add dev "port$hosts_host-0" root tbf rate "$1" \
            burst "${3:-128kb}" limit "${2:-4mb}" 2>/dev/null || return 1
    done
}

hosts_job()
{
    hosts_of_job=$1
    shift
    timeout -k 10 "$patience" "$hosts_in" 0 "$bin/twillrun" --timeout "$patience" --hosts "$hosts_of_job" \
        --agent "$hosts_agent" "$@" >"$scratch/out" 2>"$scratch/err"
}

host_link()
{
    nsenter -t "$(host_pid "$1")" -n ip link set "eth${3:-0}" "$2"
}
