# SPDX-License-Identifier: Apache-2.0
# Helpers for check_*.sh that run programs: rules.sh, but the first failure ends the script.
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

# Limit of every wait in seconds; only a hang takes longer, on any machine.
patience=900
# ranks N program args: run a job; output in $scratch/out and $scratch/err, the status is the job's.
ranks()
{
    ranks_n=$1
    shift
    timeout -k 10 "$patience" "$bin/twillrun" -n "$ranks_n" "$@" >"$scratch/out" 2>"$scratch/err"
}

# expect STATUS TEXT command...: run a command, which must end with this status and print this text.
expect()
{
    expect_status=$1 expect_text=$2 expect_got=0
    shift 2
    rm -f "$scratch/err"
    timeout -k 10 "$patience" "$@" >"$scratch/out" 2>&1 || expect_got=$?
    [ "$expect_got" -eq "$expect_status" ] || fail "status $expect_got, not $expect_status: $*"
    grep -qF -e "$expect_text" "$scratch/out" || fail "'$expect_text' was not printed by: $*"
}
# bench_script STATUS SCRIPT ARGUMENT...: run a script of bench/ with the build's programs, which must end with this status; output in
# $scratch/out and $scratch/err. Where the script cannot run (77) the test is skipped.
bench_script()
{
    bench_status=$1 bench_name=$2 bench_got=0
    shift 2
    timeout -k 10 "$patience" sh "$source/bench/$bench_name" "$bin" "$@" >"$scratch/out" 2>"$scratch/err" || bench_got=$?
    [ "$bench_got" -ne 77 ] || skip "$(tail -n 1 "$scratch/err")"
    [ "$bench_got" -eq "$bench_status" ] || fail "${bench_name##*/} $*: status $bench_got, not $bench_status"
}
# due N CASE: succeed for all cases (numbers), but under a sanitizer without TEST_WHOLE for one in N, another each day.
due()
{
    # shellcheck disable=SC2154 # sanitize is of rules.sh
    [ -z "$sanitize" ] || [ -n "${TEST_WHOLE:-}" ] || [ $((($2 + ${TEST_SEED:-1}) % $1)) -eq 0 ]
}
# wait_for [-p PID] COMMAND...: repeat until COMMAND succeeds, at most $patience s and while PID
# lives.
wait_for()
{
    wait_pid=$$ wait_end=$(($(date +%s) + patience))
    [ "$1" != -p ] || {
        wait_pid=$2
        shift 2
    }
    until "$@" 2>/dev/null; do
        ! is_gone "$wait_pid" || "$@" 2>/dev/null || fail "the process ended before: $*"
        [ "$(date +%s)" -lt $wait_end ] || fail "timed out waiting for: $*"
        sleep 0.05
    done
}
# wait_for_row PID: wait until twill-bench below this process has written a row to $scratch/out.
wait_for_row()
{
    wait_for -p "$1" grep -q '^ *[1-9]' "$scratch/out"
}
# heeding COMMAND...: exec a command with default signal handling: a shell's background processes
# ignore SIGINT, and those of nohup SIGHUP.
heeding()
{
    # shellcheck disable=SC2016 # perl's
    exec perl -e '$SIG{$_} = "DEFAULT" for qw(INT HUP QUIT); exec { $ARGV[0] } @ARGV' "$@"
}
# has_lines FILE N: succeed if FILE has at least N lines.
has_lines()
{
    [ "$(wc -l <"$1")" -ge "$2" ]
}
is_gone()
{
    ! kill -0 "$1" 2>/dev/null
}
# reaches SIGNAL LAUNCHER...: a signal to a launcher of three ranks must reach each of them, and all
# must end well.
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

# has_ended PID: succeed if a process is gone or a zombie.
has_ended()
{
    is_gone "$1" || grep -q 'State:.*Z' "/proc/$1/status"
}
# all_gone: succeed if no process in $scratch/pids is left.
all_gone()
{
    while read -r gone_pid; do
        is_gone "$gone_pid" || return 1
    done <"$scratch/pids"
}
# ends_deaf TEXT LAUNCHER...: one SIGTERM must end a launcher and its three ranks, which ignore it
# and of which rank 2 is stopped; the launcher must print TEXT.
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
    grep -qF "$deaf_text" "$scratch/err" || fail "the killed ranks are not named: $deaf_text"
    wait_for all_gone
}
# free_port: print an unused port outside the ranges of test programs (10000 to 19999), of jobs
# without a given port (10240 to 30239) and of connections (32768 and above).
free_port()
{
    perl -MIO::Socket::INET -e 'for (0 .. 2499) {
        my $port = 30240 + ($ARGV[0] + $_) % 2500;
        IO::Socket::INET->new(LocalPort => $port, Listen => 1) and print($port), exit;
    } exit 1' $$
}
