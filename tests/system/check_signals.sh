#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that link twill: a crash or a signal becomes twillrun's exit status, and leaves no files behind, whatever
# libraries libfabric has loaded.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

# Endless allreduces on 2 ranks in the background, past set-up; sets launcher.
start()
{
    mkdir -p "$scratch/cwd"
    : >"$scratch/out" # or the last job's table is taken for this one's
    (cd "$scratch/cwd" && heeding "$bin/twillrun" -n 2 --grace "$patience" "$bin/twill-bench" allreduce \
        -b 8 -e 8 -n 100 -N 0 -w 0 -c 0) >"$scratch/out" 2>"$scratch/err" &
    launcher=$!
    wait_for_row $launcher
}

# The process of rank 1.
rank_1()
{
    for rank_pid in $(pgrep -P "$launcher"); do
        ! tr '\0' '\n' <"/proc/$rank_pid/environ" | grep -qx RANK=1 || echo "$rank_pid"
    done
}

ended_with()
{
    got=0
    wait "$launcher" || got=$?
    [ "$got" -eq "$1" ] || fail "status $got, not $1: $2"
    [ -z "$(ls "$scratch/cwd")" ] || fail "files left behind: $(ls "$scratch/cwd")"
}

if [ -z "${TEST_SANITIZE:-}" ]; then # with a sanitizer, a crash is an ordinary exit
    start
    kill -SEGV "$(rank_1)"
    ended_with 139 "a rank crashed"
    grep -q "rank 1 .*signal 11" "$scratch/err" || fail "the crashed rank is not named"
fi

start
kill -KILL "$(rank_1)"
ended_with 137 "a rank was killed"
grep -q "rank 1 has died" "$scratch/err" || fail "the other rank did not notice"

for pair in TERM:143 HUP:129; do # the shell keeps INT from its background
    start
    kill -"${pair%:*}" "$launcher"
    ended_with "${pair#*:}" "the job got SIG${pair%:*}"
done

