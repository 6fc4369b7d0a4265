#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# compare_abi.sh HEADER: compare lib/mpi/abi/mpi.h with an MPI's own header of the standard ABI (MPICH's mpi_abi.h): each
# constant has the same value, each function the same type. By hand, and by check_mpi_detect.sh where such a header is.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
ours=$here/../../../lib/mpi/abi/mpi.h
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
{
    printf '#include <stdio.h>\n#include HEADER\nint main(void)\n{\n'
    sed -n 's/^#define \(MPI_[A-Z0-9_]*\) .*/\1/p; s/^    \(MPI_[A-Z0-9_]*\) = .*/\1/p' "$ours" | grep -vx MPI_ABI_H |
        sed 's/.*/printf("%s %lld\\n", "&", (long long)&);/'
    printf 'printf("status %%zu\\n", sizeof(MPI_Status));\nreturn 0;\n}\n'
} >"$work/values.c"
for header in "$ours" "$1"; do
    ${CC:-cc} -I"$here/../../.." -DHEADER="\"$header\"" -o "$work/values" "$work/values.c"
    "$work/values" >"$work/$(basename "$header").values"
done
diff "$work/mpi.h.values" "$work/$(basename "$1").values"
# Ours after theirs: what is declared twice must agree. Types and constants are theirs.
sed '/^#include <stdint.h>/d; /^typedef/,/^#define TWILL_ABI(/{/^#define TWILL_ABI(/!d;}' "$ours" >"$work/functions.h"
printf '#include "%s"\n#include "functions.h"\n' "$1" >"$work/functions.c"
${CC:-cc} -fsyntax-only -I"$here/../../.." -I"$work" "$work/functions.c"
echo "ok: $(wc -l <"$work/mpi.h.values") values, $(grep -c '^TWILL_ABI(' "$work/functions.h") functions and all collectives"
