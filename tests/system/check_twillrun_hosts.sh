#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun over several hosts: placement, environment, output and input, failures of ranks, hosts and agents, the death of
# twillrun itself, and that the key of the job appears on no command line.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
run=$bin/twillrun
[ -x "$run" ] || skip "no twillrun in $bin"

# said STATUS TEXT HOSTS options... program...
said()
{
    said_status=$1 said_text=$2 said_got=0
    shift 2
    hosts_job "$@" </dev/null || said_got=$?
    [ "$said_got" -eq "$said_status" ] || fail "status $said_got, not $said_status: $*"
    cat "$scratch/out" "$scratch/err" | grep -qF -e "$said_text" || fail "'$said_text' was not said by: $*"
}

# --- arguments
expect 2 "host -oProxy=x: not NAME" "$run" --hosts a,-oProxy=x true
expect 2 "host a:0: not NAME" "$run" --hosts a:0 true
expect 2 "host : not NAME" "$run" --hosts a,,b true
expect 2 "-n 4: the hosts have places for 3 ranks" "$run" --hosts a:2,b -n 4 true
expect 2 "-n 2: the hosts have places for 1 rank (--hosts" "$run" --hosts b -n 2 true
expect 2 "--map socket: not core or node" "$run" --hosts a --map socket true
expect 2 "--agent: a program is missing" "$run" --hosts a --agent " " true
expect 2 "--timeout x: not a number" "$run" --hosts a --timeout x true
expect 2 "--hostfile $scratch/none: No such file" "$run" --hostfile "$scratch/none" true
# Errors in a file are reported with the line.
wrong() # TEXT LINES: the third line is wrong
{
    printf '# hosts\na slots=2\n%s\n' "$1" >"$scratch/file"
    expect 2 "--hostfile $scratch/file:3: $2" "$run" --hostfile "$scratch/file" true
}
wrong "b slots=0" "host b: 'slots=0' is not slots=RANKS or max_slots=RANKS"
wrong "b slots=2 max-slots=x" "host b: 'max-slots=x' is not slots=RANKS"
wrong "b slots=2 cores=4" "host b: 'cores=4' is not slots=RANKS"
wrong "b slots=4 max_slots=2" "host b: max_slots=2 is less than its 4 slots"
wrong "-oProxy=x slots=4" "host -oProxy=x: not a name of a host"
wrong "b:x" "host b:x: not NAME or NAME:RANKS"
wrong "b $(printf '%2000s' x)" "a line of more than 1022 bytes"
: >"$scratch/file"
expect 2 "names no host" "$run" --hostfile "$scratch/file" true
# mpirun's options, slots and max_slots in host files, and more ranks than slots.
printf 'localhost slots=2 max_slots=4\n' >"$scratch/file"
expect 0 "of 2" "$run" --machinefile "$scratch/file" sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 2 "-n 3: the hosts have places for 2 ranks (--hosts NAME:RANKS,..., or --oversubscribe if more are intended)" \
    "$run" -np 3 -hostfile "$scratch/file" true
expect 0 "3 of 4" "$run" -np 4 --hostfile "$scratch/file" --oversubscribe --bind-to none sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 2 "-n 5: the hosts have places for 4 ranks (max_slots)" "$run" --np 5 --hostfile "$scratch/file" --oversubscribe true
# A host that is named twice has the slots of both entries, and no limit if one of them has none.
printf 'localhost slots=1 max_slots=2\nlocalhost slots=1 max_slots=2\n' >"$scratch/file"
expect 2 "-n 5: the hosts have places for 4 ranks (max_slots)" "$run" -n 5 --hostfile "$scratch/file" --oversubscribe true
for lines in 'localhost max_slots=1\nlocalhost\n' 'localhost\nlocalhost max_slots=1\n'; do
    # shellcheck disable=SC2059 # it is the format
    printf "$lines" >"$scratch/file"
    expect 0 "3 of 4" "$run" -n 4 --hostfile "$scratch/file" --oversubscribe sh -c 'echo "$RANK of $WORLD_SIZE"'
