#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# overlap_hosts.sh BIN MODEL [options of twill-bench...] runs training steps on two hosts of this machine
# (tests/support/hosts.sh, for root only) with a rank on each. Their link has 1 Gbit/s, so that the wire and not the
# core limits the reductions. It prints twill-bench's table of steps, with each part alone, one after the other, and
# overlapped. MODEL is a list in bench/gradients, or a file. RATE is that of the link. PROGRESS is the value of
# TWILL_PROGRESS. BIN is the folder of twillrun and twill-bench.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../tests" && pwd)
bin=$(cd "$1" && pwd) model=$2
shift 2
[ -f "$model" ] || model=$here/../bench/gradients/$model.txt
[ -f "$model" ] || { echo "overlap_hosts.sh: $model: no such list" >&2 && exit 2; }
. "$here/support/hosts_alone.sh"
hosts_up 2
hosts_shape "${RATE:-1gbit}" || skip "no tc tbf here"
echo "# two hosts, ${RATE:-1gbit}, TWILL_PROGRESS=${PROGRESS:-none}, $(basename "$model" .txt)"
status=0
TWILL_PROGRESS=${PROGRESS:-none} host_run 0 "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" -x TWILL_PROGRESS \
    "$bin/twill-bench" allreduce --list "$model" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
sed -n '/^# played/,$p' "$scratch/out"
cat "$scratch/err" >&2
exit $status
