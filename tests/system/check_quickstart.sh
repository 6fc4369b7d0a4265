#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The first command of the README, in a copy of the tree like a clone: it must build, train and measure.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

copy=$scratch/twill
copy_tree "$copy"
# With the options of the build that is tested, whose objects ccache has: a whole build takes a minute and a half.
sed -i 's/-DTWILL_WERROR=OFF/-DTWILL_WERROR=ON/' "$copy/examples/quickstart.sh"
# shellcheck disable=SC2034 # read by expect
patience=1300 # it builds
expect 0 "== 7. Done" sh "$copy/examples/quickstart.sh"
accuracies=$(awk '$1 == "held-out" && $2 == "accuracy" { print $3 }' "$scratch/out")
[ "$(echo "$accuracies" | wc -l)" -eq 3 ] || fail "three trainings should say their accuracy: $accuracies"
for accuracy in $accuracies; do
    awk -v got="$accuracy" 'BEGIN { exit !(got > 0.93) }' || fail "accuracy $accuracy"
done
grep -q '^# Out of bounds values : 0 OK' "$scratch/out" || fail "the bench found wrong values, or did not run"
