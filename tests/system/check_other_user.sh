#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Another user of the node can neither read a job's memory, nor join it, nor stop it.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
[ "$(id -u)" -eq 0 ] || { echo "not root, who alone can become another user: skipped"; exit 77; }
command -v setpriv >/dev/null || { echo "no setpriv: skipped"; exit 77; }
attacker=nobody
unset TWILL_LAYOUT

# The attacker's own copies: it may have no access to the build tree.
chmod 711 "$scratch"
mkdir -m 755 "$scratch/own"
cp "$build/tests/other_user" "$bin/twill-info" "$build"/lib/libtwill.so.? "$scratch/own"
chmod -R a+rX "$scratch/own"
as_other()
{
    (cd / && HOME=/nonexistent LD_LIBRARY_PATH="$scratch/own" \
        setpriv --reuid "$attacker" --regid nogroup --clear-groups --no-new-privs "$@")
}
as_other true || { echo "setpriv cannot become $attacker: skipped"; exit 77; }

job=
helper=
# shellcheck disable=SC2317 # called by trap
stop_all()
{
    for stopped in $job $helper; do
        kill "$stopped" 2>/dev/null || :
        wait "$stopped" 2>/dev/null || :
    done
    rm -rf "$scratch"
}
trap stop_all EXIT

# --- while a job starts, somebody calls its unix sockets -----------------------------------------
as_other "$scratch/own/other_user" sockets "$scratch/own/stop" >"$scratch/sockets.log" 2>&1 &
helper=$!
TWILL_LAYOUT=nodes=2x2 "$bin/twillrun" -n 4 "$build/tests/other_user" job "$scratch/over" \
    >"$scratch/job.log" 2>"$scratch/job.err" &
job=$!
pids_of_job()
{
    sed -n 's/^pid //p' "$scratch/job.log"
}
four_pids()
{
    [ "$(pids_of_job | wc -l)" -eq 4 ]
}
wait_for -p $job four_pids
touch "$scratch/own/stop"
wait $helper || fail "the calls of unix sockets: status $?"
helper=
grep -q ' 0 open$' "$scratch/sockets.log" || fail "a unix socket gave a descriptor away"

# --- a job that runs ----------------------------------------------------------------------------
pids=$(pids_of_job | tr '\n' ' ')
ports=-
if command -v ss >/dev/null; then
    ports=$(for pid in $pids; do ss -Hltnp | sed -n "s/.*127\.0\.0\.1:\([0-9]*\) .*pid=$pid,.*/\1/p"; done | sort -u | paste -sd, -)
    [ -n "$ports" ] || fail "the ranks listen on no port"
    for pid in $pids; do
        ! ss -Hltnp | grep "pid=$pid," | grep -v ' 127\.0\.0\.1:[0-9]* .*:\*' || fail "a rank of one host listens for other hosts"
        ! ss -Hxlp | grep "pid=$pid," || fail "a unix socket of set-up is left"
    done
fi
# shellcheck disable=SC2086 # a list of words
as_other "$scratch/own/other_user" attack "$ports" $pids >"$scratch/attack.log" 2>&1 || fail "the attack: status $?"
grep -qE '^[0-9]{2,} tried, 0 open$' "$scratch/attack.log" || fail "something is open to another user"
for pid in $pids; do
    as_other "$scratch/own/twill-info" --job "$pid" >"$scratch/view.log" 2>&1 && fail "another user sees the job"
    ! grep -q allreduce "$scratch/view.log" || fail "another user sees the job's calls"
done

# --- it ends well -------------------------------------------------------------------------------
touch "$scratch/over"
wait $job || fail "the job ended with status $? after the attack"
job=
[ "$(grep -c '^done: 0 values are wrong$' "$scratch/job.log")" -eq 4 ] ||
    fail "wrong results"

# --- somebody with another key joins --------------------------------------------------------------
port=$(free_port)
key=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
join() # rank key command...
{
    join_rank=$1 join_key=$2
    shift 2
    RANK=$join_rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port TWILL_JOB=$join_key TWILL_TIMEOUT=60 "$@"
}
join 0 "$key" "$bin/twill-info" >"$scratch/zero.log" 2>&1 &
job=$!
other=$(printf %s "$key" | tr 0-9a-f 1-9a-f0)
if join 1 "$other" as_other "$scratch/own/twill-info" >"$scratch/joins.log" 2>&1; then
    fail "another user has joined"
fi
grep -qi "key" "$scratch/joins.log" || fail "the reason is not named"
join 1 "$key" "$bin/twill-info" >"$scratch/one.log" 2>&1 || fail "rank 1 cannot join: $?"
wait $job || fail "rank 0 after the attempt: status $?"
job=
echo "ok: $(tail -n 1 "$scratch/sockets.log"); $(tail -n 1 "$scratch/attack.log")"
