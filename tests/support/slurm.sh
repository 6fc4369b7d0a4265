# SPDX-License-Identifier: Apache-2.0
# A private Slurm on the hosts of hosts.sh: munged and slurmctld in host 0, a slurmd in each host.
# All of it is in the hosts' networks and the scratch folder, and ends with the script. Source it
# after hosts.sh.
#
#   slurm_up     after hosts_up; on failure returns 1 with the reason in slurm_why
#   slurm_down   before hosts_down; also when slurm_up failed or the script ends early
#   SLURM_CONF   is set for srun and the like, to be run in host 0
# shellcheck shell=sh source-path=SCRIPTDIR source=hosts.sh disable=SC2154 # of hosts.sh
slurm_dir=

slurm_missing()
{
    for slurm_tool in munged mungekey slurmctld slurmd srun sinfo setpriv; do
        PATH=$PATH:/usr/sbin:/sbin command -v $slurm_tool >/dev/null || echo $slurm_tool
    done
}

slurm_configure()
{
    cat <<END
ClusterName=twill
SlurmctldHost=h0($(host_address 0))
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket=$slurm_dir/munge.socket
StateSaveLocation=$slurm_dir/state
SlurmdSpoolDir=$slurm_dir/%n.spool
TmpFS=$slurm_dir/%n.tmp
SlurmctldPidFile=$slurm_dir/slurmctld.pid
SlurmdPidFile=$slurm_dir/%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/affinity
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdParameters=config_overrides
SlurmdTimeout=300
MessageTimeout=100
TCPTimeout=60
BatchStartTimeout=300
UnkillableStepTimeout=600
KillWait=2
END
    for slurm_k in $(seq 0 $((hosts_count - 1))); do
        echo "NodeName=h$slurm_k NodeHostname=h$slurm_k NodeAddr=$(host_address "$slurm_k") CPUs=8 State=UNKNOWN"
    done
    echo "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:8"
}

# slurm_begin HOST command...: run a command in the background until this shell ends.
slurm_begin()
{
    slurm_name=$(basename "$2")-$1
    setpriv --pdeathsig TERM "$hosts_in" "$@" </dev/null >"$slurm_dir/$slurm_name.log" 2>&1 &
    slurm_pids="$! $slurm_pids"
    echo "$slurm_name" >"$slurm_dir/$!.name"
}

# slurm_wait command...: repeat until it succeeds, at most 240 s and while all processes of
# slurm_begin live.
slurm_wait()
{
    slurm_end=$(($(date +%s) + 240))
    until "$@" >/dev/null 2>&1; do
        for slurm_pid in $slurm_pids; do
            kill -0 "$slurm_pid" 2>/dev/null || {
                slurm_name=$(cat "$slurm_dir/$slurm_pid.name")
                slurm_why="$slurm_name has ended: $(tail -n 1 "$slurm_dir/$slurm_name.log")"
                return 1
            }
        done
        [ "$(date +%s)" -lt $slurm_end ] || return 1
        sleep 0.1
    done
}

slurm_is_idle()
{
    [ "$(timeout -k 5 20 "$hosts_in" 0 sinfo -h -N -o %T | grep -c '^idle$')" -eq "$hosts_count" ]
}

slurm_up()
{
    slurm_why=$(slurm_missing | tr '\n' ' ') slurm_pids=
    [ -z "$slurm_why" ] || {
        slurm_why="not installed: $slurm_why"
        return 1
    }
    slurm_path=$PATH PATH=$PATH:/usr/sbin:/sbin
    slurm_dir=$(mktemp -d "$scratch/slurm-XXXXXX")
    mkdir "$slurm_dir/state"
    for slurm_k in $(seq 0 $((hosts_count - 1))); do
        mkdir "$slurm_dir/h$slurm_k.spool" "$slurm_dir/h$slurm_k.tmp"
        # A host's /sys belongs to its network and has no control groups; slurmd needs to see the
        # machine's, although it does not use any.
        host_run "$slurm_k" umount /sys 2>/dev/null || :
    done
    slurm_configure >"$slurm_dir/slurm.conf"
    export SLURM_CONF="$slurm_dir/slurm.conf"
    (umask 077 && mungekey --create --keyfile="$slurm_dir/munge.key" >/dev/null)
    slurm_begin 0 munged --foreground --force --key-file="$slurm_dir/munge.key" \
        --socket="$slurm_dir/munge.socket" --pid-file="$slurm_dir/munge.pid" \
        --seed-file="$slurm_dir/munge.seed" --log-file="$slurm_dir/munge.log"
    slurm_wait test -S "$slurm_dir/munge.socket" || {
        : "${slurm_why:=munged does not start: $(tail -n 1 "$slurm_dir/munged-0.log")}"
        return 1
    }
    slurm_begin 0 slurmctld -D -c
    for slurm_k in $(seq 0 $((hosts_count - 1))); do
        slurm_begin "$slurm_k" slurmd -D -N "h$slurm_k"
    done
    PATH=$slurm_path
    slurm_wait slurm_is_idle || {
        : "${slurm_why:=nodes do not become idle: $(grep -hi -e error -e fatal "$slurm_dir"/slurm*.log | tail -n 2)}"
        return 1
    }
}

slurm_are_gone()
{
    for slurm_pid in $slurm_pids; do
        ! kill -0 "$slurm_pid" 2>/dev/null || return 1
    done
}

# Steps in progress outlive their launcher: end every process in the hosts' networks.
slurm_down()
{
    [ -n "$slurm_dir" ] || return 0
    slurm_dir='' slurm_turns=0
    # shellcheck disable=SC2086 # words
    kill $slurm_pids 2>/dev/null || :
    until slurm_are_gone || [ $slurm_turns -ge 30 ]; do
        slurm_turns=$((slurm_turns + 1))
        sleep 0.1
    done
    for slurm_k in $(seq 0 $((hosts_count - 1))); do
        slurm_net=$(readlink "/proc/$(host_pid "$slurm_k")/ns/net") || continue
        for slurm_proc in /proc/[0-9]*; do
            slurm_pid=${slurm_proc#/proc/}
            [ "$slurm_pid" != "$(host_pid "$slurm_k")" ] || continue
            [ "$(readlink "$slurm_proc/ns/net" 2>/dev/null)" != "$slurm_net" ] ||
                kill -KILL "$slurm_pid" 2>/dev/null || :
        done
    done
    for slurm_pid in $slurm_pids; do
        wait "$slurm_pid" 2>/dev/null || :
    done
}
