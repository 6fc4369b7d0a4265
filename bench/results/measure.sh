#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# measure.sh [--quick] [--bin FOLDER] [STUDY...]: measure studies and write bench/results/STUDY.json (study_file.py), all of them
# without names, the most important ones first (--list names them). make_pages.py then makes the pages. Run it on a quiet
# machine, as root where hosts are needed: hosts are network namespaces. FOLDER of the programs: build/bin. --quick: the smallest
# settings, for a test; STUDY_RESULTS: another folder for the files. PYTHON: a Python with PyTorch (python3).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
studies=$here/../studies lists=$here/../gradients data=$here/../../examples/data
bin=$here/../../build/bin quick=
all="one-node mpi-programs two-hosts-reno two-hosts-cubic training-steps training-overlap training-buckets training-comparison batch-sweep
compression pytorch
pytorch-copies pytorch-calls pytorch-16-bits server-ablation server-switches server-nodes server-chunks server-modes server-credits server-update server-workers
server-delays server-traffic recovery-times recovery-loss campaign protection congestion python-calls memory-kinds many-cores studies theta simulation many-ranks many-ranks-counted"

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --bin) bin=$2 && shift ;;
    --list) echo "$all" && exit ;;
    -*) echo "usage: measure.sh [--quick] [--bin FOLDER] [STUDY...]" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done
