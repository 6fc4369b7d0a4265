#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill-bench train: every column follows from the times of its row and of one rank; no efficiency without T(1); rank numbers
# beyond the job are marked as predicted; bytes at the root; JSON, plot, energy, and command lines that must be rejected.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # awk's dollars
. "$(dirname "$0")/../support/check.sh"
bench=$bin/twill-bench
lists=${source:?}/bench/gradients

# check_csv ROWS: the columns of $scratch/out agree with each other.
check_csv()
{
    awk -F, -v rows="$1" '
        function bad(why) { print "row: " $0 ": " why; failures++ }
        function near(a, b) { return (a - b) ^ 2 <= (0.006 * b) ^ 2 + 0.03 ^ 2 }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { n++; key = $at["scaling"] $at["pattern"] ($at["scaling"] == "weak" ? $at["batch"] : "") $at["compute_ms"] * 0
          ranks = $at["ranks"]; step = $at["step_ms"]; strong = $at["scaling"] == "strong" }
        ranks == 1 { one[key] = step; model[key] = $at["model_ms"] }
        { if ($at["basis"] == "predicted") one[key] = model[key] # T(1) is predicted, too
           if (!near($at["speed-up"], one[key] / step * (strong ? 1 : ranks))) bad("speed-up")
          if (!near($at["efficiency"] * ranks, $at["speed-up"])) bad("efficiency")
          if (!near($at["overhead_ms"], step - one[key] / (strong ? ranks : 1))) bad("overhead")
          if ($at["samples/s"] < 0.98 * $at["batch"] * ranks / step * 1000 || $at["samples/s"] > 1.02 * $at["batch"] * ranks / step * 1000) bad("samples/s")
          if (step < $at["compute_ms"]) bad("step shorter than its computing")
          if (($at["share_%"] - 100 * $at["exposed_ms"] / step) ^ 2 > 0.15 ^ 2) bad("share")
          if ("syncs" in at && $at["syncs"] != int(9600 / ($at["batch"] * ranks) + 0.999)) bad("syncs")
          if ($at["basis"] != (ranks > 4 ? "predicted" : "measured")) bad("basis") }
        END { if (n != rows) print n + 0, "rows, not", rows; exit n != rows || failures > 0 }
    ' "$scratch/out" || fail "the columns"
}

TWILL_LAYOUT=nodes=4x1 ranks 4 "$bench" train --list "$lists/orlob.txt" --ranks 1,2,4,48 --batch 96 --scaling both --pattern both \
    --compute-us 2000 --samples 9600 -n 3 -w 1 --csv || fail "both scalings and patterns"
check_csv 16
# The root sends all parameters to each rank and receives all gradients; a rank of an allreduce its share, rounded up.
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } $at["basis"] == "predicted" { next }
    { n++; bytes = $at["root_bytes"]; formula = $at["by_formula"] }
    $at["pattern"] == "bcast+reduce" && bytes != 2 * 613764 * ($at["ranks"] - 1) { print; exit 1 }
    $at["pattern"] == "allreduce" && (bytes < formula || bytes > formula + 64 * $at["ranks"] || formula != int(2 * 613764 * ($at["ranks"] - 1) / $at["ranks"])) { print; exit 1 }
    $at["nodes"] != $at["ranks"] { print; exit 1 }
    END { exit n != 12 }' "$scratch/out" || fail "bytes at the root"

# Two minibatches by the speed of a device: computing is proportional. Without T(1) nothing is compared.
ranks 2 "$bench" train --list "$lists/alexnet.txt" --ranks 2,8 --per-node 2 --batch 8,16 --device-gflops 4000 -n 1 -w 0 || fail "two batches"
awk '/^#/ { next } { n++; batch = $5; if ($7 != (batch == 8 ? "8.570" : "17.141") || $10 != "n/a" || $11 != "n/a" || $12 != "n/a") { print; exit 1 } }
    END { exit n != 4 }' "$scratch/out" || fail "two batches without T(1)"
grep -q '^# no speed-up, efficiency and overhead without T(1): --ranks lacks 1$' "$scratch/out" || fail "no word of T(1)"

