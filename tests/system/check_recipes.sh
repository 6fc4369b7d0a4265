#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The recipes (examples/recipes): what each states. Then all studies of examples/studies.sh, briefly.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # awk's dollars
. "$(dirname "$0")/../support/check.sh"
examples=${source:?}/examples
data=$examples/data/wdbc.csv

# Gradients are those of one rank with all samples, bit for bit; models after several steps are not.
for n in 1 3 4; do
    ranks $n "$bin/averages" || fail "averages, $n ranks"
    grep -q '^gradients averaged in each step  *0, bit for bit$' "$scratch/out" || fail "averages, $n ranks: gradients"
done
awk '/after each step/ { each = $NF } /local steps/ { local = $NF } END { exit !(each <= 1e-12 && local > 1e-5) }' "$scratch/out" || fail "averages: models"

# A pipeline, and two: equal to one rank.
for n in 2 4; do
    ranks $n "$bin/pipelines" || fail "pipelines, $n ranks"
    [ "$(grep -c 'equals bit for bit one rank' "$scratch/out")" -eq $n ] || fail "pipelines, $n ranks: models"
done
expect 1 "pipelines: not supported" "$bin/twillrun" -n 1 "$bin/pipelines"

# Epochs divided, and shards: 56 mini-batches an epoch; as many synchronisations, the lower loss with shards.
ranks 4 "$bin/sharding" --data "$data" --epochs 20 || fail "sharding"
awk '$1 == "epochs" && NF == 5 { whole = $5; n += $2 == 5 && $3 == 56 && $4 == 280 }
    $1 == "data" { shards = $5; n += $2 == 20 && $3 == 14 && $4 == 280 }
    END { exit !(n == 2 && shards < whole) }' "$scratch/out" || fail "sharding: synchronisations and losses"
grep -q '^with shards, each sample was trained on 20 to 20 times$' "$scratch/out" || fail "sharding: shards do not cover the samples"
grep -q '400 epochs on 25, 100, 400 ranks: 896, 224, 56 synchronisations$' "$scratch/out" || fail "sharding: NT3"
grep -q 'in an epoch on 1, 2, 4, 8 ranks: 56, 28, 14, 7$' "$scratch/out" || fail "sharding: synchronisations of an epoch"
ranks 3 "$bin/sharding" --data "$data" --epochs 60 --split epochs || fail "sharding --split epochs"
awk '$1 == "epochs" && NF == 5 { n += $2 == 20 && $3 == 56 && $4 == 1120 } $1 == "data" { n = 9 } END { exit n != 1 }' "$scratch/out" || fail "sharding --split epochs: synchronisations"
expect 1 "the ranks do not divide 20 epochs and 56 mini-batches" "$bin/twillrun" -n 3 "$bin/sharding" --data "$data" --epochs 20

# Loaded ahead or not: one model. The queue is full at first, and never more than that.
for options in '--depth 0' '--depth 3 --workers 2' '--depth 1'; do
    # shellcheck disable=SC2086 # words
    ranks 2 "$bin/loader" --data "$data" --batches 12 --load-ms 1 --compute-ms 1 $options || fail "loader $options"
    awk -v options="$options" '{ split(options, word) } /^load |^train |^ waiting |^ computing |^ exposed / { phases++ }
        /^depth/ { n += $2 + 0 == word[2] && $5 == 12 && $9 == word[2] } /^loss/ { print $2; n++ } END { exit !(phases == 5 && n == 2) }' "$scratch/out" >>"$scratch/losses" ||
        fail "loader $options: phases and depth"
done
[ "$(sort -u "$scratch/losses" | wc -l)" -eq 1 ] || fail "loader: losses differ"

# NT3's phases have a row each, the classes are told apart, and ranks share the samples.
"$bin/nt3" --make "$scratch/nt3.csv" --samples 200 --features 400 || fail "nt3 --make"
ranks 2 "$bin/nt3" --data "$scratch/nt3.csv" --batch 10 --epochs 24 || fail "nt3"
awk '/^made data: 160 \+ 40 samples of 400 features; 2 ranks/ { n++ } /^load |^preprocess |^train | validate |^predict / { phases++ }
    /^predicted/ { n += $2 >= 36 && $4 == 40 && $7 == 8 * 24 } END { exit !(n == 2 && phases == 5) }' "$scratch/out" || fail "nt3: phases and predictions"

