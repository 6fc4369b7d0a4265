#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The job of examples/kubernetes/jobset.yaml. Its pods start before a name server knows the name of pod 0, and wait for
# it. If it never comes, they say so. Pods are network namespaces with a resolv.conf as Kubernetes makes it.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
# shellcheck source-path=SCRIPTDIR source=../support/hosts.sh
. "$(dirname "$0")/../support/hosts.sh"
python3 -c 'import yaml' 2>/dev/null || skip "no PyYAML"

# The variables of trainjob.yaml, which was not run, are known and have values that twill takes.
python3 -c 'import sys, yaml
for entry in yaml.safe_load(sys.stdin)["spec"]["trainer"]["env"]:
    print(entry["name"] + "=" + entry["value"])' <"$source/examples/kubernetes/trainjob.yaml" >"$scratch/values" || fail "trainjob.yaml"
while read -r value; do
    env "$value" "$bin/twill-info" --env >"$scratch/out" 2>"$scratch/err" || fail "trainjob.yaml: $value"
    grep -q "^${value%%=*} .* environment " "$scratch/out" || fail "trainjob.yaml: $value is of no variable"
done <"$scratch/values"
[ -s "$scratch/values" ] || fail "trainjob.yaml has no variables"

job=$source/examples/kubernetes/jobset.yaml key=$(printf '%064d' 7)
hosts_up 3
printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n' "$(host_address 2)" \
    >"$scratch/resolv.conf"
for pod in 0 1; do
    host_run $pod mount --bind "$scratch/resolv.conf" /etc/resolv.conf || skip "resolv.conf cannot be replaced"
done
PATH=$bin:$PATH

# run_pods QUESTIONS VALUES...
# Run both pods. The name server has no such name for that many questions. Output and statuses are in $scratch/0, 1 and
# $scratch/0.status.
run_pods()
{
    "$hosts_in" 2 python3 "$source/tests/system/job/late_names.py" "$(host_address 2)" \
        train-node-0-0.train.default.svc.cluster.local "$(host_address 0)" "$1" "$scratch/names" &
    names=$!
    shift
    until grep -q ready "$scratch/names" 2>/dev/null; do kill -0 $names || fail "no name server" && sleep 0.05; done
    for pod in 0 1; do
        (
            code=0
            timeout -k 10 "$patience" "$hosts_in" $pod python3 "$source/tests/system/job/pod.py" "$job" $pod \
                "TWILL_JOB=$key" "$@" >"$scratch/$pod" 2>&1 || code=$?
            echo $code >"$scratch/$pod.status"
        ) &
        eval "pod_$pod=$!"
    done
    # shellcheck disable=SC2154 # pod_0 and pod_1 are of eval
    wait "$pod_0" "$pod_1"
    kill $names
    wait $names 2>/dev/null || :
}

run_pods 30
for pod in 0 1; do
    [ "$(cat "$scratch/$pod.status")" -eq 0 ] || fail "pod $pod: $(cat "$scratch/$pod")"
    grep -q "rank $pod waits until a name server knows MASTER_ADDR=train-node-0-0.train" "$scratch/$pod" ||
        fail "pod $pod does not say for what it waits: $(cat "$scratch/$pod")"
done
grep -q '^# Ranks 2 on 2 nodes' "$scratch/0" || fail "no job of two nodes: $(cat "$scratch/0")"
[ "$(grep -c 'default.svc.cluster.local 1 does not exist' "$scratch/names")" -ge 30 ] || fail "the name was not late"
grep -q 'default.svc.cluster.local 1 exists' "$scratch/names" || fail "the name was never known"

# The name never comes.
rm "$scratch/names"
run_pods 1000000 TWILL_TIMEOUT=1
for pod in 0 1; do
    [ "$(cat "$scratch/$pod.status")" -eq 1 ] || fail "pod $pod without a name: status $(cat "$scratch/$pod.status")"
    grep -q "rank $pod: MASTER_ADDR=train-node-0-0.train: .*, for up to 1.0 s" "$scratch/$pod" || fail "$(cat "$scratch/$pod")"
done