done
expect 0 "7 of 8" "$run" -np 8 -H localhost:2 -oversubscribe sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 2 "--map-by socket: not slot, core or node" "$run" --host a --map-by socket true
# Ranks of each host, and hosts that have fewer places.
expect 0 "1 of 2" "$run" -H localhost --npernode 2 sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 0 "1 of 2" "$run" -H localhost:4 --ntasks-per-node 2 sh -c 'echo "$RANK of $WORLD_SIZE"'
expect 2 "--ppn 2: host a has places for 1 rank" "$run" --hosts a:1,b --ppn 2 true
printf 'localhost slots=2 max_slots=4\n' >"$scratch/file"
expect 2 "--ppn 5: host localhost has places for 4 ranks" "$run" --hostfile "$scratch/file" --ppn 5 --oversubscribe true
expect 2 "--ppn 2: hosts localhost and 127.0.0.1 are one host" "$run" --hosts localhost,127.0.0.1 --ppn 2 true
# No agent is started for this host, by whatever name it is given, and its job uses loopback.
expect 0 "127.0.0.1 1 2" "$run" --hosts "localhost:2" --agent false sh -c 'echo $MASTER_ADDR $RANK $LOCAL_WORLD_SIZE'
expect 0 "127.0.0.1 1 2" "$run" --hosts "$(uname -n),b" -n 1 --agent false sh -c 'echo $MASTER_ADDR 1 2'
# Two names of this host are one host. A name server that does not answer delays the start for a limited time only.
expect 0 "2 2 3 127.0.0.1" "$run" --hosts "localhost:2,127.0.0.1" --agent false \
    sh -c 'echo $RANK $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR'
# (The name server is in a separate network, accepts queries and never answers.)
echo "nameserver 127.0.0.1" >"$scratch/resolv"
silent() # command...
{
    unshare -mn perl -MIO::Socket::INET -e 'my $file = shift;
        system("ip", "link", "set", "lo", "up") == 0 && system("mount", "--bind", $file, "/etc/resolv.conf") == 0 or exit 77;
        my $server = IO::Socket::INET->new(Proto => "udp", LocalAddr => "127.0.0.1:53") or exit 77;
        exit(system(@ARGV) >> 8)' "$scratch/resolv" "$@"
}
code=0
silent timeout 4 getent hosts nowhere 2>/dev/null || code=$?
if [ $code -eq 124 ]; then # otherwise names are looked up in another way, or networks cannot be made here
    silent "$run" --timeout 0.3 --agent false --hosts nowhere true 2>"$scratch/out" || code=$?
    [ $code -eq 1 ] || fail "status $code without names"
    grep -qF "host nowhere: its name was not looked up within 0.3 s" "$scratch/out" || fail "the name is not said"
fi

hosts_up 3

# --- placement and environment
if command -v prlimit >/dev/null; then # hosts without ranks cost nothing
    expect 0 "hi of h1" prlimit --nofile=64:64 "$hosts_in" 0 "$run" --hosts "h1,$(seq -s, 100 160)" -n 1 --agent "$hosts_agent" \
        sh -c 'echo hi of $(hostname)'
fi
whoami='echo "$RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $(hostname) $MASTER_ADDR"'
hosts_job h0:2,h1:2,h2 sh -c "$whoami" || fail "status $?"
printf '%s 10.88.0.1\n' "0 5 0 2 h0" "1 5 1 2 h0" "2 5 0 2 h1" "3 5 1 2 h1" "4 5 0 1 h2" >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "filled first"
# Without a terminal, hosts that are one machine are in one session, so that a yield of the core reaches all ranks.
if ! (: >/dev/tty) 2>/dev/null; then
    hosts_job h0:2,h1 sh -c 'cut -d" " -f6 /proc/self/stat' || fail "status $?"
    [ "$(sort -u "$scratch/out" | wc -l)" -eq 1 ] || fail "ranks of two hosts on a machine are in two sessions"