bin=$(cd "$bin" && pwd) python=${PYTHON:-python3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$bin/../python${PYTHONPATH:+:$PYTHONPATH}"

# few QUICK FULL: the first in a quick run, else the second
few() { [ -n "$quick" ] && echo "$1" || echo "$2"; }

# table TABLE COLUMNS: standard input becomes a table of the study
table()
{
    python3 "$here/../common/study_file.py" "$study" "$1" "$2" -- sh bench/results/measure.sh "$study"
}

# compared WORDS...: the file of the study is what twill-compare measures
compared()
{
    raw=${raw:-$work/raw.json}
    "$bin/twill-compare" "$@" --json "$raw" >"$work/out" || { tail -n 3 "$work/out" && return 1; }
    python3 "$here/../common/study_file.py" --compare "$study" "$raw" sh bench/results/measure.sh "$study"
}

# --- collectives ------------------------------------------------------------------------------------
# With the peers of twill-compare --fetch, if they have been fetched. RAW is a file that a run continues that was stopped.
measure_one_node()
{
    raw=${RAW:-$work/raw.json}
    compared --max "$(few 64K 256M)" --rounds "$(few 1 5)" ${quick:+--quick --only allreduce,broadcast} ${RAW:+--resume}
}
measure_mpi_programs()
{
    compared --mpi --max "$(few 64K 256M)" --rounds "$(few 1 3)" ${quick:+--quick --only allreduce_in,broadcast}
}
between()
{
    export TEST_HOSTS_CONGESTION="$1"
    sh "$here/../tools/compare/compare_hosts.sh" "$bin/twill-compare" 1 --max "$(few 64K 16M)" --rounds "$(few 1 3)" --json "$work/raw.json" \
        ${quick:+--quick --only allreduce_in} >"$work/out" 2>&1 || { tail -n 3 "$work/out" && return 1; }
    unset TEST_HOSTS_CONGESTION
    python3 "$here/../common/study_file.py" --compare "$study" "$work/raw.json" sh bench/results/measure.sh "$study"
}
measure_two_hosts_reno() { between reno; }
measure_two_hosts_cubic() { between cubic; }
# Four ranks on two hosts with bbr and with reno, in turns.
measure_congestion()
{
    for what in allreduce:4M allgather:4M broadcast:4M alltoall:16M; do
        size=$(few 64K "${what#*:}")
        for control in bbr reno; do
            RANKS=2 CONGESTION=$control sh "$studies/between_hosts.sh" "$bin" none twill-bench "${what%:*}" -b "$size" -e "$size" -n "$(few 3 20)" \
                >"$work/$control"
        done
        awk -v what="${what%:*}" '$1 + 0 > 0 && NF > 7 { time[FILENAME] = $6; bytes = $1 }
            END { print "2x2", "twill-bench", what, bytes, time[ARGV[1]], time[ARGV[2]] }' "$work/bbr" "$work/reno"
    done | table times 'ranks,program,collective,bytes:B,bbr:us,reno:us'
}
measure_memory_kinds()
{
    MEMKIND_HBW_NODES=0 "$bin/twillrun" -n 2 "$bin/twill-place" -b "$(few 1M 32M)" -n "$(few 1 7)" | awk '
        $1 == "#" && $2 == "memory" && $3 == "triad" { for (i = 3; i < NF; i += 2) name[i - 1] = $i }
        $1 == "ddr" { for (i in name) ddr[i] = $i }
        $1 == "mcdram" { for (i = 2; i in name; i += 2) print name[i], ddr[i], $i }' | table rates 'what,ddr:GB/s,mcdram:GB/s'
}
measure_many_cores()
{
    sh "$studies/many_cores.sh" --bin "$bin" --out "$work/many" ${quick:+--quick}
    cp "$work/many/many-cores.json" "${STUDY_RESULTS:-$here}"
}

# --- training ---------------------------------------------------------------------------------------
# steps SETTING TFLOPS MODELS COMMAND...: rows of a comparison of training steps
steps()
{
    setting=$1 tflops=$2 models=$3
    shift 3
    for model in $models; do
        "$@" --steps "$lists/$model.txt" --device --device-gflops $((tflops * 1000)) --rounds "$(few 1 3)" --quick --json "$work/raw.json" >"$work/out" 2>&1 ||
            { tail -n 3 "$work/out" >&2 && return 1; }
        python3 "$here/../common/study_file.py" --steps "$work/raw.json" "$setting" "$tflops"
    done
}
measure_training_steps()
{
    hosts="sh $here/../tools/compare/compare_hosts.sh $bin/twill-compare 1"
    {
        steps "one node" 10 "$(few orlob "resnet50 nt3")" "$bin/twill-compare"
        # shellcheck disable=SC2086 # a command and its words
        for tflops in $(few 1 "1 2"); do
            RATE=1gbit steps "two hosts, 1 Gbit/s" "$tflops" "$(few orlob resnet50)" $hosts
        done
        # shellcheck disable=SC2086
        [ -n "$quick" ] || RATE=10gbit steps "two hosts, 10 Gbit/s" 2 nt3 $hosts
    } | table exposed 'model,setting,device:Tflop/s,computing:ms,library,reduces,exposed:ms'
}
measure_training_overlap()
{
    for model in $(few orlob:1000 "resnet50:1000 googlenet:1000 alexnet:100 vgg16:1000"); do
        for progress in tests thread; do
            [ $progress = tests ] && overlap='test' thread='' || overlap=none thread=thread
            PROGRESS=$thread sh "$studies/overlap_hosts.sh" "$bin" "${model%:*}" --overlap "$overlap" --device \
                --device-gflops "${model#*:}" -n "$(few 2 5)" -w 1 |
                awk -v model="${model%:*}" -v tflops="${model#*:}" -v progress=$progress '$1 == "default" && NF > 15 {
                    print model, tflops / 1000, progress, $5, $6, $9, $12 }'
        done
    done | table steps 'model,device:Tflop/s,progress,computing:ms,reduction:ms,after it:ms,overlapped:ms'
}
measure_training_buckets()
{
    sh "$studies/overlap_hosts.sh" "$bin" "$(few orlob resnet50)" --overlap test --device --device-gflops 400 --bucket 256K,1M,4M,16M,64M -n 3 -w 1 |
        awk '$1 + 0 > 0 && NF > 15 { print $1, $10, $13 }' | table exposed 'bucket:B,after the backward pass:ms,during it:ms'
}
measure_compression()
{
    for rate in $(few 1gbit "250mbit 1gbit 4gbit 10gbit 40gbit"); do
        sh "$studies/between_hosts.sh" "$bin" "$rate" compression.py "$(few 65536 4194304)" | awk -v rate="$rate" '
            $1 + 0 > 0 { ratio[$2] = $5 }
            END { print rate ~ /gbit/ ? 1000 * rate : rate + 0, ratio["f32"], ratio["f16"], ratio["int8"], ratio["f8e4m3"], ratio["top_k"] }'
    done | table link 'link:Mbit/s,f32:x,f16:x,int8:x,f8e4m3:x,top_k:x'
    for _ in 1 $(few '' '2 3'); do
        "$bin/twillrun" -n 2 python3 "$studies/compression.py" "$(few 65536 16777216)"
    done | awk '$1 + 0 > 0 && $2 != "f32" {
            if (!($2 in least)) { order[++n] = $2; least[$2] = most[$2] = $5 }
            if ($5 < least[$2]) least[$2] = $5
            if ($5 > most[$2]) most[$2] = $5
        }
        END { for (i = 1; i <= n; i++) print order[i], least[order[i]], most[order[i]] }' | table node 'code,least:x,most:x'
}
measure_studies()
{
    # shellcheck disable=SC2046 # names of studies
    sh "$here/../../examples/studies.sh" --bin "$bin" --out "$work/studies" ${quick:+--quick} $(few "overhead hour models" '') >"$work/out" || tail -n 3 "$work/out"
    # shellcheck disable=SC2016 # Markdown's
    sed -n 's/^| `\([a-z0-9]*\)` | \(.*\) | \(.*\) |$/\1\t\2\t\3/p' "$work/studies/report.md" | table studies 'study,published,here'
}

