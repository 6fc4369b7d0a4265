#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# TWILL_TIMELINE and twill-trace: valid JSON with all phases also after SIGKILL; a late rank is the
# critical one; merging.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
trace=$bin/twill-trace
[ -x "$trace" ] || skip "no twill-trace"
command -v python3 >/dev/null || skip "no python3"
unset TWILL_LAYOUT TWILL_REPORT
cd "$scratch" || exit 1

# events FILE PYTHON: the file is an array of events, of which the expression, over `e`, is true.
events()
{
    python3 - "$1" "$2" <<'END' || fail "$1: not so: $2"
import json, sys
e = json.load(open(sys.argv[1]))
def spans(name): return [x for x in e if x["ph"] == "X" and x["name"] == name]
def apart(track): # spans of one track overlap nowhere: each begins after the one before
    return all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in zip(track, track[1:]))
def tracks():
    t = {}
    for x in e:
        if x["ph"] == "X": t.setdefault((x["pid"], x["tid"]), []).append(x)
    return [sorted(v, key=lambda x: x["ts"]) for v in t.values()]
sys.exit(0 if eval(sys.argv[2]) else 1)
END
}

TWILL_LAYOUT=2x2 TWILL_PROVIDER=tcp TWILL_INTERFACE=lo TWILL_TIMELINE=net.json \
    "$bin/twillrun" -n 4 "$bin/twill-bench" allreduce -b 1M -e 1M -n 3 >out 2>&1 || fail "4 ranks" "$(cat out)"
for rank in 0 1 2 3; do
    events net.$rank.json "all(x['pid'] == $rank for x in e)"
    events net.$rank.json "all(spans(n) for n in ('allreduce', 'send', 'receive', 'segment', 'wait for peer'))"
    events net.$rank.json "all(x['dur'] >= 0 for x in e if x['ph'] == 'X') and all(apart(t) for t in tracks())"
    events net.$rank.json "[x for x in e if x['ph'] == 'C'][-1]['args'] == {'send': 0, 'receive': 0}"
done
"$trace" -o all.json net.?.json >out || fail "merging"
grep -q "^4 ranks, .* clocks agree within 0.0 us" out || fail "clocks of one host" "$(cat out)"
events all.json "{x['pid'] for x in e} == {0, 1, 2, 3} and len(spans('allreduce')) % 4 == 0"
"$trace" -o all.json net.?.json >out || fail "merging again"
expect 1 "net.1.json: File exists" "$trace" -o net.1.json net.0.json
TWILL_LAYOUT=2x1 TWILL_PROVIDER=tcp TWILL_INTERFACE=lo TWILL_TIMELINE=net.json \
    "$bin/twillrun" -n 2 "$bin/twill-bench" barrier -n 3 >out 2>&1 || fail "2 ranks" "$(cat out)"
expect 1 "net.2.json is of another job than net.0.json (an earlier one of 4 ranks?)" "$trace" -o less.json net.?.json
[ ! -e less.json ] || fail "a merge that failed left a file"
[ ! -e less.json.part ] || fail "a merge that failed left a part"
expect 2 "no FILE" "$trace"
expect 2 "is not a number" "$trace" -n x net.0.json
expect 1 "not a timeline" "$trace" "$trace"
echo '[{"cat": null, "name": null, "ph": null, "pid": 1e300, "args": null}, null]' >null.json
"$trace" null.json >out || fail "events of null" "$(cat out)"

