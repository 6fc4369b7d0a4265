# SPDX-License-Identifier: Apache-2.0
# Print what studies.sh has kept of a study (STUDY.txt) as one line of figures.
# Usage: awk -v study=STUDY -f studies_figures.awk STUDY.txt

# add(NAME, TEXT) adds the text to the list of that name, with commas between texts.
function add(name, text) { list[name] = list[name] (list[name] == "" ? "" : ", ") text }

/^\$ / { # the command
    commands++
    model = algorithm = ""
    if (match($0, /gradients\/[a-z0-9]*\.txt/))
        model = substr($0, RSTART + 10, RLENGTH - 14)
    if (/--algorithm allreduce:ring/)
        algorithm = " by rings"
    speed = ""
    if (match($0, /--device-gflops [0-9]*/))
        speed = " of " substr($0, RSTART + 16, RLENGTH - 16) / 1000 " Tflop/s"
    depth = ""
    if (match($0, /--depth [0-9]*/))
        depth = substr($0, RSTART + 8, RLENGTH - 8)
    whole = /--whole/
    layout = "auto"
    if (match($0, /nodes=[^ ]*/))
        layout = substr($0, RSTART + 6, RLENGTH - 6)
    what = $6
    next
}
/^# +scaling +pattern/ { # columns of twill-bench train
    for (i = 2; i <= NF; i++)
        column[$i] = i - 1
    next
}
/^ *(weak|strong) +(allreduce|bcast\+reduce) / {
    ranks = $column["ranks"]
    if (study == "scaling" && $column["basis"] == "measured" && ranks > 1)
        figure[$1] = $column["efficiency"] " on " ranks
    if (study == "overhead" && ranks > 1) {
        add("apart", $column["apart_%"])
        add("of", sprintf("%.0f", $column["overhead_ms"]))
    }
    if (study == "ratio" && ranks > 1) {
        add("ratio", $column["ratio"])
        add("efficiency", $column["efficiency"])
    }
    if (study == "minibatch" && ranks > 1) {
        add("batch", $column["batch"])
        add("samples", $column["samples/s"])
        add("epoch", sprintf("%.0f", $column["epoch_s"]))
        add("syncs", $column["syncs"])
    }
    if ((study == "hour" || study == "models") && ranks > 1) {
        compute = $column["compute_ms"]
        rate = network != "" ? " at " network " Gbit/s" : ""
        add("predicted", model " " $column["efficiency"] " on " ranks speed algorithm rate)
    }
    if (study == "theta" && ranks > 1)
        add("exposed", $column["exposed_ms"] " on " ranks)
    if (study == "nodes" && ranks > 1)
        add("nodes", $column["efficiency"] " on " layout)
    if (study == "pattern" && ranks == 4)
        add("pattern", $2 " " $column["step_ms"] " ms, " $column["root_bytes"] " B at the root (formula " $column["by_formula"] ")")
    if (study == "dresden" && ranks >= 30)
        add("share", $column["share_%"] " % (" $column["limit"] ") on " ranks)
    next
}
/^# network of / { network = $4; next }
/ is chosen / && study == "dresden" { add("chosen", $1) }
/ is chosen / && study == "oversubscribed" { add("chosen", $1) }
/^allreduce of .* machine / && study == "oversubscribed" { add("machine", $NF) }
/ is chosen / && study == "placement" { chosen = $1 }
/^  network / && study == "placement" { add("placement", chosen " on " layout " " $2) }
/^(epochs|data) +[0-9]/ && study == "epochs" { add("epochs", $1 " " $4 " synchronisations, loss " $5) }
/^without shards, 400/ { sub(/^without shards, /, ""); figure["epochs"] = $0 }
/^ +[0-9]+ +[0-9.]+ +(linear|sqrt|none) / && study == "sweep" {
    if (!($1 in syncs))
        batch[++batches] = $1
    syncs[$1] = $4
    seconds[$1] += $5
    if ($1 == batch[1])
        rates++
    if ($8 + 0 > accuracy) {
        accuracy = $8 + 0
        best_sweep = $8 " with " $1 " by " $2 ", " $3
    }
}
/^(gradients averaged|models averaged after 4)/ { gsub(/  +/, ": "); add("averages", $0) }
/equals bit for bit|equal to that of one rank/ { equal++ }
/largest difference|model (equal|unequal|differs)/ { parts++ }
/^ waiting / && study == "loader" { add("loader", $3 " s at depth " depth) }
/^(load|preprocess|train|predict) / && study == "nt3" && !whole { add("nt3", $1 " " $3) }
/^ exposed / && study == "nt3" { add(whole ? "whole" : "nt3", "exposed " $3) }
/^train / && whole { add("whole", "train " $3) }
/^predicted .* synchronisations of/ { add("bytes", $(NF - 4) " synchronisations of " $(NF - 1) " bytes") }
/^(ddr|mcdram|cxl)[^ ]* +[0-9]/ && study == "memory" { add("memory", $1 " triad " $2 ", copy " $4 ", reduce " $6 ", allreduce " $8 " GB/s") }
/^# energy: / { sub(/^# energy: /, ""); figure["energy"] = $0 }
/^[0-9]+ +[0-9.]/ && study == "messages" {
    if (what == "latency" && $1 == 8)
        add("messages", "8 B " $4 " us")
    if (what == "bandwidth" || what == "bibw")
        figure[what] = what " " sprintf("%.1f", $2 / 1000) " GB/s"
    if (what == "rate" && $1 == 8)
        figure["rate"] = sprintf("%.2f", $3 / 1e6) " million messages/s"
}
/ simulated [0-9.]+ us$/ && study == "aries" { add("aries", $0) }
/^ +[0-9]+ +[0-9]+ +[0-9]+ +[0-9.]+ \|/ && study == "aries" {
    split($0, part, "|")
    split(part[3], plain, " ")
    split(part[4], copies, " ")
    split(part[6], lines, " ")
    best = copies[2] < 0 ? -copies[2] : copies[2] + 0
    met += best <= 15
    of++
    add("aries", copies[2] ($2 > 1 ? " (" lines[2] ")" : ""))
}

