#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# simulate-network: without contention it says what the price says, as both take one model; with contention it says more.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
simulate=$bin/simulate-network
[ -x "$simulate" ] || skip "no simulate-network: built without SimGrid"
cd "$scratch" || exit 1

# simulated OPTIONS: print the simulated time, in nanoseconds; and the price into the file "price".
simulated()
{
    "$simulate" "$@" >out || fail "simulate-network $*"
    sed -n 's/.*: price \([0-9]*\)\.\([0-9]\) us, .*/\1\200/p' out >price
    sed -n 's/.*, simulated \([0-9]*\)\.\([0-9]\) us.*/\1\200/p' out
}
# alike A B: within 2 %.
alike() { [ $(($1 * 100)) -ge $(($2 * 98)) ] && [ $(($1 * 100)) -le $(($2 * 102)) ]; }

for nodes in 2 12 48 384; do
    alike "$(simulated -n $nodes -w flat)" "$(cat price)" || fail "$nodes nodes: $(cat out)"
done
alike "$(simulated -n 16 -b 64K -a ring -w flat)" "$(cat price)" || fail "ring: $(cat out)"

# 64 ranks of a node exchange at once: the interface is theirs together.
crowd=$(simulated -n 8 -r 64 -b 2K -w flat)
[ "$crowd" -gt "$(cat price)" ] || fail "64 ranks: $(cat out)"

# Copies at both ends take what they take: 7 messages of two times 2 KiB at 2 GB/s, less at 100.
slow=$(simulated -n 48 -b 2K -w flat -c 2)
fast=$(simulated -n 48 -b 2K -w flat -c 100)
alike $((slow - fast)) 14050 || fail "copies: $fast, $slow"
# One rank of a node reads 32 lines more of each of the three others, and these the result: 128 of 91.1 ns, in place of 4 times 0.41 us.
lines() { echo $(($(simulated -n 2 -r 4 -w flat -a hierarchical:recursive_doubling@flat -b 4K "$@") - $(simulated -n 2 -r 4 -w flat -a hierarchical:recursive_doubling@flat -b 2K "$@"))); }
alike $(($(lines -l) - $(lines))) 10020 || fail "cache lines: $(lines -l), $(lines)"
# Detours of 0.2 % of the time of 12 cores, and of 192: one delays all, and the more cores the more often.
few=$(($(simulated -n 12 -w flat -d 20,100) - $(simulated -n 12 -w flat)))
many=$(($(simulated -n 192 -w flat -d 20,100) - $(simulated -n 192 -w flat)))
if [ "$few" -lt 0 ] || [ "$many" -le $((few + 10000)) ]; then
    fail "detours: $few, $many"
fi

# Halves of 96 nodes exchange through leaf switches with a quarter of the links, but not where each group has a part of the sum first.
for algorithm in recursive_doubling halving_doubling; do
    whole=$(simulated -n 96 -b 1M -a $algorithm -w fattree)
    quarter=$(simulated -n 96 -b 1M -a $algorithm -w fattree4)
    most=$((whole * 5 / 4)) suffers=0
    [ "$quarter" -le $most ] || suffers=1
    [ $suffers -eq "$([ $algorithm = recursive_doubling ] && echo 1 || echo 0)" ] ||
        fail "$algorithm, oversubscribed: $quarter, not oversubscribed: $whole"
done
# Price and simulation of all candidates agree within a third, and what is chosen is within 10 % of the best that is simulated. They
# differ where lanes share a core, which both schedule in their own way (multi_ring), where a rank posts all its messages at once
# (pairwise), and where a tree sends messages for even ranks through half of its links (recursive_doubling).
for network in flat fattree4; do
    for bytes in 8K 64K 1M; do
        "$simulate" -n 96 -b $bytes -w $network -e >out || fail "simulate-network -e: $(cat out)"
        awk '/ price / { count++; if ($3 > $5 * 4 / 3 || $3 < $5 * 2 / 3) exit 1 } END { if (count < 4) exit 1 }' out ||
            fail "$network, $bytes: $(cat out)"
        sed -n 's/.*is chosen, simulated \([0-9.]*\), the least \([0-9.]*\)$/\1 \2/p' out |
            awk '{ if ($1 > $2 * 1.1) exit 1 } END { if (NR != 1) exit 1 }' || fail "choice on $network, $bytes: $(cat out)"
    done
done
# A ring in the order of the nodes fills one link of each leaf switch, however few there are.
for network in fattree fattree4; do
    alike "$(simulated -n 96 -b 1M -a ring -w $network)" "$(cat price)" || fail "ring: $(cat out)"
    cp price price.$network
done
cmp -s price.fattree price.fattree4 || fail "price of a ring: $(cat price.fattree), $(cat price.fattree4)"
# Adaptive routing is never worse than minimal routing.
adaptive=$(simulated -n 768 -b 64K -a recursive_doubling -w aries)
minimal=$(simulated -n 768 -b 64K -a recursive_doubling -w minimal)
[ "$minimal" -gt "$adaptive" ] || fail "routing: minimal $minimal, adaptive $adaptive"

"$simulate" -w moon 2>out && fail "there is no such network"
grep -q '^Usage' out || fail "no usage"
