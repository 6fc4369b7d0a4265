#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A slice of the fault campaign with the MPI drop-in: CAMPAIGN_MPI trials (8) with each MPI from CAMPAIGN_SEED (today's date) on, and
# CAMPAIGN_MPI_HOSTS (2) whose ranks are on two hosts (namespaces), where these can be made.
# Each is an MPI program under libtwill-mpi (tests/system/mpi/faults.c) in which a rank fails at a random point. All end, and
# no result is wrong; with Open MPI, which leaves survivors alone if asked to, they name the rank that has failed. Hydra ends all.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source-path=SCRIPTDIR source=../support/mpi.sh
. "$(dirname "$0")/../support/mpi.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
# shellcheck disable=SC2034 # of mpi.sh
patience=120

# on_hosts VARIANT RANKS: have launch() start half of the ranks on host 0, the others on host 1.
# shellcheck disable=SC2034 # of mpi.sh
on_hosts()
{
    within="$hosts_in 0"
    list="h0:$(($2 - $2 / 2)),h1:$(($2 / 2))"
    case $1 in
    openmpi)
        options="$options --mca plm_rsh_agent $hosts_agent --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0 -H $list \
            -x TWILL_TIMEOUT -x TWILL_MPI"
        ;;
    *) options="-launcher rsh -launcher-exec $hosts_agent -hosts $list" ;;
    esac
}

if [ "${1:-}" = launch ]; then
    shift
    # shellcheck disable=SC2034 # of mpi.sh
    [ "$1" != openmpi ] || options=--enable-recovery
    [ -z "${TEST_HOSTS:-}" ] || on_hosts "$@"
    launch "$@"
    exit
fi

# lines PATTERN: count the lines of the trial's output.
lines()
{
    grep -c "$1" "$scratch/out"
}

# process RANK: print its number, once the trial's output has it.
process()
{
    sed -n "s/^rank $1 is process //p" "$scratch/out"
}

# all_ended RANKS: succeed if the trial's ranks have begun, and none is left.
all_ended()
{
    [ "$(lines ' is process ')" -eq "$1" ] || return 1
    sed -n 's/^rank [0-9]* is process //p' "$scratch/out" >"$scratch/pids"
    while read -r pid; do
        ! kill -0 "$pid" 2>/dev/null || return 1
    done <"$scratch/pids"
}

# nurse KIND RANKS VICTIM: continue or end a stopped rank when it is time, until the trial has ended. An mpirun that is there 5 s after
# its last rank is ended, with all of the trial's session (timeout has a process group of its own), and leaves $scratch/lingers.
nurse()
{
    rm -f "$scratch/lingers"
    turns=0
    while kill -0 "$running" 2>/dev/null; do
        if [ "$1" = pause ] && [ "$(lines '^fault at')" -gt 0 ]; then
            sleep 0.1
            kill -CONT "$(process "$3")" 2>/dev/null
        elif [ "$1" = stop ] && [ "$(lines ' ends at ')" -ge $(($2 - 1)) ]; then
            kill -KILL "$(process "$3")" 2>/dev/null
        fi
        sleep 0.05
        all_ended "$2" && turns=$((turns + 1))
        case $turns in
        100)
            : >"$scratch/lingers"
            pkill -TERM -s "$running"
            ;;
        140) pkill -KILL -s "$running" ;;
        esac
    done
}

# verdict VARIANT KIND RANKS VICTIM: check what the ranks have printed.
verdict()
{
    ! grep -q ' ends at [0-9.]*: [^0]' "$scratch/out" || fault "$trial: wrong results"
    if [ -e "$scratch/lingers" ]; then
        echo "mpirun did not end after its ranks: $trial" # Open MPI's, on two hosts: docs/reference/limits.md
        [ "$1,$where" = "openmpi,two hosts" ] || fault "$trial: mpirun hangs"
    elif grep -q '^timeout: ' "$scratch/err"; then
        fault "$trial: hangs"
    fi
    case $2 in
    pause) [ "$(lines ': no error$')" -eq "$3" ] || fault "$trial: a rank has failed without a reason" ;;
    kill | exit | abort | stop)
        if [ "$1" = openmpi ] && [ "$(grep -v "^rank $4 " "$scratch/out" | grep -c " ends at .*rank $4\>")" -ne $(($3 - 1)) ]; then
            fault "$trial: the $(($3 - 1)) survivors do not all name rank $4"
        fi
        ;;
    esac
}

# seconds WHAT RANK: print how long after the fault the last survivor has known it.
seconds()
{
    awk -v victim="$2" -v kind="$1" '/^fault at/ {fault = $3}
        / ends at / && $2 != victim {at = $5 + 0; last = at > last ? at : last}
        END {if (fault && last) printf "%s: %.3f\n", kind, last - fault}' "$scratch/out"
}

# trials VARIANT FIRST COUNT WHERE: run trials, and check each.
trials()
{
    trials_variant=$1 where=$4
    for number in $(seq "$2" $(($2 + $3 - 1))); do
        own=$((seed % 1000003 * 1000 + number % 1000)) # mawk's and faults' seeds have 32 bits
        # shellcheck disable=SC2046 # words
        set -- $(awk -v seed="$own" 'BEGIN {
            split("kill kill abort exit kill stop pause reset descriptors memory", kinds)
            srand(seed); ranks = 2 + int(3 * rand())
            print kinds[1 + int(10 * rand())], ranks, int(ranks * rand()), int(2 ^ (17 * rand()))}')
        case $where,$1 in # with Open MPI the job then does not end: docs/reference/limits.md
        "two hosts,descriptors")
            shift
            set -- exit "$@"
            ;;
        esac
        trial="$trials_variant, trial $number of seed $seed: $1 of rank $3 of $2 after $4 us, $where"
        TWILL_TIMEOUT=4 setsid sh "$0" launch "$trials_variant" "$2" faults "$1" "$3" "$4" "$own" >"$scratch/out" 2>"$scratch/err" &
        running=$!
        nurse "$1" "$2" "$3"
        wait $running
        before=$failures
        verdict "$trials_variant" "$1" "$2" "$3"
        [ "$failures" = "$before" ] || cat "$scratch/out" "$scratch/err"
        late=$(seconds "$1, $where" "$3")
        [ "$failures" != "$before" ] || echo "passed: $trial: ${late:-no survivor had an error}"
        [ -z "$late" ] || echo "$late" >>"$scratch/times"
    done
}

seed=${CAMPAIGN_SEED:-$(date +%Y%m%d)} found=
: >"$scratch/times"
for variant in $(mpis); do
    found=1
    trials "$variant" 1 "${CAMPAIGN_MPI:-8}" "one host"
done
[ -n "$found" ] || skip "no MPI is here that libtwill-mpi is built for"
if (hosts_up 2) >"$scratch/log" 2>&1; then
    hosts_up 2
    for variant in $(mpis); do
        trials "$variant" 501 "${CAMPAIGN_MPI_HOSTS:-2}" "two hosts"
    done
    hosts_down
else
    tail -1 "$scratch/log"
fi
percentiles <"$scratch/times"
finish
