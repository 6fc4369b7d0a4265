#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pipeline_hosts.sh BIN [STEPS] measures an exchange of one tensor between a worker and a server, as one chunk and as
# several. Each is a host of this machine (tests/support/hosts.sh, for root only) behind a slow link. The model beside
# the figures says that the next chunk is pushed while one is pulled, so that C chunks take (1 + 1 / C) n / rate. It
# leaves out what TCP and the server take. RATE is that of the links (400mbit), whose queue loses nothing. BYTES is the
# size of the tensor (4194304). BIN is the folder of twillrun and server-exchange.
# shellcheck source-path=SCRIPTDIR/../../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../../tests" && pwd)
bin=$(cd "$1" && pwd) steps=${2:-20} rate=${RATE:-400mbit} bytes=${BYTES:-4194304}
. "$here/support/hosts_alone.sh"
hosts_up 2
# shellcheck disable=SC2154 # scratch: of rules.sh
hosts_shape "$rate" 16mb 64kb || skip "no tc tbf here"
echo $((bytes / 4)) >"$scratch/list"
echo "# a tensor of $bytes bytes, links of $rate"
printf '%-8s %12s %12s\n' chunks "p50 (ms)" "model (ms)"
for chunks in 1 2 4 16 64; do
    # shellcheck disable=SC2154 # hosts_agent: of hosts.sh
    TWILL_PROVIDER=tcp host_run 0 "$bin/twillrun" --hosts h0:1,h1:1 --agent "$hosts_agent" --bind none -x TWILL_PROVIDER "$bin/server-exchange" \
        --list "$scratch/list" --layout nc --steps "$steps" --credits 64 --chunk $((bytes / chunks)) --times >"$scratch/out" 2>&1 ||
        fail "$chunks chunks: $(tail -2 "$scratch/out")"
    grep -q ' 0 wrong$' "$scratch/out" || fail "$chunks chunks: wrong parameters"
    awk -v chunks=$chunks -v bytes="$bytes" -v rate="${rate%mbit}" '/^an exchange: p50/ {
        printf "%-8d %12.1f %12.1f\n", chunks, $4, (1 + 1 / chunks) * bytes * 8 / rate / 1e3 }' "$scratch/out"
done
