#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ggml.sh GGML builds examples/frameworks/ggml_job.c with the ggml (or llama.cpp) built in folder GGML, and runs it on 1, 2 and 3
# processes. GGML_INCLUDE is the folder of ggml.h, if it is not GGML/include. TEST_BUILD is twill's build folder.
set -eu
here=$(cd "$(dirname "$0")" && pwd) ggml=$(cd "$1" && pwd)
root=$(cd "$here/../../.." && pwd)
build=$(cd "${TEST_BUILD:-$root/build}" && pwd)
libraries=$(dirname "$(find "$ggml" -name libggml-base.so | head -n 1)")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"${CC:-cc}" -std=c11 -D_GNU_SOURCE -O2 -Wall -Wextra -Werror -isystem "${GGML_INCLUDE:-$ggml/include}" -I"$root/lib" "$root"/examples/frameworks/ggml_*.c \
    -o "$scratch/ggml_job" -L"$libraries" -lggml -lggml-cpu -lggml-base -L"$build/lib" -ltwill -Wl,-rpath,"$libraries:$build/lib"
for ranks in 1 2 3; do
    OMP_WAIT_POLICY=passive timeout 100 "$build/bin/twillrun" -n "$ranks" --oversubscribe "$scratch/ggml_job" >"$scratch/out"
    [ "$(grep -c '^ok$' "$scratch/out")" -eq "$ranks" ]
    echo "ok: $ranks processes: $(grep sums "$scratch/out")"
done
