#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# studies.sh [--quick] [--bin FOLDER] [--out FOLDER] [STUDY...] measures on this machine what was published of distributed
# training. It makes a table and, with gnuplot, a plot for each study, for all studies if none is named (--list prints their
# names), in some 5 minutes, with --quick in half of one. Numbers of ranks that this machine lacks are predicted by the price
# model, and the tables say so. --bin is the folder of the programs (build/bin). --out is the folder that keeps what is printed
# (studies), with report.md, one line a study. `sh bench/results/measure.sh studies` makes docs/results/studies.md of it.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
bin=$here/../build/bin out=studies quick=0
lists=$here/../bench/gradients
[ -d "$lists" ] || lists=$here/../../../twill/gradients # installed
all="scaling overhead ratio minibatch hour models theta nodes placement pattern dresden epochs sweep averages pipeline hybrid loader nt3 memory energy messages oversubscribed aries"

while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=1 ;;
    --bin) bin=$2 && shift ;;
    --out) out=$2 && shift ;;
    --list) echo "$all" && exit ;;
    -*) echo "usage: studies.sh [--quick] [--bin FOLDER] [--out FOLDER] [STUDY...]" >&2 && exit 2 ;;
    *) break ;;
    esac
    shift
done
studies=${*:-$all}
for study in $studies; do
    echo " $all " | grep -q " $study " || { echo "studies.sh: there is no study '$study': --list" >&2 && exit 2; }
done
bin=$(cd "$bin" && pwd)
mkdir -p "$out"
out=$(cd "$out" && pwd)
data=$here/data/wdbc.csv
cores=$(nproc 2>/dev/null || echo 2)
ranks=2
while [ $((2 * ranks)) -le "$cores" ] && [ $ranks -lt 64 ]; do ranks=$((2 * ranks)); done
n=10
[ $quick = 0 ] || n=2
few=3 # steps where only the timer of one rank is measured
[ $quick = 0 ] || few=2
plots=
! command -v gnuplot >/dev/null || plots=1

# full WORDS prints the words in a whole run, and quickly WORDS prints them with --quick.
full() { [ $quick = 1 ] || echo "$@"; }
quickly() { [ $quick = 0 ] || echo "$@"; }

large=$(quickly googlenet)$(full resnet50) # the model of most studies

failed=
# command_of [VARIABLE=VALUE...] WORDS runs a command, prints it and its rows, and keeps all that it prints.
command_of()
{
    printf '$ %s\n' "$*" | sed "s|$bin/||g; s|$here/||g; s|$lists/||g; s|$out/||g" | tee -a "$out/$study.txt"
    status=0
    timeout 240 env "$@" >"$out/last" 2>"$out/err" || status=$?
    cat "$out/last" >>"$out/$study.txt"
    # Only the file has the settings of the job. Names of columns and words about the whole table are also shown.
    if [ -n "$shown" ]; then
        grep -E "$shown" "$out/last" || true
    else
        grep -E '^[^#]|^# (Size |memory +triad )|^# +(scaling |\(GB/s\))' "$out/last" || true
    fi
    grep -E '^# (overhead and|no speed-up|energy: )' "$out/last" || true
    [ $status = 0 ] || { cat "$out/err" && echo "FAILED: status $status" && failed="$failed $study"; }
}

# job N WORDS runs a command on N ranks.
job()
{
    of=$1
    shift
    command_of ${layout:+TWILL_LAYOUT=$layout} ${tuning:+TWILL_TUNING=$tuning} ${gradients:+TWILL_GRADIENTS=$gradients} "$bin/twillrun" -n "$of" "$@"
}

# train N WORDS runs twill-bench train on N ranks, which prints a table. It has its own JSON file and plot.
train()
{
    of=$1 trainings=$((trainings + 1))
    shift
    file=$out/$study$([ $trainings = 1 ] || echo -$trainings)
    job "$of" "$bin/twill-bench" train -n "$times" -w 1 -J "$file.json" ${plots:+--plot "$file.svg"} "$@"
}