fi
# Each of these hosts has another boot id, but the ranks notice that they share cores.
said 0 "rank 0, 0 of 1 on node 0; ranks share cores" h0,h1 --bind none sh -c 'taskset -c "$0" "$@"' \
    "$(taskset -cp $$ | sed 's/.*[ ,-]//')" "$bin/twill-info"
hosts_job h0:2,h1:2 -n 1 -l echo first : -n 3 sh -c 'echo "second $RANK on $(hostname)"' || fail "status $?"
printf '%s\n' "[0] first" "[1] second 1 on h0" "[2] second 2 on h1" "[3] second 3 on h1" >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "two programs"
printf 'h1:2 # two\n\nh2 slots=2\n' >"$scratch/file"
timeout -k 10 "$patience" "$hosts_in" 0 "$run" --hostfile "$scratch/file" --map node --agent "$hosts_agent" sh -c "$whoami" \
    >"$scratch/out" 2>"$scratch/err" || fail "status $?"
printf '%s 10.88.0.2\n' "0 4 0 2 h1" "1 4 0 2 h2" "2 4 1 2 h1" "3 4 1 2 h2" >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "round the hosts"
# With more ranks than slots, twillrun goes round the hosts again.
printf 'h1 slots=2 max_slots=3\nh2\n' >"$scratch/file"
timeout -k 10 "$patience" "$hosts_in" 0 "$run" --hostfile "$scratch/file" -np 6 --oversubscribe --agent "$hosts_agent" sh -c "$whoami" \
    >"$scratch/out" 2>"$scratch/err" || fail "status $?"