# The processor time of a training by its mini-batch, medians of rounds in which all take turns.
measure_batch_sweep()
{
    "$bin/nt3" --make "$work/nt3.csv" --samples "$(few 100 800)" --features "$(few 400 2000)"
    for _ in $(seq "$(few 1 9)"); do
        for ranks in 1 2; do
            DATA=$work/nt3.csv HIDDEN=$(few 16 256) BATCHES=$(few "8 32" "2 4 8 16 32 64 128") RATES=0.02 SCALES=none \
                sh "$data/../recipes/sweep.sh" "$bin" $ranks "$(few 1 2)" | awk -v ranks=$ranks 'NR > 1 { print ranks, $1, $4, $9, $5, $8 }'
        done
    done | sort -k1,1n -k2,2n -k4,4g | awk '
        function put() { if (n) print ranks, batch, syncs, p[int((n + 1) / 2)], p[1], p[n], t[int((n + 1) / 2)], right, n }
        $1 != ranks || $2 != batch { put(); ranks = $1; batch = $2; syncs = $3; right = $6; n = 0 }
        { p[++n] = $4; for (i = n; i > 1 && t[i - 1] > $5; i--) t[i] = t[i - 1]; t[i] = $5 }
        END { put() }' | table times 'ranks,batch,updates,processor:s,lowest:s,highest:s,time:s,accuracy,rounds'
}
measure_training_comparison()
{
    HIDDEN=$(few 16 128) SAMPLES=$(few 100 800) FEATURES=$(few 400 2000) sh "$studies/training_comparison.sh" "$bin" "$(few 1 9)" "$(few 2 12)" |
        table ways 'way,ranks,nodes,accuracy,to accuracy:s,lowest:s,highest:s,time:s,lowest time:s,efficiency,best efficiency,processor efficiency,overhead:%,power:W,cost'
}
# --- parameter servers ------------------------------------------------------------------------------
# ablation NODES: rows of ablation.sh.
ablation()
{
    NODES=$1 sh "$studies/server/ablation.sh" "$bin" "$(few 1 "${ROUNDS:-9}")" "$(few 1 "${STEPS:-10}")" | awk '
        / ranks, .* rounds of / { sub(/,.*/, "", $1); model = $1; next }
        / - [0-9.]+ +[0-9.]+ +[0-9.]+ - / { n = split(substr($0, 29), v, " "); name = substr($0, 1, 28); sub(/ +$/, "", name)
            print model "\t" name "\t" v[1] "\t" v[2] "\t" v[4] "\t" v[5] "\t" v[6] "\t" v[8] "\t" v[9] }'
}
rates='model,program,median:1/s,lowest:1/s,highest:1/s,ratio:x,lowest ratio:x,highest ratio:x,rounds'
measure_server_ablation()
{
    MODELS=$(few orlob resnet50) ablation 1 | table rates "$rates"
}
measure_server_nodes()
{
    ONLY=twill MODELS=orlob ablation 2 | table rates "$rates"
}
# Only what twill does itself, on one node, for a machine without other libraries.
measure_server_switches()
{
    ONLY=twill MODELS=$(few orlob resnet50) ablation 1 | table rates "$rates"
}
measure_server_chunks()
{
    for model in $(few orlob "resnet50 alexnet googlenet"); do
        SIZES=$(few "64K 128K 0" "8K 16K 32K 64K 128K 256K 1M 0") sh "$studies/server/chunks.sh" "$bin" "$model" "$(few 1 3)" "$(few 1 4)" |
            awk -v model="$model" '/ - [0-9]/ { n = $1 == "tensors" ? 0 : $1 * ($1 ~ /K/ ? 1024 : 1048576); print model, n, $2, $6 }'
    done | table rates 'model,chunk:B,one node:1/s,two nodes:1/s'
}
# worker.c, four workers and a server in all modes: mean losses of all workers' mini-batches in forty intervals.
measure_server_modes()
{
    cd "$work"
    for set in wdbc digits; do
        epochs=$(few 1 "$([ $set = wdbc ] && echo 25 || echo 12)")
        for mode in sync k-sync k-batch-sync k-async k-batch-async async softsync bounded groups; do
            "$bin/twillrun" -n 5 --bind none --oversubscribe "$bin/worker" --data "$data/$set.csv" --layout nc --mode "$mode" --k 2 --epochs "$epochs" --rate 0.05 \
                --wait 5 --curve "$set-$mode" >"$work/out" || return 1
            for column in 2 3; do
                sort -g -k$column,$column "$set-$mode".[1-4] | awk -v c=$column '
                    { x[NR] = $c; y[NR] = $4 }
                    END {
                        size = NR / 40
                        for (i = 1; i <= NR; i++) {
                            sx += x[i]; sy += y[i]; n++
                            if (i >= size * (bin + 1)) { print sx / n, sy / n; sx = sy = n = 0; bin++ }
                        }
                    }' >means.$column
            done
            paste -d' ' means.3 means.2 | awk -v set=$set -v mode="$mode" '{ printf "%s %s %.0f %.3g %.4g %.3g\n", set, mode, $1, $2, $3, $4 }'
        done
    done | table loss 'data,mode,updates,loss,time:s,loss at that time'
}
# Medians of rounds in which all numbers of credits take turns: behind a link that loses packets, and on one that loses none.
measure_server_credits()
{
    while read -r name hosts rate queue chunk; do
        for _ in 1 $(few '' '2 3'); do
            # shellcheck disable=SC2046 # numbers
            RATE=$rate QUEUE=$queue CHUNK=$chunk sh "$studies/server/incast_hosts.sh" "$bin" "$hosts" "$(few 4 30)" $(few "1 1024" "1 2 4 8 16 1024") </dev/null
        done | awk '$1 + 0 > 0 && NF == 4' | sort -k1,1n -k3,3g | awk '
            function put() { if (n) print credits, p50[int((n + 1) / 2)], p99[int((n + 1) / 2)], p99[1], p99[n], sprintf("%.0f", lost / n) }
            $1 != credits { put(); credits = $1; n = lost = 0 }
            { p99[++n] = $3; lost += $4; for (i = n; i > 1 && p50[i - 1] > $2; i--) p50[i] = p50[i - 1]; p50[i] = $2 }
            END { put() }' | table "$name" 'credits,median:ms,99th percentile:ms,lowest:ms,highest:ms,packets lost'
    done <<LIST
incast $(few 3 10) 100mbit 96kb 8K
alone 2 400mbit 16mb 32K
LIST
    sh "$studies/server/pipeline_hosts.sh" "$bin" "$(few 2 20)" | awk '$1 + 0 > 0 && NF == 3' | table chunks 'chunks,measured:ms,formula:ms'
}
measure_server_update()
{
    "$bin/twill-bench" kernels f32 -b 1M -e "$(few 1M 64M)" -f 64 | awk '
        $2 == "f32" && NF > 9 { ns[$1, $3, $5] = $7; rate[$1, $3, $5] = $8; scalar[$1, $3, $5] = $9; triad[$1, $3, $5] = $10; size[$5] }
        END { for (n in size) for (w = 2; w <= 8; w += 6)
            print n, w, ns["sgd", "x" w, n], scalar["sgd", "x" w, n], ns["sum", "x" w, n], ns["sgd", "x1", n], rate["sgd", "x" w, n], triad["sgd", "x" w, n] }' |
        sort -n | table kernels 'bytes:B,workers,fused:ns/element,scalar:times fused,sum:ns/element,update:ns/element,rate:GB/s,rate of a triad:x'
}
measure_server_workers()
{
    sh "$studies/server/workers.sh" "$bin" "$(few orlob googlenet)" "$(few 2 5)" | awk '$1 + 0 > 0 && NF == 4 && $1 !~ /#/ { print $1, $2, $4 }' |
        table rates 'workers,exchanges:1/s,rate:GB/CPU s'
}
measure_server_delays()
{
    {
        sh "$studies/server/delays.sh" "$bin" 4 "$(few 5 250)" "$(few 20 300)" | awk '/^[a-z].*\./ { print 4, $0 }'
        [ -n "$quick" ] || ONLY=softsync sh "$studies/server/delays.sh" "$bin" 30 300 | awk '/^[a-z].*\./ { print 30, $0 }'
    } >"$work/delays"
    awk '$7 > 0 { print $1, $2, $7, $8 }' "$work/delays" | table staleness 'workers,mode,measured,simulated'
    awk '{ if (!($1 in least) || $6 < least[$1]) least[$1] = $6; if ($6 > most[$1]) most[$1] = $6 } END { for (n in least) print n, least[n], most[n] }' "$work/delays" |
        sort -n | table time 'workers,least:x,most:x'
}
measure_server_traffic()
{
    sh "$studies/server/traffic_hosts.sh" "$bin" | awk '$2 ~ /^[0-9]$/' |
        table ranks 'layout,rank,sent:B,received:B,sent on the link:B,received on the link:B,metadata:B,as by the formula'
}

