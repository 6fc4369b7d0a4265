#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# training_comparison.sh BIN [ROUNDS [EPOCHS]] trains one network (examples/train.c on data of NT3's form, made by nt3) in several ways,
# which take turns in each round (9), and compares them as a comparison of trainings should: accuracy, time to accuracy, efficiency,
# overhead, power and cost, in one row each. Prints tab-separated cells: way, ranks, nodes, accuracy on held-out samples, seconds of
# training until TARGET (0.95) of them are classified right (median, lowest, highest), seconds of all EPOCHS (12, median and lowest), the
# efficiency T(1) / (n T(n)) of both, with T(1) of the row of one rank and this batch, the same of the processor time of all ranks,
# C(1) / C(n), which other programs disturb less, the percentage of the time that computing does not hide, watts of the machine while
# the program runs, and the cost until TARGET in millionths of PRICE, which is that of a node for
# an hour (1: millionths of a node hour). A cell that is not known is "-": without a row of one
# rank there is no efficiency, and without RAPL (SYSFS/class/powercap, /sys) no power. ONLY keeps ways with that in their name. The data
# have SAMPLES (800) of FEATURES (2000), and HIDDEN (128) is the width of the network.
set -eu
bin=$(cd "$1" && pwd) rounds=${2:-9} epochs=${3:-12} target=${TARGET:-0.95}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/ways" <<'LIST'
one rank|1|1|
two ranks|2|1|
two ranks, layers overlapped|2|1|--overlap
two ranks, each updates its shard|2|1|--fused
two ranks, gradients as f16|2|1|--compress f16
two ranks, gradients a step late|2|1|--late
two ranks as two nodes|2|2|
one rank, batches of 128|1|1|--batch 128 --rate 0.02
two ranks, batches of 128|2|1|--batch 128 --rate 0.02
LIST
grep -F "${ONLY:-}" "$work/ways" >"$work/kept"
"$bin/nt3" --make "$work/data.csv" --samples "${SAMPLES:-800}" --features "${FEATURES:-2000}"

# joules prints the energy counters of all packages, in microjoules, and the nanoseconds of a clock.
joules() { cat "${SYSFS:-/sys}"/class/powercap/intel-rapl:[0-9]*/energy_uj 2>/dev/null | awk '{ sum += $1; n++ } END { print n ? sum : "-" }' && date +%s%N; }

for _ in $(seq "$rounds"); do
    n=0
    while IFS='|' read -r name ranks nodes words; do
        n=$((n + 1))
        joules >"$work/energy"
        # shellcheck disable=SC2086 # words
        TWILL_LAYOUT=$([ "$nodes" = 1 ] || echo "nodes=${nodes}x$((ranks / nodes))") timeout 300 "$bin/twillrun" -n "$ranks" --oversubscribe "$bin/train" \
            --data "$work/data.csv" --hidden "${HIDDEN:-128}" --batch 32 --rate 0.005 --epochs "$epochs" --curve $words >"$work/out" </dev/null || {
            echo "training_comparison.sh: $name: failed" >&2
            exit 1
        }
        joules >>"$work/energy"
        # Accuracy, time to accuracy, time, what is exposed, watts. A counter that has wrapped counts as unknown.
        awk -v target="$target" '
            FILENAME ~ /energy$/ { e[FNR] = $1; next }
            / accuracy .* after / && !reached && $4 >= target { reached = 1; at = $6 }
            /^held-out accuracy/ { accuracy = $3 } /^train  / { time = $4 > 0 ? $4 : 1e-4 } /^ exposed/ { exposed = $3 } /^processor/ { used = $2 > 0 ? $2 : 1e-4 }
            END { w = e[1] == "-" || e[3] < e[1] ? "-" : (e[3] - e[1]) * 1e3 / (e[4] - e[2])
                print accuracy, reached ? at : "-", time, 100 * exposed / time, w, used }' "$work/energy" "$work/out" >>"$work/$n"
    done <"$work/kept"
done
# middle COLUMN FILE prints the median, the lowest and the highest of a column, or "- - -" if one is not known.
middle()
{
    sort -g -k"$1,$1" "$2" | awk -v c="$1" '$c == "-" { bad = 1 } { v[NR] = $c }
        END { if (bad) print "- - -"; else printf "%.4g %.4g %.4g\n", (v[int((NR + 1) / 2)] + v[int(NR / 2) + 1]) / 2, v[1], v[NR] }'
}
n=0 alone=
while IFS='|' read -r name ranks nodes words; do
    n=$((n + 1))
    batch=$(echo "$words" | sed -n 's/.*--batch \([0-9]*\).*/\1/p')
    time=$(middle 3 "$work/$n" | cut -d' ' -f1,2)" $(middle 6 "$work/$n" | cut -d' ' -f1)"
    [ "$ranks" != 1 ] || alone="$alone
${batch:-32}:$time"
    one=$(echo "$alone" | sed -n "s/^${batch:-32}://p")
    echo "$(middle 1 "$work/$n") $(middle 2 "$work/$n") $(middle 4 "$work/$n") $(middle 5 "$work/$n")" |
        awk -v OFS='\t' -v name="$name" -v ranks="$ranks" -v nodes="$nodes" -v time="$time" -v one="$one" -v price="${PRICE:-1}" '
            { split(time, t, " "); known = split(one, T, " ") == 3
                print name, ranks, nodes, $1, $4, $5, $6, t[1], t[2], known ? sprintf("%.3g", T[1] / (ranks * t[1])) : "-",
                    known ? sprintf("%.3g", T[2] / (ranks * t[2])) : "-",
                    known ? sprintf("%.3g", T[3] / t[3]) : "-", $7, $10, $4 == "-" ? "-" : sprintf("%.4g", 1e6 * price * nodes * $4 / 3600) }'
done <"$work/kept"
