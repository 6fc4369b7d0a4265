#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# libfabric.sh TWILL-COMPARE [options] compares allreduce between two hosts over one provider of libfabric (tcp;ofi_rxm):
# twill, Open MPI's mtl/ofi and MPICH's ofi netmod, fi_pingpong one way, and an exchange of the same bytes in both
# directions at once (compare/peers/peer_fabric.c). twill-ofi5 is twill over tcp of the libfabric that fetched MPIs bring,
# which is newer than the system's and faster, so that twill and they also have the same one. All take turns. The hosts are namespaces of this machine
# (compare_hosts.sh, for root only). Their congestion control is reno unless TEST_HOSTS_CONGESTION names another one:
# libfabric's connections have the system's, and between cores of one machine bbr and cubic send many segments again
# without need. Up to 16 KiB the bound is fi_pingpong, above it the exchange. Options are those of
# twill-compare, such as --sizes, --rounds, and --cache, where fetched MPIs are.
here=$(cd "$(dirname "$0")" && pwd)
compare=$1
shift
json=$(mktemp) || exit 1
export TEST_HOSTS_CONGESTION="${TEST_HOSTS_CONGESTION:-reno}"
trap 'rm -f "$json"' EXIT
sh "$here/../tools/compare/compare_hosts.sh" "$compare" 1 --only allreduce_in --peers ofi,fi- \
    --sizes 8,1K,4K,16K,64K,256K,1M,16M --json "$json" "$@" || exit
python3 - "$json" <<'END'
import json, sys

NAMES = "fi-pingpong", "fi-exchange", "twill-ofi", "twill-ofi5", "ompi-ofi", "ompi5-ofi", "mpich5-ofi"
for timing in "fresh", "again":
    print(f"#\n# allreduce over tcp;ofi_rxm, {timing}: us, least of the medians of the turns; x: twill over the bound, and the best MPI over twill")
    print("# bytes   ", *(f"{name:>12}" for name in NAMES), " x of pingpong  x of exchange  x of best MPI  x, same libfabric")
    for row in json.load(open(sys.argv[1]))["results"]:
        least = {}
        for one in row["times"]:
            times = [turn[timing][1] for turn in one["turns"] if turn.get(timing)]
            if times and one["name"] in NAMES:
                least[one["name"]] = min(times)
        twill = least.get("twill-ofi")
        mpis = [least[name] for name in NAMES[4:] if name in least]
        texts = [f"{least[name]:12.2f}" if name in least else f"{'-':>12}" for name in NAMES]
        ratios = [twill / least[name] if twill and name in least else 0 for name in NAMES[:2]]
        ratios.append(min(mpis) / twill if twill and mpis else 0)
        newest = [least[name] for name in NAMES[5:] if name in least]
        ratios.append(min(newest) / least["twill-ofi5"] if newest and "twill-ofi5" in least else 0)
        print(f"{row['bytes']:10}", *texts, *(f"{x:14.2f}" if x else f"{'-':>14}" for x in ratios))
END
