# SPDX-License-Identifier: Apache-2.0
# The agreement of lib/comm and what shrinking builds on it are right in every state of their models, which Spin
# searches exhaustively: no hashing that may leave out states, no limit that is reached. Mutants of the models fail.
# TEST_WHOLE=1 searches more of cut networks, by bitstate hashing, which may leave out states: minutes, gigabytes.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

command -v spin >/dev/null || skip "there is no spin"
compiler=$(cached CMAKE_C_COMPILER)
launcher=$(command -v ccache) || launcher= # half of the time is compiling what spin has written

# search SEARCH SETTING... MODEL: print what is wrong with a model: claims that fail, or a search that did not end.
# SEARCH: states; many (the same, compiled for speed); cycles (no state is entered twice); bits (states, by bitstate hashing).
search()
{
    flags=-DSAFETY options='' optimise=-O0
    case $1 in
    many) optimise=-O1 ;;
    cycles) flags=-DNP options=-l ;;
    bits) flags='-DSAFETY -DBITSTATE' options=-w33 optimise=-O1 ;;
    esac
    shift
    for model in "$@"; do :; done
    rm -rf "$scratch/search"
    mkdir "$scratch/search"
    cp "$source/lib/comm/$model" "$scratch/search"
    # shellcheck disable=SC2086 # words
    (
        cd "$scratch/search" && spin -a "$@" && $launcher "$compiler" $optimise -w -DREVERSE -DMEMLIM=8000 $flags -c pan.c &&
            "$compiler" -o pan pan.o && ./pan -m10000 -n $options
    ) >"$scratch/searched" 2>&1
    if ! grep -q 'errors: 0' "$scratch/searched" || grep -qE 'not completed|too small|out of memory' "$scratch/searched"; then
        cat "$scratch/searched"
    fi
    sed -n 's/^ *\([0-9]*\) states, stored.*/\1/p' "$scratch/searched" >>"$scratch/states"
}

# Each mutant changes a rule, which the model names.
must_complain 'assertion violated ((w==0)' search states -DMUTANT=1 consensus.pml
must_complain 'assertion violated ((w==0)' search states -DMUTANT=2 consensus.pml
must_complain 'assertion violated (w==' search states -DMUTANT=3 -DSIDE=3 -DSILENCES=2 -DCRASHES=0 consensus.pml
must_complain 'assertion violated 0' search states -DMUTANT=4 -DCRASHES=1 consensus.pml
must_complain 'assertion violated 0' search states -DMUTANT=5 -DNEAR=3 -DSILENCES=2 -DCRASHES=2 consensus.pml
must_complain 'assertion violated (made' search states -DMUTANT=1 shrink.pml
must_complain 'assertion violated (made' search states -DMUTANT=2 shrink.pml

rm -f "$scratch/states"
must_pass "agreement: two of four ranks die" search many -DCRASHES=2 consensus.pml
must_pass "agreement: no state is entered twice" search cycles -DCRASHES=1 consensus.pml
must_pass "two agreements, a rank dies" search many -DCRASHES=1 -DAGREEMENTS=2 consensus.pml
must_pass "agreement: a rank is cut off, and one dies" search many -DCRASHES=1 -DSIDE=8 -DSILENCES=1 consensus.pml
must_pass "agreement: two ranks are cut off" search states -DCRASHES=0 -DSIDE=3 -DSILENCES=1 consensus.pml
must_pass "agreement: ranks of a node shut each other out" search states -DCRASHES=0 -DNEAR=3 -DSILENCES=1 consensus.pml
must_pass "shrinking: two of four ranks die" search many -DCRASHES=2 shrink.pml
if [ -n "${TEST_WHOLE:-}" ]; then
    must_pass "agreement: ranks of a node shut each other out, and a rank dies" search many -DCRASHES=1 -DNEAR=3 -DSILENCES=1 consensus.pml
    for side in 1 2 3 4 5 6 8; do
        must_pass "agreement: set $side is cut off, and a rank dies" search bits -DCRASHES=1 -DSIDE=$side consensus.pml
    done
fi
echo "$(awk '{n += $1} END {print n}' "$scratch/states") states"
finish
