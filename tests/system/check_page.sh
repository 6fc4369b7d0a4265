#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Read the page of twillrun --page and twill-info --page. tests/system/page/look_at_page.py looks at it in a browser.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
unset TWILL_LAYOUT
job='' host='' # host: where twillrun and the browser are, if there are several

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

# The dashboard has all families of metrics, and no others.
python3 - "$source/examples/grafana.json" "$source/lib/report/metrics.c" <<'END' || fail "examples/grafana.json"
import json, re, sys
board, code = (open(path).read() for path in sys.argv[1:])
assert len(json.loads(board)["panels"]) == 7
assert set(re.findall(r"twill_\w+_total", board)) == set(re.findall(r'"(twill_\w+_total)"', code))
END

if [ ! -x "$build/libexec/twill/twill-page" ]; then
    expect 1 "it needs a build with libmicrohttpd" "$bin/twillrun" -n 1 --page true
    expect 1 "it needs a build with libmicrohttpd" "$bin/twill-info" --page 1
    skip "the build has no libmicrohttpd"
fi

# Print the status and the text of an answer of the page at $address. Arguments are PATH [QUERY [HEADER=VALUE]].
get()
{
    ${host:+"$hosts_in" "$host"} python3 - "${address%%\?*}$1?${2-${address#*\?}}" "${3-}" "${method:-GET}" <<'END'
import sys, urllib.error, urllib.request
name, _, value = sys.argv[2].partition("=")
request = urllib.request.Request(sys.argv[1], headers={name: value} if name else {}, method=sys.argv[3])
try:
    answer = urllib.request.urlopen(request)
except urllib.error.HTTPError as refusal:
    answer = refusal
print(answer.status, answer.headers["Content-Security-Policy"], answer.read().decode())
END
}
# Require this status of the answer to the other arguments of get.
answers()
{
    answers_status=$1
    shift
    get "$@" >"$scratch/out" 2>"$scratch/err" || fail "no answer: $*"
    [ "$(head -c 3 "$scratch/out")" = "$answers_status" ] || fail "not $answers_status: $*"
}
# Return whether the state of the job has this text.
shows()
{
    get state >"$scratch/out" 2>"$scratch/err" && grep -qF -e "$1" "$scratch/out"
}
has_address()
{
    address=$(sed -n 's/.*: page: //p' "$1") && [ -n "$address" ]
}
# Start the job in the way $1 with other options of twillrun. The lines of its ranks are in $scratch/pids.
start()
{
    stop_job
    : >"$scratch/pids" # before has_lines may read that of the last job
    how=$1
    shift
    ${host:+"$hosts_in" "$host"} "$bin/twillrun" -n 3 --grace 600 "$@" "$build/tests/hangs" "$how" >"$scratch/pids" 2>"$scratch/job.log" &
    job=$!
    wait_for has_lines "$scratch/pids" 3
}

# --- who gets an answer -----------------------------------------------------------------------
start pauses --page
wait_for has_address "$scratch/job.log"
case $address in http://127.0.0.1:*/?token=????????????????????????????????) ;; *) fail "the address is $address" ;; esac
answers 200 ""
grep -q "script-src 'nonce-" "$scratch/out" || fail "no policy"
grep -q "<title>twill job</title>" "$scratch/out" || fail "not the page"
answers 403 "" ""
answers 403 "state" "token=00000000000000000000000000000000"
answers 403 "state" "${address#*\?}0"
answers 403 "state" "${address#*\?}" "Host=rebound.example"
answers 200 "state" "${address#*\?}" "Host=localhost:1"
answers 404 "other"
method=POST
answers 405 "state"
method=GET
expect 1 "cannot serve at" "$bin/twillrun" -n 1 --page="$(expr "$address" : 'http://127.0.0.1:\([0-9]*\)')" true
expect 1 "not [ADDRESS:]PORT[,open]" "$bin/twillrun" -n 1 --page=here true
expect 2 "'' is not a PID or a name" "$bin/twill-info" --page ""
expect 2 "'' is not [ADDRESS:]PORT[,open]" "$bin/twill-info" --page 1 --serve ""

# --- a rank that is late, and its last calls --------------------------------------------------
wait_for shows '"late":[{"rank":1,"comm":0,'
wait_for shows '"waits_for":1'
answers 200 state "${address#*\?}&rank=1"
grep -qF '"kind":"call_end","sequence":5' "$scratch/out" || fail "the last call of rank 1"
! grep -qF '"rank":0' "$scratch/out" || fail "calls of another rank"

# --- the same of a job that something else started --------------------------------------------
"$bin/twill-info" --page "$(awk '$2 == 0 {print $3}' "$scratch/pids")" --serve 0,open 2>"$scratch/info.log" &
served=$!
wait_for -p $served has_address "$scratch/info.log"
wait_for shows '"late":[{"rank":1,'
kill $served
stop_job

# --- a rank that is dead, and twillrun's message about it -------------------------------------
start dies --page
wait_for has_address "$scratch/job.log"
wait_for shows '"rank":1,"pid":0,"state":"dead"'
wait_for shows 'was killed by signal 9 (Killed); ending the others'
page=$(pgrep -P "$job" -x twill-page) || fail "twillrun has no twill-page"
stop_job
wait_for is_gone "$page"

# --- ranks on two hosts -----------------------------------------------------------------------
hosts_up 2
host=0
start pauses --page --hosts h0:2,h1 --agent "$hosts_agent"
wait_for has_address "$scratch/job.log"
wait_for shows '"late":[{"rank":1,'
wait_for shows '"host":"h1"'
grep -qE '"rank":2,.*"host":"h1"' "$scratch/out" || fail "rank 2 is not on h1"
grep -qE '\{"rank":2,"comm":0,"shared":[1-9]' "$scratch/out" || fail "no memory of rank 2"
# The connection between ranks of both hosts is seen from both ends.
two_ends()
{
    shows '"links":[{"rank":' && python3 - "$scratch/out" <<'END'
import json, sys
text = open(sys.argv[1]).read()
hosts = json.loads(text[text.index("{\""):])["hosts"]
ends = [{(link["local"], link["remote"]) for link in host["links"]} for host in hosts]
sys.exit(not any((remote, local) in ends[1] for local, remote in ends[0]))
END
}
wait_for two_ends
wait_for shows '"waits_for":1'
has_calls()
{
    get state "${address#*\?}&rank=2" >"$scratch/out" && grep -qF '"kind":"call_end","sequence":5' "$scratch/out"
}
wait_for has_calls
echo "twillrun --page shows a job and answers nobody else"
