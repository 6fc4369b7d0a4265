#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start programs of twill by every installed launcher: Hydra, Open MPI's mpirun, Slurm with and without PMI, on one host
# and on two (namespaces); for torchrun, PALS and ALPS set the variables that they set. Print one line for each:
# launcher and version, hosts x ranks, how it was detected, and the result, or what is missing. Skipped (77) if
# twillrun is the only launcher.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016,SC2086,SC2154 # for the ranks' shells to expand; words of commands; of rules.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source=../support/hosts.sh
. "$here/support/hosts.sh"
# shellcheck source=../support/slurm.sh
. "$here/support/slurm.sh"
trap 'slurm_down; hosts_down; rm -rf "$scratch"' EXIT

where=$build/tests/where
export TWILL_TIMEOUT=300
unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT TWILL_JOB TWILL_LAUNCHER
kinds=0

row()
{
    printf '%-34s %-6s %-42s %s\n' "$@"
}

version_of()
{
    "$@" --version 2>&1 | sed -n 's/.*[ :]\([0-9][0-9]*\.[0-9][0-9.]*[0-9]\).*/\1/p' | head -1
}

# job NAME HOSTSxRANKS HOW LOCALS command...: every rank must be right and say HOW it was detected. LOCALS: what all ranks say of
# their place in order of rank ("0/2@0 1/2@0": local rank, local size, node), or - if all ranks are on one host.
job()
{
    job_name=$1 job_shape=$2 job_how=$3 job_places=$4 job_got=0
    shift 4
    timeout -k 10 "$patience" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || job_got=$?
    [ $job_got -eq 0 ] || fail "$job_name $job_shape: status $job_got: $*"
    job_ranks=${job_shape#*x}
    grep '^rank ' "$scratch/out" | sort -k2n >"$scratch/ranks"
    sed -n 's|^rank [0-9]* of [0-9]*, local \([0-9]*\) of \([0-9]*\), node \([0-9]*\) .*|\1/\2@\3|p' \
        "$scratch/ranks" | tr '\n' ' ' >"$scratch/places"
    [ "$job_places" != - ] ||
        job_places=$(for k in $(seq 0 $((job_ranks - 1))); do echo "$k/$job_ranks@0"; done | tr '\n' ' ')
    [ "$(sed 's/ $//' "$scratch/places")" = "${job_places% }" ] ||
        fail "$job_name $job_shape: places are $(cat "$scratch/places") and not $job_places"
    [ "$(grep -c ", right: .*$job_how" "$scratch/ranks")" -eq "$job_ranks" ] ||
        fail "$job_name $job_shape: not $job_ranks ranks by $job_how"
    row "$job_name" "$job_shape" "$(sed -n '1s/.*, right: \([^,]*\),.*/\1/p;1s/.*, right: \(.*\) at .*/\1/p' "$scratch/ranks" |
        head -1 | cut -c1-42)" "right"
}


# stay_away VARIABLE: make a program for the case that a rank never joins. Where VARIABLE is 0 (rank 0) it sets twill up with a
# short timeout. The other ranks wait until rank 0 has reported them missing, so that none ends before.
stay_away()
{
    rm -f "$scratch/given-up"
    cat >"$scratch/stay-away" <<END
#!/bin/sh
if [ "\$$1" = 0 ]; then
    TWILL_TIMEOUT=5 "$where"
    code=\$?
    : >"$scratch/given-up"
    exit \$code
fi
until [ -e "$scratch/given-up" ]; do sleep 0.1; done
END
    chmod +x "$scratch/stay-away"
}

# complains TEXT command...: the job must fail and print TEXT. Its exit status depends on the launcher.
complains()
{
    complains_text=$1
    shift
    ! timeout -k 10 "$patience" "$@" >"$scratch/out" 2>&1 </dev/null || fail "went well: $*"
    grep -qF -e "$complains_text" "$scratch/out" || fail "'$complains_text' was not said by: $*"
}

# --- by hand: by_hand N HOSTS NAME=VALUE... starts N ranks with these variables, as a launcher would. %r is the rank
by_hand()
{
    hand_ranks=$1 hand_hosts=$2 hand_pids='' hand_code=0
    shift 2
    for hand_rank in $(seq 0 $((hand_ranks - 1))); do
        hand_in=
        [ "$hand_hosts" -eq 1 ] || hand_in="$hosts_in $((hand_rank * hand_hosts / hand_ranks))"
        # shellcheck disable=SC2046,SC2086 # words
        $hand_in env $(printf '%s\n' "$@" | sed "s/%r/$hand_rank/g") "$where" &
        hand_pids="$hand_pids $!"
    done
    for hand_pid in $hand_pids; do
        wait "$hand_pid" || hand_code=$?
    done
    return $hand_code
}