printf '%s 10.88.0.2\n' "0 6 0 3 h1" "1 6 1 3 h1" "2 6 0 3 h2" "3 6 2 3 h1" "4 6 1 3 h2" "5 6 2 3 h2" >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "oversubscribed"
said 0 "10.88.0.1 h1" localhost,h1 sh -c 'echo $MASTER_ADDR $(hostname)'
said 0 "10.88.0.2 h0" h1,localhost sh -c 'echo $MASTER_ADDR $(hostname)'
said 0 "127.0.0.1 h1" h1:2,h2:2 -n 2 sh -c 'echo $MASTER_ADDR $(hostname)'
# The working directory, the variables of -x and TWILL_ variables reach the ranks; other variables do not.
(
    cd "$scratch"
    export TWILL_TIMEOUT=7 MINE=no NOT_MINE=1
    hosts_job h0,h1 -x GIVEN="a 'b' \$c
d" -x MINE sh -c 'echo "$PWD $GIVEN $TWILL_TIMEOUT $MINE ${#TWILL_JOB}"; [ "$RANK" = 0 ] || echo "${NOT_MINE:-none}"' || fail "status $?"
)
[ "$(grep -cx "$scratch a 'b' \$c" "$scratch/out")" -eq 2 ] || fail "directory or -x"
[ "$(grep -cx 'd 7 no 64' "$scratch/out")" -eq 2 ] || fail "variables"
grep -qx none "$scratch/out" || fail "all of the environment went along"
hosts_job h1,h2 -l sh -c 'echo "${TWILL_LISTEN_FD:-none}"; [ -z "$TWILL_LISTEN_FD" ] || [ -S "/proc/self/fd/$TWILL_LISTEN_FD" ]'
grep -qx '\[1\] none' "$scratch/out" || fail "rank 1 has a listening socket"
grep -q '^\[0\] [0-9]' "$scratch/out" || fail "rank 0 has none"

# --- the key is on no command line, on no host, while a job runs
export SECRET=swordfish
hosts_job h0,h1 -x SECRET sh -c '[ "$SECRET" = swordfish ] && cat /proc/[0-9]*/cmdline >'"$scratch/seen"'.$RANK; echo $TWILL_JOB' || fail "status $?"
unset SECRET
for r in 0 1; do
    tr '\0' '\n' <"$scratch/seen.$r" >"$scratch/lines"
    grep -q -e --server "$scratch/lines" || fail "no host agent is seen"
    ! grep -qF -e "$(head -n 1 "$scratch/out")" "$scratch/lines" || fail "the key can be seen"
    ! grep -q '^SECRET=swordfish' "$scratch/lines" || fail "-x can be seen"
done

# --- output and input
hosts_job h1:2,h2 -l sh -c 'printf "one\ntwo"; printf "err" >&2' || fail "status $?"
printf '[%d] one\n[%d] two\n' 0 0 1 1 2 2 >"$scratch/wanted"
sort "$scratch/out" | cmp - "$scratch/wanted" || fail "labels on output"
printf '[%d] err\n' 0 1 2 >"$scratch/wanted"
sort "$scratch/err" | cmp - "$scratch/wanted" || fail "labels on errors"
hosts_job h0:2,h1:2 sh -c 'i=0; while [ $i -lt 2000 ]; do echo "line $RANK $i of many words"; i=$((i + 1)); done'
[ "$(grep -cE '^line [0-9] [0-9]+ of many words$' "$scratch/out")" -eq 8000 ] || fail "lines are mixed"
hosts_job h0,h1 sh -c 'head -c 3000000 /dev/zero'
[ "$(wc -c <"$scratch/out")" -eq 6000000 ] || fail "long output"
printf 'a\nb' | hosts_job h1:2,h2 -l cat || fail "status $?"
printf '[0] a\n[0] b\n' | cmp - "$scratch/out" || fail "standard input"
head -c 1000000 /dev/zero | hosts_job h1,h2 sh -c '[ "$RANK" = 1 ] || sleep 0.3; wc -c'
[ "$(sort -n "$scratch/out" | tr '\n' ' ')" = "0 1000000 " ] || fail "much standard input"
head -c 1000000 /dev/zero | hosts_job h1,h2 true || fail "unread standard input"
# The reader of twillrun's output pauses.
timeout -k 10 "$patience" "$hosts_in" 0 "$run" --hosts h1,h2 --agent "$hosts_agent" head -c 4000000 /dev/zero |
    { sleep 0.3 && wc -c; } >"$scratch/out"
[ "$(cat "$scratch/out")" -eq 8000000 ] || fail "a slow reader"

# --- binding: on each host by itself; unbound ranks are reported once
if [ "$(nproc)" -ge 2 ]; then
    hosts_job h0:2,h1:2 --report-bindings true || fail "status $?"
    for rank in 0 1 2 3; do
        host=h$((rank / 2))
        grep -q "^twillrun: host $host: rank $rank on $host: bound to CPUs [0-9]" "$scratch/err" || fail "rank $rank is not bound"
    done
fi
# Several cores a rank, and a host that has too few.
hosts_job h0,h1 --ppn 1 --threads-per-rank "$(nproc)" --report-bindings sh -c 'echo "$RANK $OMP_NUM_THREADS"' || fail "status $?"
[ "$(sort "$scratch/out" | tr '\n' ' ')" = "0 $(nproc) 1 $(nproc) " ] || fail "threads of ranks on two hosts"
grep -q "^twillrun: host h1: rank 1 on h1: bound to CPUs .*, $(nproc) core" "$scratch/err" || fail "the cores on another host"
said 1 "host h1: --threads-per-rank $(nproc) on h1: 2 ranks with $(nproc) core" h0,h1:2 \
    --threads-per-rank "$(nproc)" true
many=$(($(nproc) + 1))
hosts_job h0:$many,h1:$many --report-bindings true || fail "status $?"
[ "$(grep -c "^twillrun: host h[01]: ranks are not bound: $many are more than" "$scratch/err")" -eq 1 ] || fail "not said once"
grep -q "^twillrun: host h1: rank $many on h1: not bound, CPUs " "$scratch/err" || fail "the report of a rank that is not bound"
hosts_job h0:$many,h1:$many --bind none true || fail "status $?"
[ ! -s "$scratch/err" ] || fail "it was meant"

# --- exit codes
hosts_job h0,h1,h2 true || fail "status $? of a job that is well"
said 7 "exited with status 7; ending the others" h0:2,h1:2 --grace 0.2 sh -c '[ "$RANK" != 2 ] || exit 7; sleep 60'
grep -q '^twillrun: rank 2 on h1 (pid [0-9]*)' "$scratch/err" || fail "rank 2 or its host is not named"
said 137 "was killed by signal 9" h0,h1 --grace 0.2 sh -c '[ "$RANK" != 1 ] || kill -KILL $$; sleep 60'
said 5 "noticed 0" h0,h1,h2 --grace "$patience" sh -c \
    '[ "$RANK" != 2 ] || exit 5; until grep -q "status 5" "$0"; do sleep 0.05; done; echo "noticed $RANK"; exit 9' "$scratch/err"
said 127 "host h1: cannot run no-such-program: No such file" h0,h1 no-such-program
said 126 "cannot run /etc/passwd: Permission denied" h0,h1 /etc/passwd
said 3 "host h1: killing rank 1, which did not end on SIGTERM" h0,h1 --grace 0.1 \
    sh -c '[ "$RANK" = 1 ] || { until [ -e "$0" ]; do sleep 0.05; done; exit 3; }
        trap "" TERM; : >"$0"; while :; do sleep 0.1; done' "$scratch/deaf"
: >"$scratch/pids"
said 3 "ending the others" h0,h1 --grace 0.1 \
    sh -c '[ "$RANK" != 0 ] || { until [ -s "$0" ]; do sleep 0.05; done; exit 3; }; sleep 600 & echo $! >>"$0"; wait' "$scratch/pids"
wait_for all_gone
# Children that a failed rank has left end too, on every host.
: >"$scratch/pids"
said 3 "rank 1 on h1" h0,h1 sh -c '[ "$RANK" = 0 ] || { sleep 600 & echo $! >>"$0"; exit 3; }' "$scratch/pids"
wait_for all_gone
# If twillrun cannot parse what the host agent here sends, it still ends its ranks and their children before it is killed.
: >"$scratch/pids"
said 1 "host h0: received data that is not from twillrun" h0,h1 --grace 0.1 sh -c '[ "$RANK" = 0 ] || exec sleep 600
    sleep 600 & echo $! >>"$0"
    for fd in /proc/$PPID/fd/*; do # a pipe of its own that it writes to: O_CLOEXEC, O_WRONLY
        if [ -p "$fd" ] && grep -q "^flags:[[:space:]]*02[0-7]*1$" "/proc/$PPID/fdinfo/${fd##*/}"; then
            echo "this is no frame of a host agent" >"$fd"
        fi
    done
    wait' "$scratch/pids"