# Rank 1 sleeps before each call.
cat >late.c <<'END'
#include <stdlib.h>
#include <unistd.h>
#include "twill.h"
int main(int argc, char **argv)
{
    twill_comm *comm;
    float x = 1;
    if (twill_init(&comm) != TWILL_OK)
        return 1;
    for (int i = 0; i < 3; i++) {
        if (twill_comm_rank(comm) == 1)
            usleep(100000);
        if (twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM) != TWILL_OK)
            return 1;
    }
    usleep(600000); /* what was written at the next call is more than half a second old */
    for (int i = 0; i < 100; i++)
        twill_allreduce(comm, &x, &x, 1, TWILL_F32, TWILL_SUM);
    if (twill_comm_rank(comm) == 0)
        printf("times: %s\n", twill_comm_times(comm, 0));
    if (argc > 1)
        kill(getpid(), 9);
    twill_finalize(comm);
    return 0;
}
END
sed -i '1i #include <signal.h>\n#include <stdio.h>' late.c
cc -o late late.c -I"${source:?}/lib" -L"$bin/../lib" -Wl,-rpath,"$bin/../lib" -ltwill || fail "compiling"
TWILL_REPORT=100 "$bin/twillrun" -n 2 ./late >out 2>&1 || fail "two ranks" "$(cat out)"
grep -q "^twill.*: 100 calls, " out || fail "a report of other than 100 calls" "$(cat out)"
grep -q "^times: 103 calls, " out || fail "a report resets twill_comm_times()" "$(cat out)"
TWILL_TIMELINE=late.json TWILL_REPORT=100 "$bin/twillrun" -n 3 ./late >out 2>&1 || fail "a late rank" "$(cat out)"
grep -q "% waiting for the last rank.*; rank 1 was last in" out || fail "TWILL_REPORT" "$(cat out)"
"$trace" --json late.?.json >late.out || fail "a summary"
python3 - <<'END' || fail "the late rank" "$(cat late.out)"
import json
s = json.load(open("late.out"))
assert s["critical_rank"] == 1 and s["waits"][0]["last_rank"] == 1 and s["waits"][0]["call"] == "allreduce"
assert s["waits"][0]["seconds"] > 0.1 and s["ranks"][0]["waiting_seconds"] > 0.15 > s["ranks"][1]["waiting_seconds"]
END
events late.0.json "len(spans('allreduce')) == 103 and len(spans('segment')) >= 103"
events late.0.json "not [x for x in e if x['ph'] == 'i']"
TWILL_TIMELINE=killed.%r.json "$bin/twillrun" -n 2 ./late killed >/dev/null 2>&1 || true
events killed.0.json "len(spans('allreduce')) > 3"
"$trace" killed.?.json | grep -q "clocks unknown" || fail "a timeline without an end"
head -c 700 late.0.json >cut.json
"$trace" cut.json >/dev/null || fail "a timeline that was cut"

# A link that another user may have made in a shared folder.
echo kept >victim
ln -s victim link.0.json
TWILL_TIMELINE=link.json "$bin/twillrun" -n 1 "$bin/twill-bench" allreduce -b 8 -e 8 -n 1 >out 2>&1 || fail "a timeline that is a link" "$(cat out)"
[ "$(cat victim)" = kept ] || fail "a link was followed"
grep -q "link.0.json: Too many levels of symbolic links" out || fail "a link without a warning" "$(cat out)"

# The phases of a gradient set, with the names of its tensors.
cat >set.c <<'END'
#include "twill_train.h"
int main(void)
{
    static float gradient[3][1000];
    static const char *const names[] = {"conv", "a \"quoted\" one", "dense"};
    twill_comm *comm;
    twill_gradients *set;
    if (twill_init(&comm) != TWILL_OK || twill_gradients_create(&set, comm, NULL) != TWILL_OK)
        return 1;
    for (int i = 0; i < 3; i++) {
        twill_tensor tensor = {.name = names[i], .count = 1000, .type = TWILL_F32, .gradient = gradient[i]};
        if (twill_gradients_add(set, &tensor, NULL) != TWILL_OK)
            return 1;
    }
    if (twill_gradients_commit(set) != TWILL_OK)
        return 1;
    for (int step = 0; step < 4; step++) {
        for (int i = 3; i-- > 0;)
            twill_gradients_ready(set, i);
        if (twill_gradients_wait_all(set) != TWILL_OK)
            return 1;
    }
    twill_gradients_destroy(set);
    twill_finalize(comm);
    return 0;
}
END
cc -o set set.c -I"${source:?}/lib" -L"$bin/../lib" -Wl,-rpath,"$bin/../lib" -ltwill || fail "compiling"
TWILL_TIMELINE=set.json "$bin/twillrun" -n 2 ./set >out 2>&1 || fail "a gradient set" "$(cat out)"
events set.1.json "all(sum(x['name'] == 'ready ' + n for x in e) == 4 for n in ('conv', 'a _quoted_ one', 'dense'))"
events set.1.json "spans('fuse in') and spans('fuse out')"
events set.1.json "spans('bucket') and any(x['name'] == 'step' for x in e)"

# twill-bench --times: the three parts are the time.
"$bin/twillrun" -n 2 --bind none "$bin/twill-bench" allreduce -b 64K -e 256K -f 2 --times --csv >out 2>&1 || fail "--times" "$(cat out)"
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { n++; off = $at["time_us"] - $at["wait_us"] - $at["wire_us"] - $at["stack_us"] }
    off * off > 1e-6 * $at["time_us"] ^ 2 { exit 1 }
    END { if (n != 3 || !("wire_us" in at)) exit 1 }' out || fail "the parts of --times" "$(cat out)"