# network GBIT [US] lets predictions be for a fat tree whose nodes have a link of GBIT Gbit/s and a latency of US us.
network()
{
    picoseconds=$((8192000 / $1)) # picoseconds of 1024 bytes
    printf 'twill-tuning 1\nmachine fattree\nmodel link.network.gap %s\nmodel link.group.gap %s\nmodel interface %s\n' \
        $picoseconds $picoseconds $picoseconds >"$out/network.tuning"
    [ $# = 1 ] || printf 'model link.network.latency %s\nmodel link.group.latency %s\n' "${2}000000" "${2}000000" >>"$out/network.tuning"
    echo "# network of $1 Gbit/s" >>"$out/$study.txt"
    tuning=$out/network.tuning
}

published()
{
    printf '  published: %s\n' "$@" | tee -a "$out/$study.txt"
}

# --- twill-bench train ------------------------------------------------------------------------------
study_scaling()
{
    published "weak scaling is T(1) / T(n), strong T(1) / (n T(n)): Horovod, 512 GPUs: 90 % (Inception V3, ResNet-101), 68 % (VGG-16)"
    train $ranks --list "$lists/$large.txt" --batch 32 --device-gflops 2000 --scaling both --ranks "1,$(seq -s, 2 2 $ranks),$((8 * ranks))" --per-node $ranks
}
study_overhead()
{
    published "Horovod's overhead on Theta grew with the nodes; T(n) - T(1) and the library's counter are within 10 %"
    layout=nodes=${ranks}x1
    train $ranks --list "$lists/$large.txt" --ranks 1,$ranks --compute-us "$(quickly 20000)$(full 5000,20000,40000)"
}
study_ratio()
{
    published "the ratio of computing to communication decides: sweep of computing, one model"
    train $ranks --list "$lists/$(quickly googlenet)$(full alexnet).txt" --ranks 1,$ranks --compute-us "$(quickly 10000)$(full 10000,30000,100000,300000)"
}
study_minibatch()
{
    published "the larger the mini-batch, the shorter an epoch (Goyal and others, 2017)"
    train $ranks --list "$lists/$large.txt" --ranks 1,$ranks --batch "$(quickly 8,32)$(full 8,16,32,64,128)" --device-gflops 5000 --samples 1281167
}
study_hour()
{
    published "ImageNet in 1 hour: about 90 % from 8 to 256 GPUs; 8 a server, 50 Gbit/s; ResNet-50, 32 images a GPU" \
        "TensorFlow on one P100: 195 images/s"
    network 50
    times=$few
    train 1 --list "$lists/$large.txt" --ranks 1,8,256 --per-node 8 --batch 32 --compute-us 164103 --samples 1281167
}
study_models()
{
    published "Horovod, 128 servers of 4 Pascal GPUs, 25 Gbit/s: 90 % Inception V3, ResNet-101; 68 % VGG-16, the worst; on 32 servers 90, 90, 79 %" \
        "TensorFlow on one P100: Inception V3 142, ResNet-50 219, ResNet-152 91.8, VGG-16 154, AlexNet 2,987 images/s" \
        "ResNet-101 is taken to be between the other two by its multiply-adds, GoogLeNet to be as fast as Inception V3 by them"
    network 25
    times=$few
    if [ $quick = 1 ]; then
        train 1 --list "$lists/googlenet.txt" --ranks 1,512 --per-node 4 --batch 64 --device-gflops 4900
        return
    fi
    for model in inceptionv3:450704 resnet101:494800 vgg16:415584 resnet50:292237; do
        train 1 --list "$lists/${model%:*}.txt" --ranks 1,512 --per-node 4 --batch 64 --compute-us ${model#*:}
    done
    train 1 --list "$lists/googlenet.txt" --ranks 1,512 --per-node 4 --batch 64 --device-gflops 4900
    train 1 --list "$lists/alexnet.txt" --ranks 1,512 --per-node 4 --batch 512 --compute-us 171409
    # This is as it was published. NCCL has a ring over all ranks, whose step takes 14 us between servers in NCCL's own
    # model, and Horovod has 64 MiB of fusion.
    network 25 14
    gradients=bucket=64M
    train 1 --list "$lists/vgg16.txt" --ranks 1,128,512 --per-node 4 --batch 64 --compute-us 415584 --algorithm allreduce:ring
    gradients=
    network 25
    # This shows what makes VGG-16 the worst. It is not at Inception V3's speed by multiply-adds, nor on 96 Gbit/s, and
    # it is worse at 21 of the 25 Gbit/s.
    train 1 --list "$lists/vgg16.txt" --ranks 1,512 --per-node 4 --batch 64 --device-gflops 4900
    for rate in 96 21; do
        network $rate
        train 1 --list "$lists/vgg16.txt" --ranks 1,512 --per-node 4 --batch 64 --compute-us 415584
    done
}
study_theta()
{
    published "NT3 on Theta: Horovod's overhead increases significantly with the nodes (25, 100, 400)"
    times=$few
    train 1 --list "$lists/$(quickly googlenet)$(full nt3).txt" --machine theta --per-node 1 --ranks 1,24,100,400,4392 --batch 20 --device-gflops 1000
}
study_nodes()
{
    published "scale-up and scale-out: 4 ranks in one node, two and four"
    for layout in $(full nodes=1x4 nodes=2x2) nodes=4x1; do
        train 4 --list "$lists/googlenet.txt" --ranks 1,4 --batch 32 --device-gflops 5000
    done
}
study_placement()
{
    published "ranks around the nodes cross them more often in a ring in their order (8 nodes of 4: 32 times, not 8: test_algorithms_world); twill's rings go by nodes"
    shown='is chosen|^  network'
    for layout in nodes=2x2 nodes=2x2:cyclic; do
        for algorithm in auto ring; do
            job 4 env TWILL_ALGORITHM=allreduce:$algorithm "$bin/twill-info" --why allreduce 4M f32
        done
    done
}
study_pattern()
{
    published "PyTorch's DataParallel: the root moves 2n(P-1) bytes; DistributedDataParallel: each rank sends 2n(P-1)/P"
    layout=nodes=4x1
    train 4 --list "$lists/$(quickly orlob)$(full resnet50).txt" --pattern both --ranks 1,2,4 --compute-us "$(quickly 2000)$(full 50000)"
}
study_dresden()
{
    published "153,441 parameters, 613,764 B, batch 75 of 750,000: 10,000 synchronisations an epoch, 10,000/P on P ranks; 28 % of the time: 1/0.72 = 1.39 times as fast without"
    train $ranks --list "$lists/orlob.txt" --batch 75 --samples 750000 --compute-us 1500 --ranks 1,2,30,100,400 --per-node 1
    shown='^allreduce|is chosen'
    command_of "$bin/twill-info" --why allreduce 613764 f32 --world 30x1
}

# --- recipes ----------------------------------------------------------------------------------------
study_epochs()
{
    published "NT3, 400 epochs divided by 25, 100, 400 nodes, no shards: 896, 224, 56 allreduces a rank"
    job 4 "$bin/sharding" --data "$data" --epochs "$(quickly 40)$(full 400)"
    [ $quick = 1 ] || job 25 "$bin/sharding" --data "$data" --epochs 400 --split=epochs
}
study_sweep()
{
    published "rate = 0.1 kn/256 (Goyal and others); runtime falls with the batch, and the accuracy, too"
    command_of BATCHES="$(quickly '16 128')$(full '8 16 32 64 128 256')" RATES="$(quickly 0.2)$(full '0.05 0.2')" sh "$here/recipes/sweep.sh" "$bin" 2 "$(quickly 10)$(full 40)"
}
study_averages()
{
    published "averaging models, after steps of their own, is not averaging gradients"
    job 4 "$bin/averages"
}
study_pipeline()
{
    published "DistBelief: 2.2 times on 8 machines (42 M parameters), 12 times on 81 (1.7 G): models across machines; here: equal to one rank"
    job 2 "$bin/pipelines"
}
study_hybrid()
{
    published "DistBelief: models across machines, and several of them; here: equal to one rank"
    job 4 "$bin/pipelines"
    job 4 "$bin/grid"
}
study_loader()
{
    published "PyTorch's loader: several workers, pinned memory; without prefetching the training waits"
    for depth in 0 4; do
        job 2 "$bin/loader" --data "$data" --depth $depth --workers 2 --batches "$(quickly 20)$(full 200)"
    done
}
study_nt3()
{
    published "loading was NT3's bottleneck: 597 MB, 1,120 and 280 samples of 60,483 features"
    [ -s "$out/nt3.csv" ] || command_of "$bin/nt3" --make "$out/nt3.csv" --samples "$(quickly 100)$(full 1400)" --features "$(quickly 400)$(full 60483)"
    job 2 "$bin/nt3" --data "$out/nt3.csv" --epochs "$(quickly 6)$(full 2)" --batch "$(quickly 5)$(full 20)" --filters "$(quickly 4)$(full 8)"
    # NT3's own network has 619.7 MB of gradients. It gets a few samples of its size.
    command_of "$bin/nt3" --make "$out/nt3.csv" --samples 10 --features "$(quickly 400)$(full 60483)"
    job 2 "$bin/nt3" --data "$out/nt3.csv" --whole --epochs 1 --batch 4
    rm -f "$out/nt3.csv"
}

# --- memory, energy, networks -----------------------------------------------------------------------
study_memory()
{
    published "STREAM triad on a KNL: MCDRAM flat 485, DDR 88, cache mode 352 and, beyond 16 GB, 59 GB/s"
    job 2 "$bin/twill-place" -b "$(quickly 1M)$(full 32M)" -n "$(quickly 1)$(full 5)"
}
study_energy()
{
    published "NT3 on Theta: the larger the rate, the slightly lower the power; up to 41.78 % less energy by faster loading"
    train $ranks --list "$lists/orlob.txt" --ranks 1,$ranks --compute-us 1500 --core --energy
}
study_messages() # OSU's and fi_pingpong's figures
{
    published "Theta: 6.1 to 7.1 GB/s from one rank, 7.8 from four; 0.71 million messages a second a rank"
    for measurement in latency bandwidth bibw rate multi-pair incast overlap registration; do
        job 2 "$bin/twill-bench" $measurement -b 8 -e "$(quickly 8)$(full 1M)" -f 64
    done
}
study_oversubscribed()
{
    published "oversubscribed links between groups change the choice to an algorithm that crosses them less"
    shown='^allreduce|is chosen'
    for machine in fattree fattree2 fattree4; do
        command_of "$bin/twill-info" --why allreduce 8K f32 --world groups=4,nodes=6,ranks=1 --machine $machine
    done
}
study_aries() # Theta's allreduce, simulated
{
    published "33.6, 41.3, 51.9, 172 us for 8 B on 12, 24, 48, 384 nodes; 70, 86, 178, 235 us for 2 KiB on 48 nodes with 1, 4, 16, 64 ranks"
    if [ -x "$bin/simulate-network" ]; then
        command_of "$bin/simulate-network" "$(quickly --nodes=24)$(full --theta)"
    else
        echo "not built: it needs libsimgrid-dev"
    fi
}

date "+twill's studies, %F %T: $(uname -nm), $cores cores; predicted rows are of the price model, not measured"
rm -f "$out/figures.tsv"
began=$(date +%s)
for study in $studies; do
    layout=
    tuning=
    gradients=
    shown=
    times=$n
    begins=$(date +%s)
    printf '\n== %s\n' "$study"
    rm -f "$out/$study".json "$out/$study".svg "$out/$study"-[0-9]*.json "$out/$study"-[0-9]*.svg
    trainings=0
    : >"$out/$study.txt"
    "study_$study"
    printf '%s\t%s\n' "$study" "$(awk -v study="$study" -f "$here/studies_figures.awk" "$out/$study.txt")" >>"$out/figures.tsv"
    echo "-- $(($(date +%s) - begins)) s"
done
{
    date "+# twill's studies, %F %T: $(uname -nm), $cores cores"
    printf '\n| study | published | here |\n|---|---|---|\n'
    while IFS='	' read -r study figures; do
        echo "| \`$study\` | $(sed -n 's/^  published: //p' "$out/$study.txt" | paste -sd ';' | sed 's/; */; /g') | $figures |"
    done <"$out/figures.tsv"
} >"$out/report.md"
rm -f "$out/last" "$out/err" "$out/network.tuning"
printf '\nkept in %s: report.md has one line a study (%s s in all)\n' "$out" $(($(date +%s) - began))
[ -z "$failed" ] || { echo "failed:$failed" && exit 1; }
