# SPDX-License-Identifier: Apache-2.0
# Bash completion of twillrun, twill-bench, twill-info, twill-trace, twill-place, twill-simulate and twill-compare: installed once under the
# name of each.
# shellcheck shell=bash disable=SC2207 # words of lists have no blanks

_twill_words()
{
    COMPREPLY=($(compgen -W "$1" -- "$2"))
}

_twill_files()
{
    COMPREPLY=($(compgen -f -- "$1"))
}

_twill_run()
{
    local options="-n --ranks -l --label -x --bind --report-bindings --grace --elastic -h --help -V --version --hosts --hostfile
        --map --agent --remote --timeout --oversubscribe --check --json --page --threads-per-rank --ppn -np --np -H --host --machinefile
        --map-by --bind-to --npernode --ntasks-per-node --cpus-per-rank --cpus-per-task"
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} i
    # Words after the program belong to it.
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --)
            ((i++))
            break
            ;;
        -n | --ranks | -x | --bind | --grace | --elastic | --hosts | --hostfile | --map | --agent | --remote | --timeout | -np | \
            --np | -H | --host | --machinefile | --map-by | --bind-to | --threads-per-rank | --ppn | -ppn | --npernode | \
            --ntasks-per-node | --cpus-per-rank | --cpus-per-task) ((i++)) ;;
        -*) ;;
        *) break ;;
        esac
    done
    if ((i < COMP_CWORD)) && declare -F _command_offset >/dev/null; then
        _command_offset "$i"
        return
    fi
    case $before in
    --bind) _twill_words "none core l3 numa package" "$word" ;;
    --bind-to) _twill_words "none core hwthread l3cache numa socket package" "$word" ;;
    --map) _twill_words "core node" "$word" ;;
    --map-by) _twill_words "slot core node ppr:1:node" "$word" ;;
    --threads-per-rank | --cpus-per-rank | --cpus-per-task) _twill_words "auto" "$word" ;;
    --hosts | -H | --host) COMPREPLY=($(compgen -A hostname -- "$word")) ;;
    --hostfile | --machinefile | --remote) _twill_files "$word" ;;
    -x) COMPREPLY=($(compgen -e -- "$word")) ;;
    --agent) COMPREPLY=($(compgen -c -- "$word")) ;;
    -n | --ranks | -np | --np | --ppn | -ppn | --npernode | --ntasks-per-node | --grace | --elastic | --timeout) ;;
    *)
        case $word in
        -*) _twill_words "$options" "$word" ;;
        *) COMPREPLY=($(compgen -c -- "$word") $(compgen -f -- "$word")) ;;
        esac
        ;;
    esac
}

# CMake fills these from the lists of the source.
_twill_collectives="@measured@ @measured_shards@ @measured_uneven@"
_twill_types="@usual_types@"
_twill_own_types="@types@"
_twill_ops="@arithmetic@ @bitwise@ @logical@"
_twill_levels="@levels@"

_twill_measurements="latency bandwidth bibw rate multi-pair incast overlap registration"

_twill_bench_messages()
{
    local options="-b --minbytes -e --maxbytes -f --stepfactor -n --iters -w --warmup_iters -c --check -T --timeout -J --json --csv
        --window --transport --interface --memory --pingpong -h --help -V --version"
    local word=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -c | --check) _twill_words "0 1" "$word" ;;
    --transport) _twill_words "default shm tcp ofi:tcp all" "$word" ;;
    --interface) _twill_words "calls alone both puts" "$word" ;;
    --memory) _twill_words "malloc twill" "$word" ;;
    -J | --json) _twill_files "$word" ;;
    *) _twill_words "$options" "$word" ;;
    esac
}

