#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The training example: any number of ranks, flat or on virtual nodes, reaches an equal loss from one seed, ranks end
# bit-identical, and the classifier works. Then NT3's format, and bad files.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
train=$bin/train
data=$(dirname "$0")/../../examples/data/wdbc.csv
reference=''

# value WORDS: the first word after these at the start of a line of the output
value()
{
    sed -n "s/^$1  *\([^ ]*\).*/\1/p" "$scratch/out"
}

# same_loss LABEL: within 1e-5 of the first one, relative; so must the held-out loss
same_loss()
{
    loss="$(value "train loss") $(value "held-out loss")"
    [ -n "$reference" ] || reference=$loss
    echo "$loss $reference" | awk '
        function near(a, b) { return (a - b) * (a - b) <= 1e-10 * b * b }
        { exit !(NF == 4 && near($1, $3) && near($2, $4)) }' || fail "$1: losses $loss, not $reference"
}

check_run()
{
    label=$1
    shift
    ranks "$@" || fail "$label"
    same_loss "$label"
    grep -q "^parameters *bit-identical on $1 ranks*" "$scratch/out" || fail "$label: ranks differ"
    for phase in load preprocess train " computing" " exposed" evaluate; do
        [ -n "$(value "$phase")" ] || fail "$label: no phase $phase"
    done
    echo "$(value "held-out accuracy") $accuracy" | awk '{ exit !(NF == 2 && $1 > $2) }' ||
        fail "$label: accuracy $(value "held-out accuracy")"
}

# check_options RANKS OPTIONS: ranks agree, and the classifier works
check_options()
{
    count=$1
    shift
    ranks "$count" "$train" --data "$data" --epochs 20 "$@" || fail "$*"
    grep -q "^parameters *bit-identical on $count ranks" "$scratch/out" || fail "$*: ranks differ"
    value "held-out accuracy" | awk '{ exit !($1 > 0.93) }' || fail "$*: accuracy"
}

accuracy=0.93
for n in 1 2 3 4; do
    check_run "$n flat" $n "$train" --data "$data"
done
TWILL_LAYOUT=nodes=2x2 check_run "2x2" 4 "$train" --data "$data"
grep -q "training on 4 ranks, 2 nodes" "$scratch/out" || fail "2x2: nodes"
grep -q "^exchange  *800 steps of 1 bucket; of each, 2112 bytes of gradients, 2112 exchanged, [1-9][0-9]* sent" "$scratch/out" ||
    fail "2x2: what each mini-batch moves"
grep -q "^rank 0  *80[0-9] calls, .* waiting for the last rank" "$scratch/out" || fail "2x2: where the time went"
# The promise at the head of train.c.
lines=$(grep -cE 'twill_(gradients|optimizer|broadcast)[a-z_]*\(' "$(dirname "$0")/../../examples/train.c")
[ "$lines" -eq 21 ] || fail "train.c says that 21 lines communicate, and $lines do"

# What share of an epoch synchronising takes, and what is gained without it: 28 % are 1 / 0.72 = 1.39 times.
ranks 2 "$train" --data "$data" --epochs 3 --shares || fail "--shares"
awk '/^ *synchronising/ { share = $2 / 100; off = $8 * (1 - share) - 1; n += share > 0 && share <= 1 && off ^ 2 < (0.01 + 0.001 * $8) ^ 2 } END { exit n != 3 }' "$scratch/out" ||
    fail "--shares: $(cat "$scratch/out")"

# The accuracy after each epoch, the last of which is that of the report, and times that grow. Judging does not change the training.
ranks 2 "$train" --data "$data" --epochs 4 --curve || fail "--curve"
awk '/ accuracy .* after / { n++; if ($6 < last) exit 1; last = $6; accuracy = $4 } /^held-out accuracy/ { same = $3 == accuracy }
    /^processor / { used = $2 > 0 } END { exit !(n == 4 && same && used) }' "$scratch/out" || fail "--curve: $(cat "$scratch/out")"

# What the set is asked for changes the way of the sums, and no bit of them on two ranks.
ranks 2 "$train" --data "$data" --epochs 20 || fail "2 ranks"
plain=$(value parameters)$(sed -n 's/^parameters.*hash//p' "$scratch/out")
for options in --overlap --fused '--fused --overlap'; do
    # shellcheck disable=SC2086 # words
    check_options 2 $options
    [ "$(value parameters)$(sed -n 's/^parameters.*hash//p' "$scratch/out")" = "$plain" ] ||
        fail "$options: other parameters than without"
done
# The learning rate changes with the mini-batches, with an optimizer and without.
for options in '' --fused; do
    # shellcheck disable=SC2086 # words
    check_options 2 --batch 128 --rate 0.15 --scale-rate sqrt --warm-up 3 --rate-steps 12,18 $options
    [ -n "$options" ] || plain=$(value parameters)$(sed -n 's/^parameters.*hash//p' "$scratch/out")
    grep -q "batch 128, rate 0.106066$" "$scratch/out" || fail "--scale-rate sqrt"
done
[ "$(value parameters)$(sed -n 's/^parameters.*hash//p' "$scratch/out")" = "$plain" ] || fail "rates of an optimizer"
expect 2 "--scale-rate: 'cubic' is not linear or sqrt" "$train" --data "$data" --scale-rate cubic
expect 2 "--rate-steps: '3,x' is not a list" "$train" --data "$data" --rate-steps 3,x
# Late or compressed gradients train another model, which is as good; with late ones, too, an optimizer changes no bit.
plain=
for options in --late '--late --fused'; do
    # shellcheck disable=SC2086 # words
    check_options 2 $options
    hash=$(value parameters)$(sed -n 's/^parameters.*hash//p' "$scratch/out")
    [ -n "$hash" ] || fail "$options: no hash of the parameters"
    [ "${plain:=$hash}" = "$hash" ] || fail "$options: other parameters than with --late"
