#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-info --job: what the ranks of a job that hangs do, from outside: one that pauses, is stopped, is dead, or is in
# another call; its JSON, and the flight recorder's; and what it says where there is no job.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
info=$bin/twill-info
unset TWILL_LAYOUT
cp "$build/tests/hangs" "$scratch/hangs-$$"
job=

stop_job()
{
    [ -z "$job" ] || {
        while read -r _ _ stopped; do kill -KILL "$stopped" 2>/dev/null || :; done <"$scratch/pids"
        kill "$job" 2>/dev/null || :
        wait "$job" 2>/dev/null || :
    }
    job=
}
trap 'stop_job; rm -rf "$scratch"' EXIT

# start HOW RANKS: start the job; its ranks' lines go to $scratch/pids.
start()
{
    stop_job
    : >"$scratch/pids" # before has_lines may read that of the last job
    "$bin/twillrun" -n "$2" "$scratch/hangs-$$" "$1" >"$scratch/pids" 2>"$scratch/job.log" &
    job=$!
    wait_for has_lines "$scratch/pids" "$2"
}
pid_of() # rank
{
    awk -v rank="$1" '$2 == rank {print $3}' "$scratch/pids"
}
# shows TEXT: twill-info of the job prints this text.
shows()
{
    "$info" --job "$pid" --json >"$scratch/out" 2>"$scratch/err" && grep -qF -e "$1" "$scratch/out"
}

# --- no job -----------------------------------------------------------------------------------
expect 1 "no process has the PID 2147483647" "$info" --job 2147483647
expect 1 "no process is called there-is-none" "$info" --job there-is-none
expect 1 "and what it has started, has no communicator of twill" "$info" --job $$
cp "$(command -v sleep)" "$scratch/idle-$$"
"$scratch/idle-$$" 1000 &
job=$!
: >"$scratch/pids"
wait_for grep -q idle /proc/$job/comm
expect 1 "has no communicator of twill: what it has started is searched only by its PID" "$info" --job "idle-$$"
stop_job
expect 2 "--events, --json and --flight-recorder go with --job" "$info" --json
expect 2 "'x' is not a number" "$info" --job 1 --events x

# --- a rank that pauses outside twill ---------------------------------------------------------
# two_wait: both other ranks wait for rank 1; at first one of them may wait for the other.
two_wait()
{
    "$info" --job "$pid" >"$scratch/out" 2>"$scratch/err" &&
        [ "$(grep -cE "^ +[02] +[0-9]+ +[a-z]+ .* in allreduce #6 \(count 1000, f64 sum\) +8000 .* s +rank 1$" "$scratch/out")" -eq 2 ]
}
start pauses 3
pid=$(pid_of 0)
wait_for two_wait
expect 0 "rank 1 is 1 call behind on communicator 0: ranks 0, 2 have been in allreduce #6 (count 1000, f64 sum) for" \
    "$info" --job "$pid" --events 4
grep -q "hangs-$$: 3 of 3 ranks are on this host" "$scratch/out" || fail "the ranks"
grep -qE "^ +1 +$(pid_of 1) +sleeping +0 +left allreduce #5 \(count 2, f32 max\) +8 .* ago +-$" "$scratch/out" || fail "the one that does not"
grep -qE "^ +0 +0 +[0-9]+ .* wait_begin +peer 1$" "$scratch/out" || fail "the event of a wait"
grep -qE "^ +1 +0 +[0-9]+ .* call_end +allreduce #5  f32 max  8 bytes$" "$scratch/out" || fail "the event of a call"
# The same by another rank, by the launcher, and by name.
for name in "$(pid_of 1)" "$job" "hangs-$$"; do
    expect 0 "rank 1 is 1 call behind" "$info" --job "$name"
done

# The flight recorder's files.
"$info" --job "$pid" --flight-recorder "$scratch/trace_" || fail "--flight-recorder"
python3 - "$scratch/trace_" <<'END' || fail "the flight recorder's format"
import json, sys
for rank in range(3):
    dump = json.load(open(sys.argv[1] + str(rank)))
    assert dump["version"] and dump["pg_config"]["0"]["ranks"] == "[0, 1, 2]", dump["pg_config"]
    calls = dump["entries"]
    assert len(calls) == (5 if rank == 1 else 6), len(calls)
    assert [c["collective_seq_id"] for c in calls] == list(range(1, len(calls) + 1))
    assert all(c["profiling_name"] == "nccl:all_reduce" and c["process_group"][0] == "0" for c in calls)
    assert all(c["state"] == "completed" and c["input_sizes"] == [[2]] for c in calls[:5])
    assert all(c["time_created_ns"] <= c["time_discovered_completed_ns"] for c in calls[:5])
    assert rank == 1 or (calls[5]["state"], calls[5]["input_sizes"], calls[5]["input_dtypes"]) == ("started", [[1000]], ["Double"])
    assert dump["pg_status"]["0"]["last_completed_collective"] == 5
END

# Another user's process.
if [ "$(id -u)" -eq 0 ] && command -v setpriv >"$scratch/out" && id nobody >"$scratch/out" 2>&1 &&
    setpriv --reuid nobody --clear-groups "$info" -V >"$scratch/out" 2>&1; then
    expect 1 "belongs to user 0: ask as that user, or as root" \
        setpriv --reuid nobody --clear-groups "$info" --job "$pid"
    # Of two that match, one of its own comes first: the other one is named.
    cp "$(command -v sleep)" "$scratch/nap-$$"
    chmod 711 "$scratch"
    setpriv --reuid nobody --clear-groups "$scratch/nap-$$" 60 &
    own=$!
    "$scratch/nap-$$" 60 &
    other=$!
    expect 1 "process $other (nap-$$) belongs to user 0" \
        setpriv --reuid nobody --clear-groups "$info" --job "nap-$$"
    kill $own $other
else
    echo "left out: another user's process, because this is not root, or nobody may not read the build"
fi

# --- a rank that is stopped -------------------------------------------------------------------
start stops 3
pid=$(pid_of 2)
wait_for shows "is stopped; it had left allreduce #5"
wait_for shows '"waits_for":1'
grep -qF "rank 1 (process $(pid_of 1)) is stopped" "$scratch/out" || fail "not by its name"

# --- a rank that is dead, whose memory the others hold ----------------------------------------
start dies 3
pid=$(pid_of 0)
wait_for shows "rank 1 has died; it had left allreduce #5 (count 2, f32 max)"
"$info" --job "$pid" --json --events 4096 >"$scratch/out"
[ "$(grep -c '"kind":"call_end"' "$scratch/out")" -eq 15 ] || fail "the events of all ranks, the dead one's too"

# --- other calls ------------------------------------------------------------------------------
start differs 2
pid=$(pid_of 0)
wait_for shows "rank 1 has called reduce #6 (count 2, f32 sum, root 0) where rank 0 has called broadcast #6 (count 2, f32, root 0)"

# --- a rank that is alone on its node ---------------------------------------------------------
export TWILL_LAYOUT=nodes=2x1
start pauses 2
pid=$(pid_of 0)
wait_for shows '"waits_for":1'
expect 0 "hangs-$$: 2 of 2 ranks are on this host" "$info" --job "$pid" # whose memory no other rank holds
expect 0 "rank 1 is 1 call behind" "$info" --job "hangs-$$"
stop_job
echo "twill-info --job says what a job that hangs does"