# Energy of a made /sys, JSON, and a plot.
mkdir -p "$scratch/sys/class/hwmon/hwmon0"
echo power_meter >"$scratch/sys/class/hwmon/hwmon0/name"
echo 120000000 >"$scratch/sys/class/hwmon/hwmon0/power1_average"
plot=
! command -v gnuplot >/dev/null || plot="--plot $scratch/plot.svg"
# shellcheck disable=SC2086 # two words or none
ranks 2 "$bench" train --list "$lists/orlob.txt" --compute-us 1000 -n 2 -w 0 --energy --sysfs "$scratch/sys" -J "$scratch/out.json" $plot ||
    fail "--energy, -J and --plot"
# Four columns each for the step, its computing and its communication: a node has 120 W in all of them, and two
# steps of computing are 2 ms.
awk '/^#/ { next } { n++; watts = $3 == 2 ? "60.00" : "120.00"
    for (last = NF - 8; last <= NF; last += 4)
        if ($(last - 2) != "120.00" || $last != watts || $(last - 3) <= 0) { print; exit 1 }
    if ($(NF - 7) < 0.239 || $(NF - 11) < 0.239 || $(NF - 3) == $(NF - 7)) { print; exit 1 } }
    END { exit n != 2 }' "$scratch/out" || fail "energy of a node and a rank in each phase"
python3 - "$scratch/out.json" <<'END' || fail "the JSON"
import json, sys
study = json.load(open(sys.argv[1]))
one, two = study["rows"]
assert study["device_gflops"] is None and study["iterations"] == 2 and any(line.startswith("transport: ") for line in study["description"])
assert study["parameters"] == 153441 and one["ranks"] == 1 and two["ranks"] == 2
assert abs(two["speedup"] - 2 * one["step"] / two["step"]) < 1e-9 and two["alone"] == one["step"]
assert abs(two["efficiency"] - two["speedup"] / 2) < 1e-9 and two["basis"] == "measured"
assert abs(two["overhead"] - (two["step"] - one["step"])) < 1e-12 and two["joules"] > 0
for phase in two, two["computing_energy"], two["communication_energy"]:
    assert abs(phase["watts"] - 120) < 1e-6 and abs(phase["watts_of_rank"] - 60) < 1e-6 and abs(phase["joules"] - 2 * phase["joules_of_rank"]) < 1e-9
assert two["computing_energy"]["joules"] > 0.239
END
[ -z "$plot" ] || grep -q '<svg' "$scratch/plot.svg" || fail "the plot"

# A file that exists is left as it is, and nothing is measured.
cp "$scratch/out.json" "$scratch/before.json"
expect 1 "$scratch/out.json: File exists" "$bin/twillrun" -n 2 "$bench" train --list "$lists/orlob.txt" --compute-us 1 -J "$scratch/out.json"
! grep -q measured "$scratch/out" || fail "measured, but not to be written"
cmp -s "$scratch/out.json" "$scratch/before.json" || fail "-J has changed a file"

while IFS='|' read -r text arguments; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "$text" "$bench" train $arguments
done <<END
--list is missing|--ranks 1
--ranks: '1,x' is not a list|--ranks 1,x
--ranks: '0' is not a list|--ranks 0
--scaling: 'some' is not weak, strong or both|--scaling some
--pattern: 'star' is not allreduce, bcast+reduce or both|--pattern star
--iters: '0' is not a number above 0|-n 0
--batch: '0' is not|--batch 0
--sysfs needs --energy|--list x --sysfs /sys
one argument too many: 'allreduce'|--list x allreduce
unrecognized option '--size'|--size 8
nowhere|--list $scratch/nowhere
no multiple of the ranks of a node|--list $lists/orlob.txt --ranks 9 --per-node 2 --compute-us 1
more than the samples that strong scaling divides|--list $lists/orlob.txt --ranks 8 --batch 4 --scaling strong --compute-us 1
END
expect 0 "Usage: twill-bench train" "$bench" train --help
echo "ok: scaling, patterns, predictions, energy, JSON and plot"