wait_for all_gone

# --- link-local addresses: two hosts may use the same one, on interfaces of other names
link_only() # HOST ADDRESS INTERFACE: rename the host's eth0 to INTERFACE and give it this address only
{
    host_run "$1" sh -c 'ip address flush dev eth0 && ip link set eth0 down name "$1" addrgenmode none &&
        ip link set "$1" up && ip address add "$0/64" dev "$1" nodad' "$2" "$3"
}
if link_only 0 fe80::77 eth0 2>/dev/null; then # else there is no IPv6 here
    expect 0 "0 h0" "$hosts_in" 0 "$run" --hosts fe80::77%eth0 --agent false sh -c 'echo $RANK $(hostname)'
    expect 1 "host fe80::77%lo: no answer" "$hosts_in" 0 "$run" --hosts fe80::77%lo --agent false true
    if [ -x "$bin/hello" ]; then
        link_only 1 fe80::78 net9
        said 0 "the sum of 1..2 is 3" h0,h1 -x TWILL_INTERFACE=eth0 \
            sh -c '[ "$RANK" = 0 ] || export TWILL_INTERFACE=net9; exec "$0"' "$bin/hello"
        host_run 1 sh -c 'ip link set net9 down name eth0 && ip link set eth0 up'
    fi
fi
for k in 0 1; do
    host_run $k ip address flush dev eth0
    host_run $k ip address add "$(host_address $k)/24" dev eth0
