#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# traffic_hosts.sh BIN [MODEL] measures the bytes of an exchange with a parameter server in each layout, with four ranks
# on four hosts of this machine (tests/support/hosts.sh, for root only). It prints the payload by the server's counters,
# which must be to the byte what lib/twill_server.h says, and what crosses the link of each host. The result is the
# difference of jobs of 12 and 2 exchanges, so that nothing but exchanges counts. BIN is the folder of twillrun. MODEL
# is a list in bench/gradients (orlob).
# shellcheck source-path=SCRIPTDIR/../../../tests source=support/hosts_alone.sh
here=$(cd "$(dirname "$0")/../../../tests" && pwd)
bin=$(cd "$1" && pwd) list=$here/../bench/gradients/${2:-orlob}.txt
. "$here/support/hosts_alone.sh"
hosts_up 4
bytes=$(awk '$1 + 0 > 0 { n += $1 } END { printf "%d", 4 * n }' "$list")
# links prints a line for each host with the bytes that it has sent and received.
links()
{
    for host in 0 1 2 3; do
        host_run $host cat /sys/class/net/eth0/statistics/tx_bytes /sys/class/net/eth0/statistics/rx_bytes | tr '\n' ' '
        echo
    done
}
# job STEPS LAYOUT... prints a line "rank sent received link-sent link-received metadata" for each rank.
job()
{
    links >"$scratch/before"
    steps=$1
    shift
    TWILL_PROVIDER=tcp host_run 0 "$bin/twillrun" --hosts h0:1,h1:1,h2:1,h3:1 --agent "$hosts_agent" --bind none -x TWILL_PROVIDER \
        "$bin/server-exchange" --list "$list" --steps "$steps" --chunk 32K --traffic --layout "$@" >"$scratch/out" 2>"$scratch/err" || {
        cat "$scratch/out" "$scratch/err" >&2
        fail "the layout $* failed"
    }
    grep -q ' 0 wrong$' "$scratch/out" || fail "wrong parameters"
    links >"$scratch/after"
    sed -n 's/^rank \([0-9]*\): sent \([0-9]*\) received \([0-9]*\) in messages \([0-9]*\) metadata \([0-9]*\) .* chunks \([0-9]*\) of .*/\1 \2 \3 \5/p' \
        "$scratch/out" | sort -n | paste -d' ' - "$scratch/before" "$scratch/after" | awk '{ print $1, $2, $3, $7 - $5, $8 - $6, $4 }'
}
echo "# n = $bytes bytes of parameters, four ranks; bytes of an exchange"
printf '%-8s %5s %12s %12s %14s %14s %9s %9s\n' layout rank sent received link-sent link-received metadata exact
status=0
for layout in cs cc nc "ncs --servers 2"; do
    # shellcheck disable=SC2086 # words
    job 2 $layout >"$scratch/two"
    # shellcheck disable=SC2086
    job 12 $layout >"$scratch/twelve"
    paste -d' ' "$scratch/two" "$scratch/twelve" | awk -v layout="${layout%% *}" -v n="$bytes" '
        { r = $1; s[r] = ($8 - $2) / 10; v[r] = ($9 - $3) / 10; out += s[r]; into += v[r]; ls[r] = ($10 - $4) / 10; lv[r] = ($11 - $5) / 10; m[r] = ($12 - $6) / 10 }
        END {
            # The layout gives the bytes of all ranks together, and those of a rank that only serves or works.
            W = layout == "nc" ? 3 : layout == "ncs" ? 2 : 4
            total = layout == "cs" || layout == "cc" ? 2 * n * 3 : 2 * n * W
            bad = out != total || into != total
            for (r = 0; r < 4; r++) {
                good = 1
                if (layout == "cc" || layout == "nc") good = r == 0 ? s[r] == n * 3 && v[r] == n * 3 : s[r] == n && v[r] == n
                if (layout == "ncs" && r > 1) good = s[r] == n && v[r] == n
                if (layout == "cs") good = s[r] > 1.3 * n && s[r] < 1.7 * n # 2 n (P - 1) / P up to a chunk
                bad += !good
                printf "%-8s %5d %12d %12d %14d %14d %9d %9s\n", layout, r, s[r], v[r], ls[r], lv[r], m[r], good ? "yes" : "NO"
            }
            printf "%-8s %5s %12d %12d %53s\n", layout, "all", out, into, out == total && into == total ? "yes" : "NO"
            exit bad > 0
        }' || status=1
done
exit $status
