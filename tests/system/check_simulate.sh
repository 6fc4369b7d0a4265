#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-simulate: its table, JSON and CSV have the same values; the curve and the histogram; what it refuses.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
simulate=$bin/twill-simulate
[ -x "$simulate" ] || skip "no twill-simulate"
command -v python3 >/dev/null || skip "no python3"
cd "$scratch" || exit 1

set -- -p 4,8 -u 4000 --rate 0.1 --dimensions 4 sync k-async:2 softsync:2
"$simulate" "$@" >table || fail "a table"
"$simulate" --csv "$@" >csv || fail "CSV"
"$simulate" --json "$@" >json || fail "JSON"
"$simulate" --json --curve "$@" >curve || fail "a curve"
"$simulate" --json --histogram "$@" >histogram || fail "a histogram"
python3 - <<'PY' || fail "the output" "$(cat table)"
import csv, json
table = [line.split() for line in open("table")]
rows = list(csv.DictReader(open("csv")))
array = json.load(open("json"))
assert len(table) == 7 and len(rows) == len(array) == 6
for text, row, one in zip(table[1:], rows, array):
    assert table[0] == list(row) == list(one)
    for name, cell in zip(table[0], text):
        if name == "mode":
            assert cell == row[name] == one[name]
        elif cell == "-":
            assert row[name] == "" and one[name] is None
        else:
            assert abs(float(cell) - one[name]) <= 1e-4 * abs(one[name]) and abs(float(row[name]) - one[name]) <= 1e-8 * abs(one[name])
assert [(r["mode"], r["workers"]) for r in array] == [(m, w) for w in (4, 8) for m in ("sync", "k-async:2", "softsync:2")]
assert all(abs(r["off_%"]) < 5 for r in array if r["exact_s"])
assert array[0]["stale"] == 0 and array[0]["loss"] < array[2]["loss"]
curve = [p for p in json.load(open("curve")) if p["mode"] == "sync" and p["workers"] == 8]
assert len(curve) == 101 and curve[0]["updates"] == curve[0]["time_s"] == 0 and curve[100]["updates"] == 4000
assert curve[0]["loss"] > 0.8 > curve[50]["loss"] and all(a["time_s"] < b["time_s"] for a, b in zip(curve, curve[1:]))
parts = {}
for p in json.load(open("histogram")):
    parts[p["mode"], p["workers"]] = parts.get((p["mode"], p["workers"]), 0) + p["part"]
assert len(parts) == 6 and all(abs(p - 1) < 1e-9 for p in parts.values())
PY
# Each option changes what it should.
value() # column option...
{
    value_of=$1
    shift
    "$simulate" -u 2000 --json "$@" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0][sys.argv[1]])' "$value_of"
}
above() # less more
{
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 < b + 0) }' || fail "$1 is not below $2"
}
above "$(value update_s sync)" "$(value update_s --slow 1:4 sync)"
above "$(value update_s sync)" "$(value update_s -l const:1 sync)"
above "$(value update_s -b 64M --endpoints 2 sync)" "$(value update_s -b 64M sync)"
above "$(value update_s -b 64M sync)" "$(value update_s -b 64M --server-link 64M sync)"
above "$(value push_s -b 64M --credits 1 sync)" "$(value push_s -b 64M sync)"
above "$(value update_s async)" "$(value update_s --service const:1 async)"
above 0 "$(value dropped_% --late k-sync:4)"
above 1 "$(value diverged_at --rate 1 --noise 0 -p 30 async)"
above 0 "$(value loss --rate 1 --rule staleness -p 30 async)"
above 0 "$(value loss --rate 1 --rule distance:0.01 --noise 0.1 --condition 1 -p 30 async)"
[ "$(value update_s -s 7 -r 2 --shards 3 async)" = "$(value update_s -s 7 -r 2 --shards 3 async)" ] || fail "a seed"
expect 2 "no MODE" "$simulate"
expect 2 "needs a parameter" "$simulate" k-sync
expect 2 "no such mode" "$simulate" asynchronous
expect 2 "laws are const:TIME" "$simulate" -c gauss:1 sync
expect 2 "not a valid value" "$simulate" -p 0 sync
expect 2 "no loss without --rate" "$simulate" --curve sync
expect 1 "must divide the workers" "$simulate" groups:3
