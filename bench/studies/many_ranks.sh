#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# many_ranks.sh BIN RANKS NODES [TIMEOUT]: RANKS processes on NODES virtual nodes of this machine start and sum. Then one of them is
# killed, and in a second job one makes no call, so that all others time out together (TWILL_TIMEOUT: 60 s). Prints one row: ranks,
# nodes, seconds until all have summed, the longest twill_init(), KiB that rank 0 has sent for the exchanges of set-up, KiB a rank
# (PSS, and malloc's of the last rank), seconds after the death until half of the others and all of them have returned an error, how
# many of them name the dead rank; and the same of the rank that makes no call.
set -eu
bin=$1 ranks=$2 nodes=$3 timeout=${4:-60}
folder=$(mktemp -d)
pid=
trap '[ -z "$pid" ] || kill "$pid" 2>/dev/null || :; rm -rf "$folder"' EXIT
gone=$((ranks / 2))
export TWILL_LAYOUT="nodes=${nodes}x$((ranks / nodes))" TWILL_TIMEOUT="$timeout"

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
    : >"$folder/go"
    await ended $((ranks - 1)) $((timeout * 10 + 1800))
    cat "$folder/left.$gone" "$folder"/ended.* | awk -v started="$started" -v gone="$2" '
        NR == 1 { from = $1; next }
        { print $1 - from | "sort -n"; count++; named += index($0, gone) > 0 }
        END { close("sort -n"); print started, named, count }' >"$folder/times"
    awk 'NF == 1 { t[NR] = $1 } NF == 3 { printf "%s %.1f %.1f %s\n", $1, t[int((NR + 1) / 2)], t[NR - 1], $2 }' "$folder/times"
    cat "$folder"/ended.* | sed 's/^[0-9.]* rank [0-9]*: //' | sort | uniq -c | sort -rn | head -n 3 >&2
    kill "$pid" 2>/dev/null || :
    wait "$pid" || :
    pid=
}
# shellcheck disable=SC2046 # words
set -- $(job die "rank $gone") $(cat "$folder/memory") $(job stay "rank $gone")
echo "$ranks $nodes $1 $5 $6 $7 $8 $2 $3 $4 ${10} ${11} ${12}"
