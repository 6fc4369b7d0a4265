# SPDX-License-Identifier: Apache-2.0
# For check_*.sh with two of hosts.sh's hosts: a rank on each, by the variables of any launcher.
# shellcheck shell=sh source-path=SCRIPTDIR source=hosts.sh
# shellcheck disable=SC2154 # hosts_in and scratch are of hosts.sh and rules.sh

pair_port=21000
# pair_begin MASTER_ADDR PROGRAM...: in the background, $pair_first and $pair_other; what rank 0 says goes to
# $scratch/out, rank 1 to $scratch/other.
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

# pair_end: the status is $pair_status, rank 0's if both failed.
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

# The same, and all must be well.
good_pair()
{
    pair "$@"
    [ $pair_status -eq 0 ] || { cat "$scratch/other" && fail "status $pair_status: $*"; }
}