done

# --- hosts that cannot be reached, agents that fail or send something else
said 1 "host nowhere: no answer from a twillrun there: its agent ended with status 255" h0,nowhere true
grep -q "^twillrun: host nowhere: agent.sh: could not resolve hostname" "$scratch/err" || fail "the agent's message is missing"
said 1 "is twillrun there at $scratch/none?" h0,h1 --remote "$scratch/none" true
host_run 1 ip address flush dev eth0
said 1 "host h1: rank 0 is to be here, but other hosts cannot reach 127.0.0.1" h1,h0 true
host_run 1 ip address add "$(host_address 1)/24" dev eth0
said 1 "cannot run $scratch/none" h0,h1 --agent "$scratch/none" true
agent_is() # script: an agent that is this shell script
{
    printf '#!/bin/sh\n%s\n' "$1" >"$scratch/agent"
    chmod +x "$scratch/agent"
}
agent_is 'sleep 600'
said 1 "host h1: no answer from a twillrun there within 0.3 s" h1 --timeout 0.3 --agent "$scratch/agent" true
agent_is 'printf "\ntwillrun-server:\nTw\1\0\0\0\0\0\2\0\0\0\3\0\0\0""9.9"; cat >/dev/null'
said 1 "host h1: has another version of twillrun than" h0,h1 --agent "$scratch/agent" true
grep -q "9.9 (protocol 2)" "$scratch/err" || fail "not which"
agent_is 'printf "\ntwillrun-server:\nTw\1\0\0\0\0\0\2\0\0\0\3\0\0\1"; cat >/dev/null'
said 1 "received data that is not from twillrun" h0,h1 --agent "$scratch/agent" true
agent_is 'head -c 300000 /dev/zero; cat >/dev/null'
said 1 "received data that is not from twillrun" h0,h1 --agent "$scratch/agent" true
# What another host sends does not command the terminal.
plain_only()
{
    ! LC_ALL=C grep -q "$(printf '\033')" "$scratch/err" || fail "control characters of another host are printed"
}
agent_is 'printf "\ntwillrun-server:\nTw\1\0\0\0\0\0\2\0\0\0\4\0\0\0""9\033[m"; cat >/dev/null'
said 1 "9?[m (protocol 2)" h0,h1 --agent "$scratch/agent" true
plain_only
agent_is "printf 'm\033[31mo\r\n' >&2; exec '$hosts_agent' \"\$@\""
said 0 "host h1: m?[31mo" h0,h1 --agent "$scratch/agent" true
plain_only
agent_is "echo Welcome to \$1; echo; echo motd >&2; exec '$hosts_agent' \"\$@\""
said 0 "host h1: motd" h0,h1 --agent "$scratch/agent" true

# --- fuzz: whatever a host agent receives, it ends at once with a complaint, and leaves nothing
seed=${TEST_SEED:-1}
for turn in 1 2 3 4 5 6 7 8; do
    code=0
    perl -e 'srand(shift); my $job = join("", map { "$_\0" } "n2", "b0", "k12", "d/", "r0", "r1", "asleep", "a77");
        my $frame = pack("a2vVVV", "Tw", 9, 0, 0, length($job)) . $job;
        substr($frame, int(rand(length($frame))), 1) = chr(int(rand(256))) for 1 .. 1 + int(rand(4));
        print $frame' "$((seed + turn))" |
        timeout -k 10 "$patience" "$run" --server >"$scratch/out" 2>"$scratch/err" || code=$?
    [ $code -lt 2 ] || fail "status $code of a host agent with seed $((seed + turn))"
done
expect 1 "is not from twillrun" sh -c 'head -c 100000 /dev/urandom | "$0" --server' "$run"
perl -e 'my $job = join("", map { "$_\0" } qw(n1 b0 k12 d/ 1 r0 atrue));
    print pack("a2vVVV", "Tw", 9, 0, 0, length($job)), $job, pack("a2vVVV", "Tw", 10, 0, 0, 3), "bad"' >"$scratch/frames"
# shellcheck disable=SC2016 # expanded by that shell
expect 1 "no address and port of rank 0" sh -c '"$0" --server <"$1"' "$run" "$scratch/frames"
expect 1 "is not a job of twillrun" sh -c 'printf "Tw\\011\\0\\0\\0\\0\\0\\0\\0\\0\\0\\003\\0\\0\\0n2\\0" | "$0" --server' "$run"

# --- an agent dies, as ssh may, while the host agent that it started lives on
agent_is 'echo $$ >>'"$scratch/agents"'; cat | "'"$hosts_agent"'" "$@" | cat'
: >"$scratch/pids"
: >"$scratch/agents"
"$hosts_in" 0 "$run" --hosts h0,h1 --grace 0.2 --agent "$scratch/agent" \
    sh -c 'echo $$ >>'"$scratch/pids"'; exec sleep 600' >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid has_lines "$scratch/pids" 2
kill -KILL -"$(cat "$scratch/agents")" # the agent leads a session: this closes its pipes, too
code=0
wait $pid || code=$?
[ $code -eq 1 ] || fail "status $code after an agent's death"
grep -q "^twillrun: host h1: lost: its agent was killed by signal 9" "$scratch/err" || fail "the host is not named"
wait_for all_gone

# --- a host agent is frozen: once a rank has ended well, its host is given up by name. If its ranks have ended, those of other hosts,
# whose agents answer, go on
# (A host agent that sleeps has sent what it had to: that its ranks have started, or the end of a rank that it has reaped.)
said 1 "host h1: no answer about its ranks for 6 s: they may still be running" h0,h1 --timeout 6 --grace 0.1 \
    sh -c '[ "$RANK" = 0 ] || {
        until grep -q "State:.S" /proc/$PPID/status; do sleep 0.05; done; kill -STOP $PPID; }'
rm -f "$scratch/frozen"
said 1 "host h1: no answer about its ranks for 6 s after their end: the rest of their output may be missing" \
    h0,h1 --elastic 1:2 --timeout 6 sh -c 'if [ "$RANK" = 1 ]; then
        echo "$$ $PPID" >"$0.part"
        exec mv "$0.part" "$0"
    fi
    until [ -s "$0" ]; do sleep 0.05; done
    read -r rank host_agent <"$0"
    while kill -0 "$rank" 2>/dev/null || ! grep -q "State:.S" "/proc/$host_agent/status"; do sleep 0.05; done
    kill -STOP "$host_agent"
    until grep -q "no answer" "$1"; do sleep 0.05; done
    echo "rank 0 went on"' "$scratch/frozen" "$scratch/err"
grep -q "^rank 0 went on" "$scratch/out" || fail "the rank of the other host was ended"

# --- ranks on all hosts are notified at once that one has ended before all had joined
if [ -x "$bin/hello" ]; then
    for ended in 0 1; do
        said 1 "rank $ended ended (exit code 0) before it called twill_init" h0,h1,h2 \
            sh -c '[ "$RANK" != "$1" ] || exit 0; exec "$0"' "$bin/hello" $ended
    done
fi

# --- signals reach all hosts; the second one ends ranks that ignore the first
for signal in INT TERM USR1; do
    reaches $signal "$hosts_in" 0 "$run" --hosts h0,h1:2 --agent "$hosts_agent"
