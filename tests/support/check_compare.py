# SPDX-License-Identifier: Apache-2.0
"""check_compare.py FILE [ROWS ROUNDS] checks the JSON of twill-compare: times, best contenders, ratios and the list of those
below 1 must follow from the turns. It prints lines "row COLLECTIVE BYTES TIMING BOUND BEST" and "time COLLECTIVE BYTES NAME
TURNS OVER"."""
import json
import sys


def fail(why, what):
    sys.exit(f"{why}: {json.dumps(what)[:400]}")


def near(a, b):
    return abs(a - b) <= 0.002 * abs(b)


def check_turns(cell, place, kind, rounds):
    for turn in cell["turns"]:
        for timing in ("fresh", "again"):
            least, median, most = turn[timing]
            if not 0 < least <= median <= most:
                fail("minimum, median, 99th percentile", turn)
    if rounds and not cell["over"] and len(cell["turns"]) < (min(2, rounds) if kind == "peer" else rounds):
        fail("turns", cell)
    for timing in ("fresh", "again"):
        several = sorted(turn[timing][1] for turn in cell["turns"] if turn["placement"] == place or kind == "trip")
        if bool(several) != bool(cell[timing]) or (several and not near(cell[timing], several[0])):
            fail(f"the time of {timing}", cell)


def check_row(row, kinds, below, rounds):
    cells = {cell["name"]: cell for cell in row["times"]}
    for name, cell in cells.items():
        check_turns(cell, row["placement"], kinds[name], rounds)
    for timing in ("fresh", "again"):
        for kind, best in (("peer", row["best"][timing]), ("bound", row["bound"][timing])):
            good = {name: cell[timing] for name, cell in cells.items()
                    if kinds[name] == kind and cell[timing] and cell["values_right"] and not (cell["off_wire"] or cell["over"])}  # fmt: skip
            if (best is None) != (not good) or (best and good[best] != min(good.values())):
                fail(f"the best {kind}, {timing}", row)
        for name, several in row["twill"].items():
            mine = cells[name][timing]
            for key, other in (("peer", row["best"][timing]), ("below", below[name])):
                x, theirs = several[timing][key], cells.get(other, {}).get(timing)
                if bool(x) != bool(theirs and mine) or (x and not (x["to"] == other and near(x["x"], theirs / mine))):
                    fail(f"{name}, {timing}, ratio to the {key}", row)
                if x and not x["low"] <= x["x"] * 1.001 or x and not x["x"] <= x["high"] * 1.001:
                    fail("spread", x)
            share, bound = several[timing]["share_of_bound"], row["bound"][timing]
            if mine and bound and not near(share, cells[bound][timing] / mine):
                fail("share of the bound", row)
        print("row", row["collective"], row["bytes"], timing, row["bound"][timing] or "-", row["best"][timing] or "-")
    for name, cell in cells.items():
        print("time", row["collective"], row["bytes"], name, len(cell["turns"]), cell["over"] or "-")


def main(path, rows=None, rounds=None):
    with open(path, encoding="utf-8") as file:
        whole = json.load(file)
    kinds = {one["name"]: one["kind"] for one in whole["contenders"]}
    below = {one["name"]: one["below"] for one in whole["contenders"]}
    for one in whole["contenders"]:
        print("contender", one["name"], one["kind"], "absent" if one["left_out"] else "there")
    for row in whole["results"]:
        check_row(row, kinds, below, int(rounds or 0))
    slow = [(row["collective"], row["bytes"], timing, name) for row in whole["results"] for name, several in row["twill"].items()
            for timing in several for x in [several[timing]["below" if below[name] else "peer"]]
            if x and x["high"] < 1 and not row["collective"].startswith("self_")]  # fmt: skip
    listed = [(one["collective"], one["bytes"], one["timing"], one["name"]) for one in whole["behind"]]
    if sorted(slow) != sorted(listed):
        fail("the list of what is slower", [slow, listed])
    if rows and len(whole["results"]) != int(rows):
        fail(f"not {rows} rows", len(whole["results"]))


main(*sys.argv[1:])
