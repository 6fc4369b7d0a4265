#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bytes that ranks of a parameter server send and receive between four hosts, in each layout: exactly those of lib/twill_server.h.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"
[ -x "$bin/server-exchange" ] || skip "no server-exchange"
bench_script 0 studies/server/traffic_hosts.sh
[ "$(grep -c ' yes$' "$scratch/out")" -eq 20 ] || fail "not four layouts of four ranks"
# At most 64 bytes beside each chunk of 32 KiB, and a tenth more on the links, for TCP and Ethernet.
awk '$1 ~ /cs|cc|nc/ && $2 != "all" { n++; if ($7 > 0.005 * $3 || $5 > 1.1 * $3) { print "rank " $2 " of " $1; exit 1 } }
    END { if (n != 16) exit 1 }' "$scratch/out" || fail "metadata, or bytes on links"
echo "ok: bytes of an exchange"
