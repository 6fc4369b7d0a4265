#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A slice of the fault campaign: CAMPAIGN_TRIALS trials (500; fewer under a sanitizer) from CAMPAIGN_SEED (today's date).
# Afterwards no file is left in /dev/shm and no process. A failed trial is printed with its number: campaign --seed S --trial N.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
trials=500 seed=${CAMPAIGN_SEED:-$(date +%Y%m%d)}
jobs=8
[ -z "${TEST_SANITIZE:-}" ] || trials=40 jobs=4
ls -A /dev/shm >"$scratch/before"
cp "$build/tests/campaign" "$scratch/campaign-$$"
"$scratch/campaign-$$" --trials "${CAMPAIGN_TRIALS:-$trials}" --seed "$seed" --jobs "$jobs" >"$scratch/out" 2>&1 || {
    cat "$scratch/out"
    fail "a trial has failed (seed $seed)"
}
cat "$scratch/out"
ls -A /dev/shm >"$scratch/after"
# (twill-compare, which other tests run at the same time, has a folder there, and a fuzzer a file.)
grep -vxF -f "$scratch/before" "$scratch/after" | grep -v -e '^twill-compare\.' -e '^twill-fuzz-' | grep -i twill && fail "files are left in /dev/shm"
pgrep -f "campaign-$$" >"$scratch/left" && fail "processes are left"
exit 0