done
check_options 3 --late --compress int8
grep -q "of 2 buckets; of each, 2112 bytes of gradients, 648 exchanged" "$scratch/out" || fail "int8: bytes"
for name in f16 bf16 f8e4m3 f8e5m2 top_k; do
    check_options 2 --compress $name
done
expect 2 "--compress: 'zip' is not f16, bf16, " "$train" --data "$data" --compress zip
expect 1 'TWILL_GRADIENTS: there is no entry "bukket"' env TWILL_GRADIENTS=bukket=1M "$train" --data "$data"
expect 2 "--late with --overlap: " "$train" --data "$data" --late --overlap
# Large gradients are neither copied (but for a tail of some bytes, which comes with its header)
# nor registered anew between nodes.
TWILL_LAYOUT=nodes=2x1 ranks 2 "$train" --data "$data" --hidden 4096 --epochs 1 || fail "2x1"
grep -q "^copies  *0 bytes into .*, [0-9]\{1,3\}\.[0-9] a step in the library; [0-9]* registrations in .*, 0 after it" \
    "$scratch/out" || fail "2x1: counters"

# Another seed takes another path.
ranks 2 "$train" --data "$data" --seed 2 || fail "--seed 2"
[ "$(value "train loss")" != "${reference% *}" ] || fail "the seed changes nothing"

# NT3's format: label first, no header. samples, features, on a rule that a few features decide.
make_nt3()
{
    awk -v samples="$1" -v features="$2" 'BEGIN {
        state = 12345
        for (i = 0; i < samples; i++) {
            label = i % 2
            printf "%d", label
            for (j = 0; j < features; j++) {
                state = (state * 1103515245 + 12345) % 2147483648
                noise = state / 2147483648
                if (j % 16 == 0)
                    noise += 0.5 * label
                printf ",%.4f", noise
            }
            printf "\n"
        }
    }'
}
make_nt3 200 320 >"$scratch/nt3.csv"
reference='' accuracy=0.9
check_run "nt3, 1 rank" 1 "$train" --data "$scratch/nt3.csv" --epochs 20
grep -q "200 samples of 320 features" "$scratch/out" || fail "nt3: shape"
check_run "nt3, 3 ranks" 3 "$train" --data "$scratch/nt3.csv" --epochs 20 --format nt3
# NT3's width
make_nt3 30 60483 >"$scratch/wide.csv"
reference='' accuracy=-1
check_run "60483 features, 2 ranks" 2 "$train" --data "$scratch/wide.csv" --epochs 2 --hidden 4 --batch 8 --rate 0.001
TWILL_LAYOUT=nodes=2x1 check_run "60483 features, 2 nodes" 2 "$train" --data "$scratch/wide.csv" --epochs 2 --hidden 4 --batch 8 --rate 0.001

# Files that are wrong: status 1 on all ranks, file and line named.
bad()
{
    expect 1 "$1" "$bin/twillrun" -n 2 "$train" --data "$2" --epochs 1
}
broken=$scratch/broken.csv
sed '17s/,[^,]*/,oops/' "$data" >"$broken"
bad "$broken: line 17: field 2" "$broken"
sed '18s/,[^,]*//' "$data" >"$broken"
bad "$broken: line 18: " "$broken"
sed '19s/[^,]*$/7/' "$data" >"$broken"
bad "$broken: line 19: the label '7'" "$broken"
sed '20s/.*//' "$data" >"$broken"
bad "$broken: line 20: empty" "$broken"
sed '21s/$/,1/' "$data" >"$broken"
bad "$broken: line 21: " "$broken"
sed '3s/^./x/' "$scratch/nt3.csv" >"$broken"
bad "$broken: line 3: the label" "$broken"
: >"$broken"
bad "$broken: the file is empty" "$broken"
bad "/nonexistent: No such file" /nonexistent
bad "too few" /etc/hostname
# Windows line ends are fine.
sed 's/$/\r/' "$data" >"$broken"
expect 0 "bit-identical" "$bin/twillrun" -n 2 "$train" --data "$broken" --epochs 1
expect 2 "--epochs: '0'" "$train" --data "$data" --epochs 0
expect 2 "--data FILE" "$train"

# The small examples.
ranks 3 "$bin/hello" || fail "hello"
[ "$(grep -c "of 3 on node 0 of 1: the sum of 1..3 is 6" "$scratch/out")" -eq 3 ] || fail "hello: what it says"
for n in 1 2 4 8; do
    ranks $n "$bin/grid" || fail "grid on $n ranks"
    [ "$(grep -c 'equal to that of one rank' "$scratch/out")" -eq $n ] || fail "grid on $n ranks"
    ranks $n "$bin/halo" || fail "halo on $n ranks"
    [ "$(grep -c 'equal those of one rank' "$scratch/out")" -eq $n ] || fail "halo on $n ranks"
done
for program in grid halo; do
    TWILL_LAYOUT=nodes=2x2 ranks 4 "$bin/$program" || fail "$program on two nodes"
done
expect 0 "rank 1: 2 4 1" "$bin/callback"
grep -qF "rank 0: 2 4 1" "$scratch/out" || fail "callback: rank 0"
