#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What linking with twill brings into a program: no fabric library before one is needed, and never a signal handler.
# libfabric is opened when ranks are on several nodes; without it, twill uses its own tcp.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

program=$build/tests/linked

# lines_say WHEN PATTERN: all lines of that time must match.
lines_say()
{
    grep -q "^$1:" "$scratch/out" || fail "no line of $1"
    ! grep "^$1:" "$scratch/out" | grep -vE "$2" || fail "$1: not $2"
}

needed=$(readelf -d "$build/lib/libtwill.so" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for library in libfabric libmemkind libpmix; do
    ! printf '%s\n' "$needed" | grep "^$library" || fail "libtwill.so is linked with $library"
done

none='signals: 0+ libraries:$'
ranks 2 "$program"
lines_say main "$none"
lines_say used "signals: 0+ libraries:( libmemkind)?$" # no fabric is needed on a node
[ "$(grep -c ^used: "$scratch/out")" -eq 2 ] || fail "not both ranks came to the end"

# Without the variables by which twillrun keeps PSM from installing signal handlers.
TWILL_LAYOUT=nodes=2x1 TWILL_PROVIDER=ofi:tcp ranks 2 env -u IPATH_NO_BACKTRACE -u HFI_NO_BACKTRACE "$program"
lines_say main "$none"
lines_say used 'signals: 0+ libraries: libfabric'

# A missing library, or another version: twill's tcp, and the reason; an error if libfabric was requested.
missing=$scratch/libfabric.so.1
TWILL_LAYOUT=nodes=2x1 TWILL_TUNE=libfabric=$missing ranks 2 "$program"
lines_say used 'signals: 0+ libraries:( libmemkind)?$'
grep -q "libfabric is not used: TWILL_TUNE=libfabric=$missing: .*No such file" "$scratch/err" || fail "no warning"
TWILL_LAYOUT=nodes=2x1 TWILL_TUNE=libfabric=$missing TWILL_PROVIDER=ofi:tcp expect 1 "TWILL_TUNE=libfabric=$missing: " \
    "$bin/twillrun" -n 2 "$program"
TWILL_LAYOUT=nodes=2x1 TWILL_TUNE=libfabric=libm.so.6 TWILL_PROVIDER=ofi:tcp expect 1 "libfabric cannot be used: " "$bin/twillrun" -n 2 "$program"
TWILL_LAYOUT=nodes=2x1 TWILL_TUNE=libfabric=$build/tests/lacking.so TWILL_PROVIDER=ofi:tcp expect 1 \
    "libfabric cannot be used: it has no fi_dupinfo()" "$bin/twillrun" -n 2 "$program"
TWILL_TUNE=libfabric=$missing expect 0 "twill's own tcp: TWILL_TUNE=libfabric=$missing" "$bin/twill-info"
real=$(ldconfig -p 2>/dev/null | sed -n 's/.*libfabric\.so\.1 .*=> //p' | head -n 1)
if [ -n "$real" ]; then
    ln -s "$real" "$scratch/another-name.so"
    TWILL_LAYOUT=nodes=2x1 TWILL_TUNE=libfabric=$scratch/another-name.so TWILL_PROVIDER=ofi:tcp ranks 2 "$program"
    lines_say used 'libraries: libfabric'
fi
