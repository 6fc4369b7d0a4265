# SPDX-License-Identifier: Apache-2.0
# For check_*.sh with two of hosts.sh's hosts: a rank on each, by the variables of any launcher.
# shellcheck shell=sh source-path=SCRIPTDIR source=hosts.sh
# shellcheck disable=SC2154 # hosts_in and scratch are of hosts.sh and rules.sh

pair_port=21000
# pair MASTER_ADDR PROGRAM...: what rank 0 says goes to $scratch/out, rank 1 to $scratch/other; the
# status is $pair_status.
pair()
{
    pair_port=$((pair_port + 1))
    pair_root=$1 pair_status=0
    shift
    set -- env WORLD_SIZE=2 MASTER_ADDR="$pair_root" MASTER_PORT=$pair_port "$@"
    RANK=0 timeout "$patience" "$hosts_in" 0 "$@" >"$scratch/out" 2>&1 &
    pair_other=$!
    RANK=1 timeout "$patience" "$hosts_in" 1 "$@" >"$scratch/other" 2>&1 || pair_status=$?
    wait $pair_other || pair_status=$?
}

# The same, and all must be well.
good_pair()
{
    pair "$@"
    [ $pair_status -eq 0 ] || { cat "$scratch/other" && fail "status $pair_status: $*"; }
}