# A job() of by_hand. timeout(1) cannot run a function, so the program's own timeout has to end it.
hand_job()
{
    hand_name=$1 hand_shape=$2 hand_how=$3 hand_places=$4
    shift 4
    by_hand "${hand_shape#*x}" "${hand_shape%x*}" "$@" >"$scratch/hand" 2>"$scratch/hand-err" || {
        cat "$scratch/hand" "$scratch/hand-err" >"$scratch/out"
        fail "$hand_name $hand_shape"
    }
    job "$hand_name" "$hand_shape" "$hand_how" "$hand_places" cat "$scratch/hand"
}

# PALS's file, version 5: two ranks, rank 0 on the first node. pals_file NODES HOST...
pals_file()
{
    perl -e 'my @n = @ARGV; my $r = 2;
        print pack("ix4QQQix4QQix4QQix4QQix4QQix4QQQ", 5, 0, 0, 0, 0, 0, 0, 0,
            12, 160, $r, 68, 160 + 12 * $r, scalar @n, 0, 0, 0, 0, 0, 0),
            map({ pack("iii", 0, 0, $_ * @n / $r) } 0 .. $r - 1), map({ pack("ia64", 0, $_) } @n);' "$@"
}

# --- twillrun, and launchers that set RANK

job "twillrun" 1x3 "twillrun: RANK=" - "$bin/twillrun" -n 3 "$where"
hand_job "torchrun's variables, by hand" 1x3 "torchrun: RANK=" - RANK=%r WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 \
    MASTER_PORT="$(free_port)" TORCHELASTIC_RUN_ID=x
pals_file here.invalid >"$scratch/apinfo"
hand_job "PALS's variables, by hand" 1x2 "PALS: PALS_RANKID" - PALS_RANKID=%r PALS_APID=one$$ PALS_APINFO="$scratch/apinfo" \
    PMI_RANK=%r PMI_SIZE=2 PMI_SHARED_SECRET=17 MASTER_PORT="$(free_port)"
hand_job "ALPS's variables, by hand" 1x2 "ALPS: ALPS_APP_PE" - ALPS_APP_PE=%r ALPS_APP_ID=$$ WORLD_SIZE=2 \
    MASTER_ADDR=localhost MASTER_PORT="$(free_port)"
[ "$(stat -c %a "$HOME/.twill/key")" = 600 ] || fail "the user's key is not the user's alone"

# --- Hydra

hydra=$(command -v mpirun.mpich || command -v mpiexec.hydra || :)
if [ -n "$hydra" ]; then
    kinds=$((kinds + 1))
    name="Hydra $(version_of "$hydra")"
    job "$name" 1x4 "Hydra: PMI_FD" - "$hydra" -n 4 "$where"
    job "$name -pmi-port" 1x3 "Hydra: PMI_PORT" - "$hydra" -pmi-port -n 3 "$where"
    # twillrun inside mpiexec: each twillrun starts a job of its own.
    expect 0 "rank 1 of 2, local 1 of 2, node 0 of 1, right: twillrun" "$hydra" -n 2 "$bin/twillrun" -n 2 "$where"
    # PMI_FD is closed, or contradicts other variables, or TWILL_LAUNCHER names another launcher.
    complains "PMI_SIZE=2: a launcher that speaks PMI started several ranks" \
        "$hydra" -n 2 sh -c 'eval "exec $PMI_FD<&-"; exec "$0"' "$where"
    complains "WORLD_SIZE=1 is set as well" "$bin/twillrun" -n 1 "$hydra" -n 2 "$where"
    expect 0 "single: one rank, as TWILL_LAUNCHER=none" "$hydra" -n 2 env TWILL_LAUNCHER=none "$where"
    # Hydra serves one set-up of a process: a second one fails, and the message says why.
    complains "It serves one set-up of a process" "$hydra" -n 2 "$where" -2
    # One rank never joins.
    stay_away PMI_RANK
    complains "some rank has not called twill_init" "$hydra" -n 2 "$scratch/stay-away"
    # Hydra ends all when a rank is killed, unless its status is hidden (docs/guides/recovery.md): the others then shrink.
    for option in "" -disable-auto-cleanup; do
        # shellcheck disable=SC2086 # no option
        expect 0 "a rank: status 137" "$hydra" $option -n 3 sh -c '"$0" "$@" || echo "a rank: status $?"' "$where" -k
        [ "$(grep -c "^rank [01] of 2 goes on: 2" "$scratch/out")" -eq 2 ] || fail "Hydra $option: not both of the others have gone on"
    done
    expect 9 "Killed (signal 9)" "$hydra" -n 3 "$where" -k