END {
    if (study == "scaling")
        print model ": weak " figure["weak"] ", strong " figure["strong"] " ranks"
    else if (study == "overhead")
        print list["apart"] " % of " list["of"] " ms apart"
    else if (study == "ratio")
        print model ": ratio " list["ratio"] ": efficiency " list["efficiency"]
    else if (study == "minibatch")
        print "mini-batches of " list["batch"] ": " list["samples"] " samples/s, epoch " list["epoch"] " s, " list["syncs"] " synchronisations"
    else if (study == "hour" || study == "models")
        print "predicted: " list["predicted"]
    else if (study == "theta")
        print "predicted for " model ": exposed " list["exposed"] " ranks (ms)"
    else if (study == "nodes")
        print "efficiency " list["nodes"]
    else if (study == "pattern")
        print "4 nodes: " list["pattern"]
    else if (study == "dresden")
        print "predicted: " list["share"] " nodes; " list["chosen"] " on 30"
    else if (study == "placement")
        print "bytes between nodes: " list["placement"]
    else if (study == "oversubscribed")
        print list["machine"] ": " list["chosen"]
    else if (study == "epochs")
        print figure["epochs"] "; measured: " list["epochs"]
    else if (study == "pipeline" || study == "hybrid")
        print equal + 0 " of " parts + 0 " parts equal to one rank"
    else if (study == "loader")
        print "waiting for mini-batches: " list["loader"]
    else if (study == "nt3")
        print "seconds, mean: " list["nt3"] "; whole network: " list["whole"] "; " list["bytes"]
    else if (study == "sweep")
        printf "batches of %d to %d: %d to %d synchronisations, %.4f to %.4f s (mean of %d rates); highest accuracy %s\n", batch[1], batch[batches],
            syncs[batch[1]], syncs[batch[batches]], seconds[batch[1]] / rates, seconds[batch[batches]] / rates, rates, best_sweep
    else if (study == "energy")
        print figure["energy"] == "" ? "joules and watts in energy.txt" : figure["energy"]
    else if (study == "messages")
        print list["messages"] ", " figure["bandwidth"] ", " figure["bibw"] ", " figure["rate"]
    else if (study == "aries" && of > 0)
        print met + 0 " of " of + 0 " within 15 %, with copies: " list["aries"] " % (in brackets with cache lines)"
    else
        print list[study]
}