# --- PyTorch and Python -----------------------------------------------------------------------------
torch_tables()
{
    STUDY_VERSIONS=PyTorch=$("$python" -c 'import torch; print(torch.__version__)')
    export STUDY_VERSIONS
    KEEP=$work PYTHON=$python "$@" >"$work/out" 2>&1 || { tail -n 3 "$work/out" >&2 && return 1; }
}
measure_pytorch()
{
    SIZES=$(few 8,64K 8,64,512,4K,16K,64K,256K,1M,4M,16M,32M,64M) torch_tables sh "$studies/torch/tables.sh" "$bin/.." "$(few 70 330)"
    for name in "one node:2" "one node (4):4" "two hosts:2" "two hosts (4):4"; do
        awk -F, -v OFS='\t' -v ranks="${name#*:}" -v hosts="${name%:*}" 'NF == 6 && $2 + 0 > 0 { sub(/ .4.$/, "", hosts); print ranks, hosts, $2, $1, $3, $5 }' "$work/${name%:*}.csv"
    done >"$work/rows"
    grep -v ddp_step "$work/rows" | table times 'ranks,hosts,bytes:B,call,twill:us,Gloo:us'
    awk -F '\t' -v OFS='\t' '$4 == "ddp_step" { print $1, $2, $5 / 1000, $6 / 1000 }' "$work/rows" | table steps 'ranks,hosts,twill:ms,Gloo:ms'
}
measure_pytorch_copies()
{
    for memory in private shared; do
        HEAP=$([ $memory = private ] || echo 1) RANKS="2 4" SIZES=32M torch_tables sh "$studies/torch/tables.sh" "$bin/.." "$(few 20 60)"
        for ranks in 2 4; do
            awk -F, -v memory=$memory -v ranks=$ranks '$2 == 33554432 && $1 != "ddp_step" { print memory "\ttwill\t" $1 "\t" ranks "\t" $5 / $3 }' "$work/one node ($ranks).csv"
        done
        sed -n "s/^\([a-z_]*\) of 32 MiB, \([24]\) ranks.*at most \([0-9.]*\) times Gloo; in private memory [0-9]* us, \([0-9.]*\) times.*/\1 \2 \3 \4/p" "$work/out" |
            awk -v memory=$memory '{ print memory "\tcopies and sums alone\t" $1 "\t" $2 "\t" (memory == "shared" ? $3 : $4) }'
    done | awk -F '\t' -v OFS='\t' '{ key = $1 OFS $2 OFS $3; if (!(key in first)) order[++n] = key; if ($4 == 2) first[key] = $5; else second[key] = $5 }
        END { for (i = 1; i <= n; i++) print order[i], first[order[i]], second[order[i]] }' | table ratios 'memory,what,call,2 ranks:x,4 ranks:x'
}
measure_pytorch_calls()
{
    export OMP_NUM_THREADS=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=29519
    RANK=0 WORLD_SIZE=1 "$python" "$studies/torch/compare.py" --layers >"$work/layers"
    tr -d , <"$work/layers" | awk '
        BEGIN { split("all_reduce broadcast all_gather_single reduce_scatter_single all_to_all_single", calls, " ") }
        { call = $1; sub(/:$/, "", call); nothing = / does nothing/
          for (i = 1; i <= NF; i++) if ($i == "median") { layer = $(i - 1); sub(/:$/, "", layer); v[nothing ? layer " over a backend that does nothing" : layer, call] = $(i + 1) } }
        END { n = split("dist;group;backend;dist over a backend that does nothing;group over a backend that does nothing", layers, ";")
              for (l = 1; l <= n; l++) { line = layers[l]; for (c = 1; c <= 5; c++) line = line "\t" (((layers[l], calls[c]) in v) ? v[layers[l], calls[c]] : "-"); print line } }' |
        table layers 'layer,all_reduce:us,broadcast:us,all_gather_single:us,reduce_scatter_single:us,all_to_all_single:us'
    pair() { RANK=1 WORLD_SIZE=2 "$python" "$studies/torch/compare.py" "$@" >"$work/other" & RANK=0 WORLD_SIZE=2 "$python" "$studies/torch/compare.py" "$@" && wait; }
    pair --layers | sed -n 's/^\(.*\): median \([0-9.]*\) us one way.*/\1\t\2/p' | table messages 'by,one way:us'
    pair --groups "$(few 10 60)" | tr -d , | awk '{ for (i = 1; i < NF; i++) if ($i == "made" || $i == "call" || $i == "ended") v[$1 $i] = $(i + 1) }
        END { print "create\t" v["twill:made"] "\t" v["gloo:made"]; print "first call\t" v["twill:call"] "\t" v["gloo:call"]; print "destroy\t" v["twill:ended"] "\t" v["gloo:ended"] }' |
        table groups 'what,twill:ms,Gloo:ms'
}
measure_pytorch_16_bits()
{
    for run in 1 $(few '' 2); do
        RATE=1gbit HOOKS=1 torch_tables sh "$studies/torch/tables.sh" "$bin/.." "$(few 70 330)"
        awk -v run="$run" '$1 == "ddp_step" { print $2 / 1e6, run, $3 / 1000, $5 / 1000, $7 / 1000, $9 / 1000 }' "$work/out"
    done | sort -n | table steps 'gradients:MB,run,twill f32:ms,twill bfloat16:ms,twill float16:ms,Gloo f32:ms'
}
measure_python_calls()
{
    for ranks in 1 2; do
        "$bin/twillrun" -n $ranks python3 "$studies/python_overhead.py" | awk -v ranks=$ranks 'NR > 2 { form = substr($0, 1, 30); sub(/ +$/, "", form); print ranks "\t" form "\t" $(NF - 2) "\t" $NF }'
    done | table times 'ranks,form,least:us,over C:us'
}