_twill_bench()
{
    if ((COMP_CWORD > 1)) && [[ " $_twill_measurements " == *" ${COMP_WORDS[1]} "* ]]; then
        _twill_bench_messages
        return
    fi
    local options="-b --minbytes -e --maxbytes -i --stepbytes -f --stepfactor -n --iters -w --warmup_iters -m
        --agg_iters -N --run_cycles -a --average -c --check -o --op -d --datatype -r --root -z --blocking -T --timeout
        -J --output_file --csv -u --unalign -I --per_iter_timing -K --per_iter_skip --list --memory --align --form
        --verify --overlap --batch --device --device-gflops --bucket --gradients --priority --times --reproducible --team --narrow
        --reduce-delay --energy --sysfs --algorithm --split --calibrate -h --help -V --version"
    local word=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -d | --datatype) _twill_words "$_twill_types all" "$word" ;;
    -o | --op) _twill_words "$_twill_ops all" "$word" ;;
    -a | --average) _twill_words "0 1 2 3" "$word" ;;
    -z | --blocking | -I | --per_iter_timing) _twill_words "0 1" "$word" ;;
    --narrow) _twill_words "f16 bf16 f8e4m3 f8e5m2" "$word" ;;
    --memory) _twill_words "malloc twill" "$word" ;;
    --form) _twill_words "blocking nonblocking persistent" "$word" ;;
    --overlap) _twill_words "test none" "$word" ;;
    --split) _twill_words "$_twill_levels" "$word" ;;
    -J | --output_file | --list | --calibrate | --sysfs) _twill_files "$word" ;;
    *)
        case $word in
        -*) _twill_words "$options" "$word" ;;
        *) _twill_words "$_twill_collectives kernels train $_twill_measurements" "$word" ;;
        esac
        ;;
    esac
}

_twill_info()
{
    local options="--env --memory --threads --ppn --gradient-threads --job --events --json --flight-recorder --page --serve --why --world --topology --machine --model -h --help -V --version"
    local word=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --why) _twill_words "@collectives@ factors" "$word" ;;
    --topology | --machine | --model | --flight-recorder) _twill_files "$word" ;;
    --job | --page) _twill_words "$(ps -u "$(id -u)" -o pid=)" "$word" ;;
    *)
        case $word in
        -*) _twill_words "$options" "$word" ;;
        *) _twill_words "$_twill_own_types mapped fetched narrow vector ordered left" "$word" ;;
        esac
        ;;
    esac
}

_twill_place()
{
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -p | --plot) _twill_files "${COMP_WORDS[COMP_CWORD]}" ;;
    *) _twill_words "-b --bytes -n --repeats -t --threads -p --plot -h --help -V --version" "${COMP_WORDS[COMP_CWORD]}" ;;
    esac
}

_twill_trace()
{
    local word=${COMP_WORDS[COMP_CWORD]}
    case $word in
    -*) _twill_words "-o --output -n --top --json -h --help -V --version" "$word" ;;
    *) _twill_files "$word" ;;
    esac
}

_twill_compare()
{
    local options="-n --ranks --max --sizes --rounds --mpi --only --peers --fetch --cache --source --bind --persistent --turn --details
        --quick --list --timeout --cell --json --resume --csv --plot --work --ucc --oneccl --hosts --agent --congestion --address
        --steps --batch --device-gflops --device -h --help -V --version"
    local word=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    --bind) _twill_words "core none shared" "$word" ;;
    --only) _twill_words "allreduce allreduce_in allreduce_out broadcast allgather reduce_scatter barrier reduce gather
        scatter alltoall self" "$word" ;;
    --json | --csv | --plot | --work | --cache | --ucc | --oneccl | --steps) _twill_files "$word" ;;
    --source) _twill_words "deepspeed= vllm=" "$word" ;;
    --hosts) COMPREPLY=($(compgen -A hostname -- "$word")) ;;
    *) _twill_words "$options" "$word" ;;
    esac
}

_twill_simulate()
{
    local options="-p --workers -u --updates -r --runs -s --seed -c --compute -l --latency --service --slow -b --bytes --server-link
        --worker-link --endpoints --credits --shards --late --rate --rule --dimensions --condition --noise --curve --histogram
        --csv --json -h --help -V --version"
    local word=${COMP_WORDS[COMP_CWORD]}
    case ${COMP_WORDS[COMP_CWORD - 1]} in
    -c | --compute | -l | --latency | --service) _twill_words "const: exp: shifted: uniform: pareto: list:" "$word" ;;
    --rule) _twill_words "fixed staleness distance:" "$word" ;;
    -p | --workers | -u | --updates | -r | --runs | -s | --seed | --slow | -b | --bytes | --server-link | --worker-link | --endpoints | \
        --credits | --shards | --rate | --dimensions | --condition | --noise) ;;
    *)
        case $word in
        -*) _twill_words "$options" "$word" ;;
        *) _twill_words "sync k-sync: k-batch-sync: k-async: k-batch-async: async softsync: bounded: groups:" "$word" ;;
        esac
        ;;
    esac
}

complete -F _twill_run twillrun
complete -F _twill_simulate twill-simulate
complete -F _twill_bench twill-bench
complete -F _twill_info twill-info
complete -F _twill_place twill-place
complete -F _twill_trace twill-trace
complete -F _twill_compare twill-compare
