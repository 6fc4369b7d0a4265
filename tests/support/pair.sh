# SPDX-License-Identifier: Apache-2.0
# Helpers for check_*.sh with two hosts of hosts.sh: a rank on each, by the variables that any
# launcher sets.
# shellcheck shell=sh source-path=SCRIPTDIR source=hosts.sh
# shellcheck disable=SC2154 # hosts_in and scratch are of hosts.sh and rules.sh

pair_port=21000
# pair_begin MASTER_ADDR PROGRAM...: start two ranks in the background, $pair_first and $pair_other;
# rank 0's output is in $scratch/out, rank 1's in $scratch/other.
pair_begin()
{
    pair_port=$((pair_port + 1))
    pair_root=$1
    shift
    set -- env WORLD_SIZE=2 MASTER_ADDR="$pair_root" MASTER_PORT=$pair_port "$@"
    : >"$scratch/out"
    RANK=0 timeout -k 10 "$patience" "$hosts_in" 0 "$@" >"$scratch/out" 2>&1 &
    pair_first=$!
    RANK=1 timeout -k 10 "$patience" "$hosts_in" 1 "$@" >"$scratch/other" 2>&1 &
    pair_other=$!
}

# pair_end: wait for both; $pair_status is rank 0's if both failed.
pair_end()
{
    pair_status=0
    wait "$pair_other" || pair_status=$?
    wait "$pair_first" || pair_status=$?
}

pair()
{
    pair_begin "$@"
    pair_end
}

# good_pair MASTER_ADDR PROGRAM...: run two ranks, which must succeed.
good_pair()
{
    pair "$@"
    [ $pair_status -eq 0 ] || { cat "$scratch/other" && fail "status $pair_status: $*"; }
}
