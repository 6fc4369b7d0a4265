#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twillrun in unusual surroundings: a terminal in the background, closed descriptors, ignored signals, readers that do
# not read or have gone; on one host, then on several.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016,SC2154 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
run=$bin/twillrun
[ -x "$run" ] || skip "no twillrun in $bin"

# In the background of a terminal rank 0 finds the end of its input, and is not stopped for reading.
background() # launcher of two ranks...
{
    printf '%s ' "$@" >"$scratch/line"
    echo "sh -c 'cat; echo \"read by \$RANK\"' & wait \$!; echo \"status \$?\"" >>"$scratch/line"
    SHELL=/bin/sh timeout "$patience" script -qc "sh -m $scratch/line" /dev/null </dev/null >"$scratch/out" 2>&1 ||
        fail "status $? in the background"
    for text in "read by 0" "read by 1" "status 0"; do
        tr -d '\r' <"$scratch/out" | grep -qx "$text" || fail "not '$text' in the background"
    done
}

# If standard input is closed, ranks read end-of-file there, not one of twillrun's own descriptors.
closed_input() # launcher of two ranks...
{
    timeout "$patience" "$@" -l sh -c 'cat; echo end' <&- >"$scratch/out" 2>"$scratch/err" || fail "status $? without input"
    printf '[%d] end\n' 0 1 >"$scratch/wanted"
    sort "$scratch/out" | cmp - "$scratch/wanted" || fail "output without input"
    [ ! -s "$scratch/err" ] || fail "complaints without input"
}

# A reader that closes after one line ends the job, as in any pipe.
reader_leaves() # launcher of ranks...
{
    {
        code=0
        timeout "$patience" "$@" -l yes 2>"$scratch/err" || code=$?
        echo $code >"$scratch/code"
    } | head -n 1 >"$scratch/out"
    for code in 0 124; do
        [ "$(cat "$scratch/code")" -ne $code ] || fail "status $code of a job without a reader"
    done
    grep -qF "output is lost: Broken pipe" "$scratch/err" || fail "not why"
}

# Signals reach the ranks and end them even if nothing reads the output, and another program fills it, too.
is_full() # succeeds if the pipe is full; writes nothing
{
    perl -e 'my $w = ""; vec($w, 9, 1) = 1; exit(select(undef, $w, undef, 0) > 0)'
}
is_ended_by_term()
{
    kill -TERM "$pid" 2>/dev/null || :
    has_ended "$pid"
}
reader_sleeps() # launcher of two ranks...
{
    mkfifo "$scratch/fifo"
    exec 9<>"$scratch/fifo"
    : >"$scratch/pids"
    : >"$scratch/got"
    yes >"$scratch/fifo" &
    writer=$!
    "$@" -l sh -c 'trap "echo >>'"$scratch/got"'" USR1; yes & echo $$ >>'"$scratch/pids"'; while :; do sleep 0.1; done' \
        >"$scratch/fifo" 2>"$scratch/err" </dev/null &
    pid=$!
    wait_for has_lines "$scratch/pids" 2
    wait_for is_full
    kill -USR1 $pid
    wait_for has_lines "$scratch/got" 2
    wait_for is_ended_by_term
    code=0
    wait $pid || code=$?
    [ $code -eq 143 ] || fail "status $code, not 143, of who is not read"
    wait_for all_gone
    kill $writer
    wait $writer || :
    exec 9>&-
    rm "$scratch/fifo"
}

every() # launcher of two ranks...
{
    closed_input "$@"
    reader_leaves "$@"
    reader_sleeps "$@"
    background "$@"
}
every "$run" -n 2
if [ -c /dev/full ]; then
    code=0
    "$run" -n 2 -l echo x >/dev/full 2>"$scratch/err" || code=$?
    [ $code -eq 1 ] || fail "status $code, not 1, without space for output"
    grep -qF "output is lost: No space left on device" "$scratch/err" || fail "the reason is not printed"
fi

hosts_up 2
# The agent restores SIGHUP, because the other host would not inherit what this shell ignores.
printf '#!/bin/sh\n%s\n' "exec perl -e '\$SIG{HUP} = \"DEFAULT\"; exec @ARGV' '$hosts_agent' \"\$@\"" >"$scratch/agent"
chmod +x "$scratch/agent"
every "$hosts_in" 0 "$run" --timeout "$patience" --hosts h0,h1 --agent "$scratch/agent"
reaches USR1 "$hosts_in" 0 sh -c 'exec "$0" "$@" <&-' "$run" --hosts h0:2,h1 --agent "$hosts_agent"

# Ranks on other hosts do not inherit that nohup ignores SIGHUP.
: >"$scratch/ready"
(
    trap '' HUP
    exec "$hosts_in" 0 "$run" --hosts h0,h1 --agent "$scratch/agent" sh -c 'trap "echo well; exit 0" USR1
        echo >>'"$scratch/ready"'; while :; do sleep 0.05; done' >"$scratch/out" 2>"$scratch/err" </dev/null
) &
pid=$!
wait_for has_lines "$scratch/ready" 2
kill -HUP $pid
kill -USR1 $pid
wait $pid || fail "status $? after an ignored SIGHUP"
[ "$(grep -cx well "$scratch/out")" -eq 2 ] || fail "a rank did not end well after SIGHUP"

# The last output waits until its reader reads, for example a pager.
: >"$scratch/pids"
{
    code=0
    "$hosts_in" 0 "$run" --hosts h0,h1 --agent "$hosts_agent" \
        sh -c 'echo $$ >>'"$scratch/pids"'; yes | head -c 600000' 2>"$scratch/err" </dev/null || code=$?
    echo $code >"$scratch/code"
} | {
    until [ -e "$scratch/go" ]; do sleep 0.05; done
    wc -c >"$scratch/out"
} &
pid=$!
wait_for has_lines "$scratch/pids" 2
wait_for all_gone
sleep 6 # longer than an earlier version waited
: >"$scratch/go"
wait $pid
[ "$(cat "$scratch/code")" -eq 0 ] || fail "status $(cat "$scratch/code") after a pause of the reader"
[ "$(cat "$scratch/out")" -eq 1200000 ] || fail "output that was not read at once"
echo "ok: twillrun, terminals and pipes"