# --- failures and protection ------------------------------------------------------------------------
# Milliseconds from each kill to the last survivor, on one node and on two: medians and largest.
measure_recovery_times()
{
    for layout in '' nodes=2x2; do # a rank that replaces one of a declared layout gets a node of its own
        for _ in 1 $(few '' '2 3'); do
            env TEST_TIMES=1 ${layout:+"TWILL_LAYOUT=$layout"} "$bin/twillrun" --elastic 2:4 --bind none "$bin/../tests/replaced" "$(few 3 9)" kill 2>&1
        done | awk '/^time: / { if ($3 == "death") { death = $2; n++ } else if (n && 1000 * ($2 - death) > last[$3, n]) last[$3, n] = 1000 * ($2 - death) }
            END { for (i = 1; i <= n; i++) for (k = split("error shrunk sum grown", event, " "); k; k--) if ((event[k], i) in last) print k, last[event[k], i] }' |
            sort -k1,1n -k2,2g | awk '{ v[$1, ++n[$1]] = $2 } END { for (k = 1; k <= 4; k++) printf "%.0f %.0f\n", v[k, int((n[k] + 1) / 2)], v[k, n[k]] }' >"$work/times-$layout"
    done
    printf '%s\n' "a survivor's call has failed" "the communicator is shrunk" "the first sum of the survivors is right" "four ranks again, with a new process" |
        paste - "$work/times-" "$work/times-nodes=2x2" | awk -F '\t' -v OFS='\t' '{ split($2, a, " "); split($3, b, " "); print $1, a[1], a[2], b[1], b[2] }' |
        table times 'until,one node:ms,largest:ms,two nodes:ms,largest of two nodes:ms'
}
# train.c on four ranks, one of which is killed every three seconds and replaced, and without deaths.
measure_recovery_loss()
{
    training() { "$bin/twillrun" --elastic 2:4 --bind none "$bin/train" --data "$data/wdbc.csv" --elastic --pause 18; }
    [ -n "$quick" ] || training >"$work/alive"
    training >"$work/killed" 2>"$work/deaths" &
    run=$!
    for nth in 4 1 3 2; do # of twillrun's children, so that each rank dies once
        sleep 3
        launcher=$(pgrep -P $run -x twillrun || echo $run)
        kill -9 "$(pgrep -P "$launcher" -x train | sed -n ${nth}p)"
    done
    wait $run
    [ -z "$quick" ] || cp "$work/killed" "$work/alive"
    {
        awk '$1 == "epoch" && n++ % 3 == 0 { print "no rank dies\t" $6 "\t" $4 }' "$work/alive"
        awk '$1 == "epoch" && n++ % 3 == 0 { print "ranks die and are replaced\t" $6 "\t" $4 }' "$work/killed"
        awk '$1 == "shrunk" { print "three ranks go on\t" $8 "\t-" }' "$work/killed"
        awk '$1 == "grown" { print "four ranks again\t" $6 "\t-" }' "$work/killed"
    } | table loss 'run,time:s,loss'
}
measure_campaign()
{
    seed=$(date +%Y%m%d)
    "$bin/../tests/campaign" --trials "$(few 30 10000)" --seed "$seed" --jobs "$(few 4 12)" >"$work/out" || true
    awk '$2 == "one" || $2 == "several" { print $1, $2, $3, $4, $5, $6, $8, $9, $10 }' "$work/out" |
        table node 'fault,nodes,trials,error median:s,error 99 %:s,error most:s,sum median:s,sum 99 %:s,sum most:s'
    awk -v seed="$seed" '/ trials in .* failed$/ { print "one machine, one node and virtual nodes\t" $1 "\t" $(NF - 1) "\t" seed }' "$work/out" | table runs 'run,trials,failed,seed'
}
measure_protection()
{
    sh "$studies/protection.sh" "$bin" "$(few 1 7)" | awk '$5 == "us" {
        nodes = $1 == "2" ? "one" : "two"
        variant = $2 == "checksums" ? "TWILL_CHECKSUM=network" : $2 == "encrypted" ? "TWILL_ENCRYPT=1" : $2 == "all-checksums" ? "TWILL_CHECKSUM=all" : "none"
        if ($3 > 8192) print nodes, variant, $3, $4, $6 }' | sort -k1,1r -k3,3n | table times 'nodes,variant,bytes:B,time:us,ratio:x'
}

