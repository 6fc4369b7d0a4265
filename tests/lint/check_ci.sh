# SPDX-License-Identifier: Apache-2.0
# Continuous integration: packages are installed even if a mirror fails for a while, and tests/run.sh starts tests in
# one environment whoever starts it. With doubles of apt-get, cmake and others.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

mkdir "$scratch/doubles"
double() # name, its lines from standard input
{
    { echo '#!/bin/sh' && cat; } >"$scratch/doubles/$1"
    chmod +x "$scratch/doubles/$1"
}
run() # command...
{
    env PATH="$scratch/doubles:$PATH" DOUBLES="$scratch" "$@"
}

# --- packages: of apt-get's installations the first $FAILURES fail
double dpkg-query </dev/null # nothing is installed
double id <<'END'
echo 0
END
double sleep </dev/null
double dpkg <<'END'
echo "$*" >>"$DOUBLES/configured"
END
double apt-get <<'END'
case "$*" in
*" install "*) echo >>"$DOUBLES/tries" && [ "$(wc -l <"$DOUBLES/tries")" -gt "$FAILURES" ] ;;
esac
END
for failures_wanted in 0 2; do
    rm -f "$scratch/tries" "$scratch/configured"
    must_end 0 "packages after $failures_wanted failures" run env FAILURES=$failures_wanted sh "$source/.ci/install.sh" build
    [ "$(wc -l <"$scratch/tries")" -eq $((failures_wanted + 1)) ] || fault "not $((failures_wanted + 1)) tries"
done
grep -qx -e '--configure -a' "$scratch/configured" || fault "what was half installed was left so"
rm "$scratch/tries"
must_end 1 "packages that are not to be had" run env FAILURES=9 sh "$source/.ci/install.sh" build
[ "$(wc -l <"$scratch/tries")" -eq 3 ] || fault "not three tries"
rm "$scratch/doubles"/*

# --- the environment of tests, in a tree that holds nothing but the scripts
mkdir -p "$scratch/tree/tests" "$scratch/tree/.ci"
cp "$source/tests/run.sh" "$scratch/tree/tests"
mkdir "$scratch/bare" # all programs but ccache, which is one of the packages
ln -s /usr/bin/* /usr/sbin/* "$scratch/bare" 2>/dev/null
rm -f "$scratch/bare/ccache"
# shellcheck disable=SC2016 # for the script to expand
echo 'ln -s /bin/true "$DOUBLES/doubles/ccache"' >"$scratch/tree/.ci/install.sh"
double cmake </dev/null
double ctest <<'END'
{
    env
    echo "umask $(umask)"
    echo "input $(wc -c)"
} >"$DOUBLES/seen"
END
# shellcheck disable=SC2016 # for that shell to expand
must_end 0 "tests begin" run env -u CMAKE_C_COMPILER_LAUNCHER PATH="$scratch/doubles:$scratch/bare" \
    TWILL_LAYOUT=nodes=2x2 FI_PROVIDER=none OMPI_MCA_btl=none SLURM_PROCID=3 PMIX_RANK=1 \
    RANK=7 MASTER_PORT=1 MEMKIND_HBW_NODES=0 HWLOC_XMLFILE=/none TMPDIR=/none LD_LIBRARY_PATH=/none \
    LC_ALL=POSIX TEST_SEED=5 sh -c 'umask 077; exec sh "$0/tests/run.sh" release' "$scratch/tree" <"$source/tests/run.sh"
must_pass "nothing is left over" \
    grep -E '^(TWILL|FI|OMPI|SLURM|PMIX|MEMKIND|HWLOC)_|^(RANK|MASTER_PORT|TMPDIR|LD_LIBRARY_PATH)=' "$scratch/seen"
for line in LC_ALL=C.UTF-8 TEST_SEED=5 CMAKE_C_COMPILER_LAUNCHER=ccache 'umask 0022' 'input 0'; do
    grep -qx "$line" "$scratch/seen" || fault "tests do not see $line"
done
finish
