#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# delays.sh BIN [WORKERS [MEAN [UPDATES]]] runs the parameter server in all modes with workers that sleep for random
# times of MEAN ms (40) on average. It prints the seconds of an update and the staleness, together with those of
# twill-simulate (--late, as the server cannot cancel what a worker does). With ONLY it runs only the modes that have this
# in their name. BIN is the folder of twillrun in a build, which has the Python package.
set -eu
here=$(cd "$(dirname "$0")" && pwd) bin=$(cd "$1" && pwd) workers=${2:-4} mean=${3:-40} updates=${4:-300}
# compare MODE K LAW SIMULATED-LAW prints a row.
compare()
{
    case $1 in *${ONLY:-}*) ;; *) return ;; esac
    twillrun_out=$(timeout 500 "$bin/twillrun" -n $((workers + 1)) --bind none --oversubscribe python3 "$here/server_delays.py" "$1" "$2" "$3" "$mean" "$updates")
    case $1 in sync | async) mode=$1 ;; *) mode=$1:$2 ;; esac
    "$bin/twill-simulate" --csv --late -p "$workers" -u 100000 -c "$4" "$mode" | tail -1 >"$scratch/simulated"
    printf '%s %s\n' "$(cat "$scratch/simulated")" "$(echo "$twillrun_out" | tr '\n' ' ')" | awk -v mode="$mode" -v law="$3" '
        {
            split($1, s, ",")
            for (i = 2; i < NF; i++) v[$i] = $(i + 1)
            printf "%-16s %-8s %10.4f %10.4f %7.3f %10.3f %10.3f %10.5f %9d %9d %9d\n", mode, law, v["update_s"], s[3], v["update_s"] / s[3], v["stale"], s[7], v["above"], v["updates"], v["gradients"], v["dropped"]
        }'
}
export PYTHONPATH="$bin/../python"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
seconds=$(awk -v m="$mean" 'BEGIN { print m / 1000 }')
uniform=$(awk -v m="$mean" 'BEGIN { print "uniform:" m / 2000 "," m / 2000 * 3 }')
half=$((workers / 2))
echo "# $workers workers, $mean ms, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
printf '%-16s %-8s %10s %10s %7s %10s %10s %10s %9s %9s %9s\n' mode law update_s simulated ratio stale simulated above_2n updates gradients dropped
compare sync $half exp "exp:$seconds"
compare k-sync $half exp "exp:$seconds"
compare k-batch-sync $half exp "exp:$seconds"
compare k-async $half exp "exp:$seconds"
compare k-batch-async $half exp "exp:$seconds"
compare async $half exp "exp:$seconds"
compare softsync 1 uniform "$uniform"
compare softsync "$half" uniform "$uniform"
compare softsync "$workers" uniform "$uniform"
compare bounded 2 exp "exp:$seconds"