# --- simulation -------------------------------------------------------------------------------------
# Repeats to the bit, whatever else the machine does.
measure_simulation()
{
    simulate() { "$bin/twill-simulate" --csv "$@"; }
    for workers in 2 4 8 16 32 64 128 256 512 1024; do
        half=$((workers / 2))
        simulate -p $workers -u 4000 sync k-sync:$half k-batch-async:$half async
    done | awk -F, '$2 + 0 > 0 { sub(/:.*/, "", $1); print $1, $2, $3, $4 }' | table times 'mode,workers,simulated:s,exact:s'
    simulate -p 8 -u 50000 sync k-sync:4 k-async:4 k-batch-sync:4 k-batch-async:4 async |
        awk -F, '$2 + 0 > 0 { print $1, $3, $4 }' | table eight 'mode,simulated:s,exact:s'
    simulate --curve -p 8 -u 1000 -r 100 --rate 0.05 sync k-sync:4 k-batch-sync:4 k-async:4 k-batch-async:4 async |
        awk -F, '$2 + 0 > 0 && ($3 < 200 ? $3 % 20 == 0 : $3 % 50 == 0) { print $1, $3, $4, $5 }' | table tradeoff 'mode,updates,time:s,loss'
    for rule in fixed staleness distance:0.02; do
        simulate --curve -p 30 -u 1000 -r 20 -c uniform:0.5,1.5 --rate 0.9 --noise 0.01 --rule $rule async |
            awk -F, -v rule=$rule '$2 + 0 > 0 && $3 % 20 == 0 && $5 < 1e12 { print rule, $3, $5 }'
    done | table stability 'rule,updates,loss'
    simulate --histogram -p 30 -u 20000 -c uniform:0.5,1.5 softsync:1 softsync:15 softsync:30 |
        awk -F, '$2 + 0 > 0 && $5 > 0 { print $1, $3, $5 }' | table staleness 'mode,staleness,part'
    for endpoints in 1 2 4 8; do
        simulate -p 1,2,4,8,12,16,24,32,48,64 -u 3000 -c uniform:0.09,0.11 -b 100M --server-link 1250M --worker-link 1250M --endpoints $endpoints sync async |
            awk -F, -v endpoints=$endpoints '$2 + 0 > 0 { print endpoints, $1, $2, $6 }'
    done | table link 'endpoints,mode,workers,rate:1/s'
}