# NT3's own network, on few features: 2 ranks train as one does with their samples.
"$bin/nt3" --make "$scratch/nt3.csv" --samples 20 --features 60 || fail "nt3 --make"
for n in 1 2; do
    ranks $n "$bin/nt3" --data "$scratch/nt3.csv" --whole --batch $((8 / n)) --epochs 2 || fail "nt3 --whole, $n ranks"
    awk '/ 5 layers, 247718 parameters$/ { n++ } /^predicted/ { n += $7 == 4 && $10 >= 4 * 247718 && $10 < 4 * 247718 + 640 } / epoch / { print $4 > FILENAME "." ranks }
        END { exit n != 2 }' ranks=$n "$scratch/out" || fail "nt3 --whole, $n ranks"
done
paste "$scratch/out.1" "$scratch/out.2" | awk '{ n += ($1 - $2) ^ 2 < 1e-10; fell = last - $1; last = $1 } END { exit n != 2 || NR != 2 || fell <= 0 }' || fail "nt3 --whole: ranks differ"

# The larger the mini-batch, the fewer synchronisations.
BATCHES='32 64 128' RATES=0.2 SCALES=linear sh "$examples/recipes/sweep.sh" "$bin" 1 4 >"$scratch/out" 2>"$scratch/err" || fail "sweep.sh"
awk 'NR > 1 { n += NF == 9 && $8 > 0.6 && $9 > 0 && $4 == 4 * int((455 + $1 - 1) / $1) } END { exit n != 3 }' "$scratch/out" || fail "sweep.sh: the table"

# Trainings compared in six columns: no efficiency without one rank, and no power without counters.
compared()
{
    SAMPLES=100 FEATURES=400 HIDDEN=16 TARGET=0.5 sh "$source/bench/studies/training_comparison.sh" "$bin" 1 2 >"$scratch/out" 2>"$scratch/err" || fail "training_comparison.sh"
}
mkdir -p "$scratch/sys/class/powercap/intel-rapl:0"
echo 1000 >"$scratch/sys/class/powercap/intel-rapl:0/energy_uj"
ONLY=batches SYSFS=$scratch/sys compared
awk -F '\t' '{ n += NF == 15 && $4 > 0.4 && $5 != "-" && $10 > 0 && $12 > 0 && $13 >= 0 && $14 == "0" && $15 != "-" } $2 == 1 { n += $10 == 1 } END { exit n != 3 }' "$scratch/out" ||
    fail "training_comparison.sh: $(cat "$scratch/out")"
ONLY='as two nodes' SYSFS=$scratch compared
awk -F '\t' '{ n += NF == 15 && $3 == 2 && $10 == "-" && $12 == "-" && $14 == "-" } END { exit n != 1 }' "$scratch/out" || fail "training_comparison.sh: $(cat "$scratch/out")"

for arguments in 'sharding' 'sharding --data x --epochs 0' 'loader' "loader --data $data --depth 65" 'nt3' 'nt3 --make x --data y'; do
    # shellcheck disable=SC2086 # a program and its words
    expect 2 "Usage: ${arguments%% *}" "$bin/"$arguments
done

# Studies have their tables, and say what is published and what is predicted. By hand they all run without --quick as well.
for study in $(sh "$examples/studies.sh" --list); do
    grep -q "^study_$study()" "$examples/studies.sh" || fail "studies.sh: no $study"
done
timeout 600 sh "$examples/studies.sh" --quick --bin "$bin" --out "$scratch/studies" hour dresden averages oversubscribed placement >"$scratch/out" 2>"$scratch/err" ||
    fail "studies.sh"
[ "$(grep -c '^== ' "$scratch/out") $(grep -c '^  published: ' "$scratch/out")" = "5 6" ] || fail "studies.sh: published figures"
[ "$(grep -cE '[0-9] predicted ' "$scratch/out")" -eq 5 ] || fail "studies.sh: predictions"
awk '/^== / { study = $2 } /^ .* 75 +measured / { n += $NF == 10000 / $3 }
    /^halving_doubling is chosen/ { small += study == "oversubscribed" } /^recursive_doubling is chosen/ { whole += study == "oversubscribed" } / network / { moved[$2]++ }
    END { exit !(n == 2 && small == 1 && whole == 2 && moved[8388608] == 2 && moved[12582912] == 2) }' "$scratch/out" || fail "studies.sh: tables"
# The report has a line for each study.
grep -q '^| `oversubscribed` | oversubscribed links .* | fattree, ' "$scratch/studies/report.md" || fail "studies.sh: report.md"
expect 2 "there is no study 'moon'" sh "$examples/studies.sh" --bin "$bin" --out "$scratch/studies" moon
echo "ok: recipes and studies"
