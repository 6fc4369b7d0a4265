# SPDX-License-Identifier: Apache-2.0
# After the first call of a shape nothing of twill allocates, frees or maps memory, or opens a file: observed by a
# malloc interposer, on one node, over twill's tcp and over libfabric, whose own allocations are counted separately.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

cc=$(cached CMAKE_C_COMPILER)
from=$source/tests/system/allocation
flags="-std=gnu11 -O1 -g -Wall -Wextra -Werror"

# shellcheck disable=SC2086
must_end 0 "the interposer compiles" "$cc" $flags -D_GNU_SOURCE -shared -fPIC \
    -o "$scratch/interposer.so" "$from/interposer.c" -ldl || finish

# Observe the program, not the launcher.
cat >"$scratch/observed" <<PROGRAM
#!/bin/sh
LD_PRELOAD=$scratch/interposer.so exec "$build/tests/steady" "\$@"
PROGRAM
chmod +x "$scratch/observed"
TWILL_TIMEOUT=300
export TWILL_TIMEOUT
run=$build/bin/twillrun

said_by() # ranks nodes
{
    [ "$(grep -c "of $1 on $2 nodes: 0 shapes allocated" "$scratch/output")" -eq "$1" ] ||
        fault "not all ranks have counted: $(cat "$scratch/output")"
}

for ranks in 2 4; do
    must_end 0 "$ranks ranks on a node" "$run" -n "$ranks" "$scratch/observed" &&
        said_by "$ranks" 1
done
for how in tcp:2x1 tcp:2x2 ofi:tcp:2x2; do
    nodes=${how##*:} provider=${how%:*}
    ranks=$((2 * ${nodes#2x}))
    must_end 0 "$ranks ranks, TWILL_LAYOUT=nodes=$nodes, $provider" env TWILL_LAYOUT=nodes="$nodes" \
        TWILL_PROVIDER="$provider" "$run" -n "$ranks" "$scratch/observed" && said_by "$ranks" 2
    grep 'libfabric' "$scratch/output" | head -n 1
done

# Gradient sets allocate nothing after the commit.
for nodes in 2 2x1; do
    must_end 0 "gradient sets, TWILL_LAYOUT=nodes=$nodes" env TWILL_LAYOUT=nodes="$nodes" "$run" -n 2 \
        "$scratch/observed" training
    [ "$(grep -c ': 0 allocations with an optimizer, 0 late' "$scratch/output")" -eq 2 ] ||
        fault "not both ranks have counted: $(cat "$scratch/output")"
done

# A rank that waits for long probes the others, over connections made for that.
for provider in tcp ofi:tcp; do
    must_end 0 "a rank comes late, $provider" env TWILL_LAYOUT=nodes=2x2 TWILL_PROVIDER="$provider" "$run" -n 4 \
        "$scratch/observed" late && said_by 4 2
done

# Self-test: it fails without the interposer, and when the program allocates, directly or through libc.
must_end 2 "self-test: no interposer" "$build/tests/steady"
for how in malloc strdup; do
    for nodes in 2 1+1; do
        must_end failure "self-test: one $how, TWILL_LAYOUT=nodes=$nodes" env TWILL_LAYOUT=nodes="$nodes" \
            "$run" -n 2 "$scratch/observed" "$how"
        grep -q "allreduce f32 sum count 1024 .* in malloc memory: 2 allocations, the first by malloc" \
            "$scratch/output" || fault "one $how is not reported: $(cat "$scratch/output")"
    done
done
finish