# The same every time, as it is simulated.
measure_theta()
{
    simulated() { "$bin/simulate-network" "$@" | sed 's/.*price \([0-9.]*\) us, simulated \([0-9.]*\) us/\1 \2/'; }
    # shellcheck disable=SC2046 # one option
    "$bin/simulate-network" $(few --nodes=24 --theta) >"$work/out"
    sed -n 's/|//gp' "$work/out" | awk '$1 + 0 > 0 { one = $2 == 1; print $1, $2, $3, $4, $5, $7, $9, one ? "-" : $11, one ? "-" : $13, $15 }' |
        table allreduce 'nodes,ranks a node,bytes:B,published:us,price:us,simulated:us,copies:us,node first:us,cache lines:us,detours:us'
    for nodes in 1024 4392; do
        for bytes in 8 2048 65536; do
            simulated -n $nodes -b $bytes | awk -v nodes=$nodes -v bytes=$bytes '{ print nodes, bytes, $2, $1 }'
        done
    done | table larger 'nodes,bytes:B,simulated:us,price:us'
    for algorithm in recursive_doubling halving_doubling torus ring multi_ring levels; do
        for tree in fattree fattree2 fattree4; do
            simulated -n 96 -b 4M -a $algorithm -w $tree
        done | awk -v algorithm=$algorithm 'NR == 1 { line = algorithm } { line = line " " $2 " " $1 } END { print line }'
    done | table trees 'algorithm,one to one:us,one to one price:us,two to one:us,two to one price:us,four to one:us,four to one price:us'
    nodes=$(few 96 384)
    for bytes in $(few 16384 "16384 262144 524288 1048576 2097152"); do
        chosen=
        for tree in fattree fattree2 fattree4; do
            set -- -n "$nodes" -b "$bytes" -w $tree
            "$bin/simulate-network" "$@" -a chosen >"$work/chosen"
            chosen=${chosen:-$(sed 's/@.*//' "$work/chosen")}
            echo "$tree $nodes $bytes $(sed 's/ .*//' "$work/chosen") $(sed 's/.*price \([0-9.]*\) us, simulated \([0-9.]*\) us/\1 \2/' "$work/chosen")" \
                "$chosen $(simulated "$@" -a "$chosen") $(simulated "$@" -a ring)"
        done
    done | table choices 'tree,nodes,bytes:B,chosen,price:us,simulated:us,one to one,its price:us,its simulated:us,ring price:us,ring simulated:us'
}
measure_many_ranks()
{
    for ranks in $(few 16 "64 128 256 512"); do
        sh "$studies/many_ranks.sh" "$bin" "$ranks" "$(few 2 8)" "$(few 10 60)" 2>>"$work/sentences"
    done | cut -d' ' -f1-13 | table ranks 'ranks,nodes,summed:s,init:s,sent by rank 0:KiB,PSS:KiB,heap:KiB,half told of the death:s,all told of the death:s,named the dead,half timed out:s,all timed out:s,named the absent'
}
# Connections and bytes, which do not depend on what else runs.
measure_many_ranks_counted()
{
    for ranks in $(few 8 "16 32 64 128"); do
        sh "$studies/many_ranks.sh" "$bin" "$ranks" "$(few 2 8)" 10 2>>"$work/sentences"
    done | cut -d' ' -f1,2,5,14-19 | table counted 'ranks,nodes,sent by rank 0:KiB,set-up connections,set-up:KiB,death connections,death:KiB,timeout connections,timeout:KiB'
}