done

# One SIGTERM ends a job whose ranks ignore it, or are stopped, on any host; they get the grace time.
ends_deaf "host h1: killing rank 1 2, which did not end on SIGTERM" "$hosts_in" 0 "$run" --hosts h0,h1:2 --agent "$hosts_agent"

# --- twillrun is killed: nothing stays behind on any host
: >"$scratch/pids"
"$hosts_in" 0 "$run" --hosts h0:2,h1:2,h2:2 --agent "$hosts_agent" \
    sh -c 'echo $$ >>'"$scratch/pids"'; sleep 600 & echo $! >>'"$scratch/pids"'; wait' >"$scratch/out" 2>"$scratch/err" &
pid=$!
wait_for -p $pid has_lines "$scratch/pids" 12
kill -KILL $pid
wait $pid 2>/dev/null || :
wait_for all_gone

# --- ssh, if its server is installed
if command -v ssh-keygen >/dev/null && [ -x /usr/sbin/sshd ]; then
    install -d -m 755 /run/sshd
    for key in host user; do
        ssh-keygen -q -t ed25519 -N '' -f "$scratch/$key"
    done
    printf '%s\n' "Port 2222" "HostKey $scratch/host" "AuthorizedKeysFile $scratch/user.pub" "StrictModes no" \
        "PidFile none" "UsePAM no" "PermitRootLogin yes" >"$scratch/sshd"
    setpriv --pdeathsig KILL "$hosts_in" 1 /usr/sbin/sshd -D -e -f "$scratch/sshd" \
        </dev/null >"$scratch/sshd.log" 2>&1 &
    sshd=$!
    ssh="ssh -F none -p 2222 -i $scratch/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    # shellcheck disable=SC2086 # words
    wait_for -p $sshd "$hosts_in" 0 timeout -k 10 60 $ssh h1 true
    hosts_agent=$ssh
    hosts_job h0,h1:2 -l sh -c "$whoami" || fail "status $? over ssh"
    printf '[%s 10.88.0.1\n' "0] 0 3 0 1 h0" "1] 1 3 0 2 h1" "2] 2 3 1 2 h1" >"$scratch/wanted"
    sort "$scratch/out" | cmp - "$scratch/wanted" || fail "output over ssh"
    head -c 300000 /dev/zero | hosts_job h1,h0 wc -c || fail "status $? with input over ssh"
    [ "$(sort -n "$scratch/out" | tr '\n' ' ')" = "0 300000 " ] || fail "standard input over ssh"
    said 9 "rank 2 on h1" h0:2,h1:2 --grace 0.2 sh -c '[ "$RANK" != 2 ] || exit 9; sleep 60'
    said 1 "is twillrun there at /none?" h0,h1 --remote /none true
    : >"$scratch/pids"
    "$hosts_in" 0 "$run" --hosts h0,h1:2 --agent "$ssh" \
        sh -c 'echo $$ >>'"$scratch/pids"'; sleep 600 & echo $! >>'"$scratch/pids"'; wait' >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for -p $pid has_lines "$scratch/pids" 6
    kill -KILL $pid
    wait $pid 2>/dev/null || :
    wait_for all_gone
    host_link 1 down
    said 1 "host h1: no answer from a twillrun there" h1 --timeout 1 true
    host_link 1 up
    kill $sshd
    hosts_agent=$(dirname "$hosts_in")/agent.sh
else
    echo "not over ssh: there is no sshd"
fi

# --- a job of the library
# shellcheck disable=SC2154 # of rules.sh
if [ -x "$bin/twill-bench" ] && [ -z "$sanitize" ]; then
    hosts_job h0:2,h1:2 "$bin/twill-bench" allreduce -b 8 -e 1M -f 8 || fail "status $? of twill-bench"
    grep -q "^# Out of bounds values : 0 OK" "$scratch/out" || fail "wrong values"
fi
echo "ok: twillrun over hosts"