else
    row Hydra - - "not installed"
fi

# --- Open MPI

ompi=$(command -v mpirun.openmpi || :)
if [ -n "$ompi" ] && ! "$where" >/dev/null 2>&1; then
    fail "one rank alone"
fi
ompi_run="$ompi --oversubscribe"
[ "$(id -u)" -ne 0 ] || ompi_run="$ompi_run --allow-run-as-root"
if [ -z "$ompi" ]; then
    row "Open MPI" - - "not installed"
elif TWILL_LAUNCHER=pmix "$where" 2>&1 | grep -q "was built without PMIx"; then
    complains "was built without PMIx" $ompi_run -n 2 "$where"
    row "Open MPI" - - "built without PMIx: ranks say so"
    ompi=
else
    kinds=$((kinds + 1))
    name="Open MPI $(version_of "$ompi") (PMIx)"
    {
        job "$name" 1x4 "PMIx: PMIX_NAMESPACE of Open MPI" - $ompi_run -n 4 "$where"
        # Set twill up twice; afterwards the process has no thread of the PMIx library.
        expect 0 "right: PMIx" $ompi_run -n 2 "$where" -2
        [ "$(grep -c 'right: PMIx' "$scratch/out")" -eq 4 ] || fail "not two set-ups of two ranks"
        expect 0 "threads " $ompi_run -n 2 "$where" -t
        [ "$(grep -c '^threads 1$' "$scratch/out")" -eq 2 ] || fail "threads of PMIx are left"
        complains "OMPI_COMM_WORLD_SIZE=2: Open MPI's mpirun started several ranks" \
            $ompi_run -n 2 env -u PMIX_NAMESPACE "$where"
        stay_away PMIX_RANK
        complains "not all ranks have called twill_init" $ompi_run -n 2 "$scratch/stay-away"
        if [ -n "$hydra" ]; then # mpirun inside mpiexec, and mpiexec inside mpirun
            job "$name in Hydra" 1x2 "PMIx: PMIX_NAMESPACE" - "$hydra" -n 1 $ompi_run -n 2 "$where"
            job "Hydra in Open MPI" 1x2 "Hydra: PMI_FD" - $ompi_run -n 1 "$hydra" -n 2 "$where"
        fi
    }
fi

# --- two hosts. If they cannot be made here the script ends: as skipped if no launcher has run, else as passed.

(hosts_up 2) >"$scratch/no-hosts" 2>&1 || {
    row "two hosts" - - "$(tail -1 "$scratch/no-hosts")"
    [ $kinds -gt 0 ] || skip "no launcher but ours, and no hosts"
    exit 0
}
hosts_up 2
printf '%s\n' "$(host_address 0) nid00012" "$(host_address 1) nid00013" >>"$hosts_dir/hosts"
pals_file h0 h1 >"$scratch/apinfo"
halves="0/2@0 1/2@0 0/2@1 1/2@1"

hand_job "torchrun's variables, by hand" 2x4 "environment: RANK=" "$halves" RANK=%r WORLD_SIZE=4 MASTER_ADDR=h0 \
    MASTER_PORT=21000
hand_job "PALS's variables, by hand" 2x2 "PALS: PALS_RANKID" "0/1@0 0/1@1" PALS_RANKID=%r PALS_APID=two \
    PALS_APINFO="$scratch/apinfo" PMI_SIZE=2 PMI_SHARED_SECRET=18
hand_job "ALPS's variables, by hand" 2x4 "ALPS: ALPS_APP_PE" "$halves" ALPS_APP_PE=%r ALPS_APP_ID=4712 WORLD_SIZE=4 \
    COBALT_PARTNAME=12-13
complains "rank 0 is on h0, but COBALT_PARTNAME makes the others look for it on nid00013" \
    "$hosts_in" 0 env ALPS_APP_PE=0 ALPS_APP_ID=1 WORLD_SIZE=2 COBALT_PARTNAME=13 "$where"
