#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# many_ranks.sh BIN RANKS NODES [TIMEOUT]: RANKS processes on NODES virtual nodes of this machine start and sum. Then one of them is
# killed, and in a second job one makes no call, so that all others time out together (TWILL_TIMEOUT: 60 s). Prints one row: ranks,
# nodes, seconds until all have summed, the longest twill_init(), KiB that rank 0 has sent for the exchanges of set-up, KiB a rank
# (PSS, and malloc's of the last rank), seconds after the death until half of the others and all of them have returned an error, how
# many of them name the dead rank; and the same of the rank that makes no call. Then what was counted, if a network namespace can be
# had: connections and KiB of all ranks, with headers, of the set-up, after the death, and of the rank that makes no call until the end.
set -eu
if [ -z "${MANY_RANKS_ALONE:-}" ]; then
    export MANY_RANKS_ALONE=0
    # shellcheck disable=SC2016 # words of the other shell
    ! unshare -n ip link set lo up 2>/dev/null || MANY_RANKS_ALONE=1 exec unshare -n sh -c 'ip link set lo up && exec sh "$0" "$@"' "$0" "$@"
fi
bin=$1 ranks=$2 nodes=$3 timeout=${4:-60}
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || :; rm -rf "$folder" "$folder.traffic"' EXIT
gone=$((ranks / 2))
export TWILL_LAYOUT="nodes=${nodes}x$((ranks / nodes))" TWILL_TIMEOUT="$timeout"

# traffic: connections opened and KiB sent in this network namespace so far.
traffic()
{
    awk '$1 == "Tcp:" && $6 ~ /^[0-9]+$/ { opened = $6 } $1 == "IpExt:" { for (i = 2; i <= NF; i++) if ($i == "OutOctets") at = i; else if (i == at) sent = $i }
        END { printf "%.0f %.0f\n", opened, sent / 1024 }' /proc/net/snmp /proc/net/netstat
}
# files NAME: how many ranks have written theirs.
files() { find "$folder" -name "$1.*" ! -name '*.new' | wc -l; }
# await NAME COUNT SECONDS: until so many have.
await()
{
    limit=$(($(date +%s) + $3))
    until [ "$(files "$1")" -ge "$2" ]; do
        if [ "$(date +%s)" -gt $limit ] || ! kill -0 "$pid" 2>/dev/null; then
            [ "$(files "$1")" -ge "$2" ] && return
            echo "many_ranks.sh: $(files "$1") of $2 ranks have $1: $(tail -n 2 "$folder/err")" >&2
            exit 1
        fi
        sleep 0.5
    done
}
# job HOW WORDS: prints "seconds_started seconds_half seconds_last named".
job()
{
    rm -f "$folder"/*
    traffic >"$folder.traffic"
    begun=$(date +%s.%N)
    "$bin/twillrun" -n "$ranks" --oversubscribe --bind none --grace 600 "$bin/many-ranks" "$folder" "$1" $((timeout * 4)) >"$folder/err" 2>&1 &
    pid=$!
    await summed "$ranks" 1800
    started=$(echo "$begun $(date +%s.%N)" | awk '{ printf "%.1f", $2 - $1 }')
    pid0=$(cut -d' ' -f2 "$folder/summed.0")
    {
        cat "$folder"/summed.* | sort -n | tail -n 1 | cut -d' ' -f1
        ss -tniHOp | sed -n "s/.*pid=$pid0,.* bytes_sent:\([0-9]*\).*/\1/p" | awk '{ sum += $1 } END { printf "%.0f\n", sum / 1024 }'
        cat "$folder"/summed.* | sed 's|[^ ]* \([0-9]*\) .*|/proc/\1/smaps_rollup|' | xargs cat |
            awk '/^Pss:/ { sum += $2; n++ } END { printf "%.0f\n", sum / n }'
        awk '{ printf "%.0f\n", $3 / 1024 }' "$folder/summed.$((ranks - 1))"
    } >"$folder/memory"
    traffic >>"$folder.traffic"
    : >"$folder/go"
    await ended $((ranks - 1)) $((timeout * 10 + 1800))
    traffic >>"$folder.traffic"
    cat "$folder/left.$gone" "$folder"/ended.* | awk -v started="$started" -v gone="$2" '
        NR == 1 { from = $1; next }
        { print $1 - from | "sort -n"; count++; named += index($0, gone) > 0 }
        END { close("sort -n"); print started, named, count }' >"$folder/times"
    awk 'NF == 1 { t[NR] = $1 } NF == 3 { printf "%s %.1f %.1f %s ", $1, t[int((NR + 1) / 2)], t[NR - 1], $2 }' "$folder/times"
    awk -v known="$MANY_RANKS_ALONE" '{ c[NR] = $1; k[NR] = $2 }
        END { if (known) print c[2] - c[1], k[2] - k[1], c[3] - c[2], k[3] - k[2]; else print "- - - -" }' "$folder.traffic"
    cat "$folder"/ended.* | sed 's/^[0-9.]* rank [0-9]*: //' | sort | uniq -c | sort -rn | head -n 3 >&2
    kill "$pid" 2>/dev/null || :
    wait "$pid" || :
    pid=
}
# shellcheck disable=SC2046 # words
set -- $(job die "rank $gone") $(cat "$folder/memory") $(job stay "rank $gone")
echo "$ranks $nodes $1 $9 ${10} ${11} ${12} $2 $3 $4 ${14} ${15} ${16} $5 $6 $7 $8 ${19} ${20}"
