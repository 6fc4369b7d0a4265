#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Start with a fresh Debian 12 and end with a training on four ranks. The steps install, build, train and measure. Run
# sh examples/quickstart.sh as root, or with sudo, in any folder.
set -eu
cd "$(dirname "$0")/.."
step=0
heading()
{
    step=$((step + 1))
    printf '\n== %d. %s\n\n' "$step" "$1"
}
data=examples/data/wdbc.csv
bin=build/bin

heading "Packages"
sh .ci/install.sh build

heading "Build: library, tools and examples"
cmake --preset release -DTWILL_BUILD_TESTS=OFF -DTWILL_WERROR=OFF
build()
{
    cmake --build --preset release || touch "$failed"
}
if [ -t 2 ]; then # show a line with the time that is left
    failed=build/failed
    rm -f "$failed"
    build | awk -f examples/build_progress.awk
    [ ! -e "$failed" ]
else
    cmake --build --preset release
fi

heading "Train a tumour-or-normal classifier with 4 ranks on this machine"
$bin/twillrun -n 4 $bin/train --data $data

heading "The same with the ranks on 2 virtual nodes of 2, which communicate by twill's own TCP"
TWILL_LAYOUT=nodes=2x2 TWILL_PROVIDER=tcp $bin/twillrun -n 4 $bin/train --data $data

heading "The same through libfabric"
TWILL_LAYOUT=nodes=2x2 TWILL_PROVIDER=ofi:tcp $bin/twillrun -n 4 $bin/train --data $data

heading "Measure allreduce between 2 ranks, bound to a core each"
$bin/twillrun -n 2 $bin/twill-bench allreduce -b 8 -e 4M -f 8

heading "Done"
cat <<END
Programs are in $bin: twillrun, twill-bench, twill-info, twill-trace, twill-place, twill-simulate, twill-compare, and the examples hello, callback, grid, train and worker.
Next: $bin/twill-info shows this machine as twill sees it; sh tests/run.sh runs every test.
END
