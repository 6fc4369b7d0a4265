# SPDX-License-Identifier: Apache-2.0
# For the check_*.sh that run programs: what rules.sh has, but the first failure ends the script.
# shellcheck source-path=SCRIPTDIR source=rules.sh
. "$(dirname "$0")/../support/rules.sh"
set -e
bin=$build/bin

fail()
{
    printf 'FAILED: %s\n' "$*" >&2
    for fail_file in "$scratch/out" "$scratch/err" "$scratch"/*.log; do
        [ ! -s "$fail_file" ] || sed 's/^/    /' "$fail_file" >&2
    done
    exit 1
}

# Seconds that anything may take: only what hangs takes longer, however slow the machine is.
patience=900
# ranks N program args: its output goes to $scratch/out and $scratch/err; the status is the job's.
ranks()
{
    ranks_n=$1
    shift
    timeout -k 10 "$patience" "$bin/twillrun" -n "$ranks_n" "$@" >"$scratch/out" 2>"$scratch/err"
}

# expect STATUS TEXT command...: it must end with this status, and say this (a fixed string).
expect()
{
    expect_status=$1 expect_text=$2 expect_got=0
    shift 2
    rm -f "$scratch/err"
    timeout -k 10 "$patience" "$@" >"$scratch/out" 2>&1 || expect_got=$?
    [ "$expect_got" -eq "$expect_status" ] || fail "status $expect_got, not $expect_status: $*"
    grep -qF -e "$expect_text" "$scratch/out" || fail "'$expect_text' was not said by: $*"
}
# wait_for [-p PID] COMMAND...: until it succeeds, for that long at most, and while that process is there.
wait_for()
{
    wait_pid=$$ wait_end=$(($(date +%s) + patience))
    [ "$1" != -p ] || {
        wait_pid=$2
        shift 2
    }
    until "$@" 2>/dev/null; do
        ! is_gone "$wait_pid" || "$@" 2>/dev/null || fail "who was to do it has ended: $*"
        [ "$(date +%s)" -lt $wait_end ] || fail "waited in vain for: $*"
        sleep 0.05
    done
}
# wait_for_row PID: until twill-bench under this process has written a row of its table to $scratch/out.
wait_for_row()
{
    wait_for -p "$1" grep -q '^ *[1-9]' "$scratch/out"
}
# heeding COMMAND...: becomes the command, which heeds signals again that are ignored here: a shell's background
# ignores SIGINT, and what nohup has begun SIGHUP.
heeding()
{
    # shellcheck disable=SC2016 # perl's
    exec perl -e '$SIG{$_} = "DEFAULT" for qw(INT HUP QUIT); exec { $ARGV[0] } @ARGV' "$@"
}
# has_lines FILE N
has_lines()
{
    [ "$(wc -l <"$1")" -ge "$2" ]
}
is_gone()
{
    ! kill -0 "$1" 2>/dev/null
}
# reaches SIGNAL LAUNCHER...: sent to a launcher of three ranks it reaches each of them, and all end well.
reaches()
{
    reaches_signal=$1
    shift
    : >"$scratch/ready"
    : >"$scratch/got"
    heeding "$@" sh -c 'trap "echo '"$reaches_signal"' >>'"$scratch/got"'; exit 0" '"$reaches_signal"'
        echo >>'"$scratch/ready"'; while :; do sleep 0.05; done' >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for -p $pid has_lines "$scratch/ready" 3
    kill -"$reaches_signal" $pid
    wait $pid || fail "status $? after SIG$reaches_signal"
    [ "$(grep -c "^$reaches_signal\$" "$scratch/got")" -eq 3 ] || fail "SIG$reaches_signal did not reach all ranks"
}

# has_ended PID: it is gone, or nobody has asked how it ended.
has_ended()
{
    is_gone "$1" || grep -q 'State:.*Z' "/proc/$1/status"
}
# all_gone: no process of those in $scratch/pids is left.
all_gone()
{
    while read -r gone_pid; do
        is_gone "$gone_pid" || return 1
    done <"$scratch/pids"
}
# ends_deaf TEXT LAUNCHER...: one SIGTERM to a launcher of three ranks that ignore it, of which rank 2 is stopped,
# ends it and them, and it says this.
ends_deaf()
{
    deaf_text=$1 deaf_got=0
    shift
    : >"$scratch/pids"
    # shellcheck disable=SC2016 # the rank's shell is to expand it
    "$@" --grace 0.1 sh -c 'trap "" TERM
        echo $$ >>"$0"; [ "$RANK" != 2 ] || kill -STOP $$; while :; do sleep 0.1; done' "$scratch/pids" \
        >"$scratch/out" 2>"$scratch/err" &
    pid=$!
    wait_for -p $pid has_lines "$scratch/pids" 3
    kill -TERM $pid
    wait_for has_ended $pid
    wait $pid || deaf_got=$?
    [ $deaf_got -eq 137 ] || fail "status $deaf_got, not 137, of ranks that ignore SIGTERM"
    grep -qF "$deaf_text" "$scratch/err" || fail "not told who is killed: $deaf_text"
    wait_for all_gone
}
# free_port: a port that nobody has, and apart from those that others take: test programs (10000 to 19999), jobs that
# are given none (10240 to 30239) and connections (32768 and above).
free_port()
{
    perl -MIO::Socket::INET -e 'for (0 .. 2499) {
        my $port = 30240 + ($ARGV[0] + $_) % 2500;
        IO::Socket::INET->new(LocalPort => $port, Listen => 1) and print($port), exit;
    } exit 1' $$
}