if [ -n "$hydra" ]; then
    job "Hydra $(version_of "$hydra")" 2x4 "Hydra: PMI_FD" "$halves" \
        "$hosts_in" 0 "$hydra" -launcher rsh -launcher-exec "$hosts_agent" -hosts h0:2,h1:2 "$where"
    # Ranks alternate between the hosts: a rank's node follows from its host, not from its number.
    job "Hydra $(version_of "$hydra") in turns" 2x4 "Hydra: PMI_FD" "0/2@0 0/2@1 1/2@0 1/2@1" \
        "$hosts_in" 0 "$hydra" -launcher rsh -launcher-exec "$hosts_agent" -hosts h0:1,h1:1,h0:1,h1:1 "$where"
fi
if [ -n "$ompi" ]; then
    job "$name" 2x4 "PMIx: PMIX_NAMESPACE of Open MPI" "$halves" \
        "$hosts_in" 0 $ompi_run --mca plm_rsh_agent "$hosts_agent" --mca oob_tcp_if_include eth0 -H h0:2,h1:2 "$where"
fi

# --- Slurm

if slurm_up; then
    kinds=$((kinds + 1))
    name="Slurm $(timeout -k 10 "$patience" "$hosts_in" 0 srun --version | cut -d' ' -f2)"
    srun="$hosts_in 0 srun"
    for mpi in none pmi2 pmix; do
        case $mpi in
        none) how="Slurm without PMI: SLURM_PROCID" ;;
        pmi2) how="Slurm: PMI_FD" ;;
        pmix) how="PMIx: PMIX_NAMESPACE of Slurm" ;;
        esac
        [ $mpi != pmix ] || [ -n "$ompi" ] || continue
        $srun --mpi=list 2>&1 | grep -qw $mpi || {
            row "$name --mpi=$mpi" - - "no such plugin"
            continue
        }
        job "$name --mpi=$mpi" 1x3 "$how" - $srun --mpi=$mpi -N 1 -n 3 "$where"
        job "$name --mpi=$mpi" 2x4 "$how" "$halves" $srun --mpi=$mpi -N 2 --ntasks-per-node=2 "$where"
    done
    job "$name --mpi=none in turns" 2x4 "Slurm without PMI" "0/2@0 0/2@1 1/2@0 1/2@1" \
        $srun --mpi=none -N 2 --ntasks-per-node=2 --distribution=cyclic "$where"
    if $srun --mpi=list 2>&1 | grep -qw cray_shasta; then
        job "$name --mpi=cray_shasta (PALS)" 2x4 "PALS: PALS_RANKID" "$halves" \
            $srun --mpi=cray_shasta -N 2 --ntasks-per-node=2 "$where"
    fi
    # Slurm binds the ranks; their levels follow from that.
    [ "$(nproc)" -eq 1 ] || expect 0 " PUs (1 allowed)" \
        "$hosts_in" 0 srun --mpi=pmi2 -N 1 -n 2 --cpu-bind=map_cpu:0 "$bin/twill-info"
    # A program that a batch script starts without srun is one rank. Inside a step, RANK takes precedence over Slurm's variables.
    expect 0 "rank 0 of 1, local 0 of 1, node 0 of 1, right: single: one rank, in Slurm's job" \
        $srun --mpi=pmi2 -n 1 env -u PMI_FD -u PMI_SIZE -u PMI_RANK "$where"
    expect 0 "rank 1 of 2, local 1 of 2, node 0 of 1, right: twillrun" \
        $srun --mpi=pmi2 -N 2 -n 2 "$bin/twillrun" -n 2 "$where"
    job "RANK of a shell in a step" 1x2 "environment: RANK=" - $srun --mpi=none -N 1 -n 2 sh -c \
        'RANK=$SLURM_PROCID WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29999 exec "$0"' "$where"
    printf '#!/bin/sh\n"%s" >"%s/batch"\nsrun --mpi=pmi2 "%s" >>"%s/batch"\n' "$where" "$scratch" "$where" "$scratch" \
        >"$scratch/script"
    timeout -k 10 "$patience" "$hosts_in" 0 sbatch -W -N 1 -n 2 -o "$scratch/batch.log" "$scratch/script" >/dev/null ||
        fail "sbatch: $(cat "$scratch/batch.log")"
    [ "$(grep -c 'right: single' "$scratch/batch")" -eq 1 ] || fail "in a batch script: $(cat "$scratch/batch")"
    [ "$(grep -c 'right: Slurm: PMI_FD, rank [01] of 2' "$scratch/batch")" -eq 2 ] || fail "$(cat "$scratch/batch")"
else
    row Slurm - - "$slurm_why"
fi
[ $kinds -gt 0 ] || skip "no launcher but ours"
