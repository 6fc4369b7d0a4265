#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# protection.sh BIN [ROUNDS] measures what checksums and encryption cost (docs/inside/security.md). Two ranks sum 8
# bytes, 64 KiB and 8 MiB with TWILL_CHECKSUM and TWILL_ENCRYPT, as two nodes over loopback and on one node. All
# variants take turns in each of ROUNDS (7) rounds. It prints the median time of each, and how many times as long that
# is as without protection. BIN is the folder of twillrun and twill-bench.
bin=$1 rounds=${2:-7}

# once LAYOUT VARIANT VARIABLES... prints "LAYOUT VARIANT BYTES MICROSECONDS" for each size.
once()
{
    once_as="$1 $2" once_layout=$1
    shift 2
    env TWILL_LAYOUT="nodes=$once_layout" TWILL_PROVIDER=tcp TWILL_INTERFACE=lo "$@" "$bin/twillrun" -n 2 --bind none \
        "$bin/twill-bench" allreduce -b 8 -e 8M -f 1024 -n 30 2>&1 |
        awk -v as="$once_as" '$1 ~ /^[0-9]+$/ && NF > 7 {print as, $1, $6}'
    env TWILL_LAYOUT="nodes=$once_layout" TWILL_PROVIDER=tcp TWILL_INTERFACE=lo "$@" "$bin/twillrun" -n 2 --bind none \
        "$bin/twill-bench" allreduce -b 64K -e 64K -n 50 2>&1 |
        awk -v as="$once_as" '$1 ~ /^[0-9]+$/ && NF > 7 {print as, $1, $6}'
}

uptime | sed 's/.*load/load/'
for _ in $(seq "$rounds"); do
    once 2x1 none A=
    once 2x1 checksums TWILL_CHECKSUM=network
    once 2x1 encrypted TWILL_ENCRYPT=1
    once 2 none A=
    once 2 all-checksums TWILL_CHECKSUM=all
done | sort -k1,1 -k2,2 -k3,3n -k4,4n | awk '
    {key = $1 " " $2 " " $3; count[key]++; time[key, count[key]] = $4; order[key] = NR; bytes[key] = $1 " none " $3}
    END {
        for (key in count)
            median[key] = time[key, int((count[key] + 1) / 2)]
        for (key in count)
            printf "%-26s %12.2f us   %6.2f times\n", key, median[key], median[key] / median[bytes[key]]
    }' | sort
uptime | sed 's/.*load/load/'
