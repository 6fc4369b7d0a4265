#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Ranks that link twill: a crash or a signal of theirs is twillrun's exit status, and leaves no files behind,
# whatever libraries libfabric has loaded.
# shellcheck source-path=SCRIPTDIR source=support/check.sh
. "$(dirname "$0")/support/check.sh"

# A long allreduce loop on 2 ranks in the background; sets launcher.
start()
{
    mkdir -p "$scratch/cwd"
    (cd "$scratch/cwd" && exec "$bin/twillrun" -n 2 --grace 10 "$bin/twill-bench" allreduce \
        -b 8 -e 8 -n 100000000 -w 0) >"$scratch/out" 2>"$scratch/err" &
    launcher=$!
    tries=0
    while [ "$(pgrep -P "$launcher" -x twill-bench | wc -l)" -lt 2 ]; do
        tries=$((tries + 1))
        [ "$tries" -lt 200 ] || fail "no ranks after 20 s"
        sleep 0.1
    done
    sleep 1 # past set-up, into the loop of half a minute or more
}

# The process of rank 1: the second child of the launcher.
rank_1()
{
    pgrep -P "$launcher" | sed -n 2p
}

ended_with()
{
    got=0
    wait "$launcher" || got=$?
    [ "$got" -eq "$1" ] || fail "status $got, not $1: $2"
    [ -z "$(ls "$scratch/cwd")" ] || fail "files left behind: $(ls "$scratch/cwd")"
}

if [ -z "${TEST_SANITIZE:-}" ]; then # a sanitizer makes a crash an exit of its own
    start
    kill -SEGV "$(rank_1)"
    ended_with 139 "a rank crashed"
    grep -q "rank 1 .*signal 11" "$scratch/err" || fail "not told who crashed"
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