[ $# -gt 0 ] || eval "set -- $(echo "$all" | tr '\n' ' ')"
failed='' started=$(date +%s) total=$# done=0
# ticks: processor time of this machine until now, busy and in all, and that of this shell's children, in hundredths of a second
ticks()
{
    times >"$work/times"
    awk 'FNR == NR { if (/^cpu /) print $2 + $3 + $4 + $7 + $8 + $9, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9; next }
        FNR == 2 { for (i = 1; i < 3; i++) { split($i, t, /[ms]/); own += 6000 * t[1] + 100 * t[2] } print own }' /proc/stat "$work/times" | paste -sd' '
}
for study in "$@"; do
    echo " $all " | tr '\n' ' ' | grep -q " $study " || { echo "measure.sh: there is no study '$study': --list" >&2 && exit 2; }
    begins=$(date +%s) status=0
    ticks >"$work/ticks"
    echo "== $study"
    # on a terminal, how far all studies are
    [ ! -t 2 ] || [ $total -eq 1 ] || echo "   study $((done + 1)) of $total$([ $done -eq 0 ] ||
        echo ", about $((((begins - started) * (total - done) / done + 30) / 60)) min left")" >&2
    set +e # in a shell of its own, so that a study that fails does not end the others
    (set -e && "measure_$(echo "$study" | tr - _)")
    status=$?
    set -e
    ticks >>"$work/ticks"
    # shellcheck disable=SC2046 # a number
    [ $status != 0 ] || python3 "$here/../common/study_file.py" --others "$study" $(awk '{ busy = $1 - busy; all = $2 - all; own = $3 - own }
        END { printf "%.0f", 100 * (busy - own) / all }' "$work/ticks")
    [ $status = 0 ] || failed="$failed $study"
    done=$((done + 1))
    echo "-- $(($(date +%s) - begins)) s"
done
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }
