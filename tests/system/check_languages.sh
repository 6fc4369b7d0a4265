#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# twill.hpp and the Fortran module: the examples that were built, and programs that use all of both, compiled with
# strict warnings, on 2 ranks.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
. "$(dirname "$0")/../support/check.sh"

link="-L$build/lib -ltwill -Wl,-rpath,$build/lib"
from=${source:?}/tests/system/languages
tried=

serves() # title command...: it compiles, and 2 ranks of it end well
{
    serves_title=$1
    shift
    # shellcheck disable=SC2086 # words
    "$@" -o "$scratch/program" $link >"$scratch/out" 2>&1 || fail "$serves_title does not compile"
    [ ! -s "$scratch/out" ] || fail "$serves_title: warnings"
    ranks 2 "$scratch/program" || fail "$serves_title: $(cat "$scratch/out")"
    echo "ok: $serves_title"
    tried="$tried $serves_title"
}

# Numbers of the Fortran module are those of twill.h.
sed -n 's/^ *//; /parameter, public ::/,/[^&]$/p' "$source/lib/fortran/twill.F90" | grep -o 'twill_[a-z0-9_]* = -\?[0-9]*' |
    tr '[:lower:]' '[:upper:]' | sed 's/\(.*\) = \(.*\)/_Static_assert(\1 == (\2), "\1");/' >"$scratch/numbers.c"
[ "$(wc -l <"$scratch/numbers.c")" -gt 35 ] || fail "the numbers of the module are not found"
"${CC:-cc}" -fsyntax-only -include "$source/lib/twill.h" "$scratch/numbers.c" || fail "other numbers than in twill.h"

# It has all types, and all operations but those on pairs.
sed -n '/^#define TWILL_TYPES(/,/TWILL_OPS_LOCATING/s/^    X([A-Z0-9]*, \([a-z0-9]*\), .*/\1/p' "$source/lib/base/lists.h" >"$scratch/listed"
[ "$(wc -l <"$scratch/listed")" -ge 25 ] || fail "the lists of lib/base/lists.h are not found"
while read -r name; do
    grep -q "\btwill_$name = [0-9]" "$source/lib/fortran/twill.F90" || fail "twill.F90 has no twill_$name"
done <"$scratch/listed"

for compiler in g++ clang++; do
    command -v $compiler >/dev/null 2>&1 || continue
    strict="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror -I$source/lib $from/cpp.cpp"
    # shellcheck disable=SC2086 # words
    {
        serves "$compiler, C++17" $compiler -std=c++17 $strict
        serves "$compiler, C++20, without exceptions" $compiler -std=c++20 -fno-exceptions -fno-rtti $strict
    }
done
if command -v gfortran >/dev/null 2>&1; then
    serves "gfortran, Fortran 2008" gfortran -std=f2008 -Wall -Wextra -Werror -J "$scratch" -I"$source/lib/fortran" \
        "$source/lib/fortran/twill.F90" "$from/fortran.f90"
fi
[ -n "$tried" ] || skip "no compiler of C++ or Fortran"

for program in hello_cpp hello_fortran; do
    [ -x "$bin/$program" ] || continue
    ranks 2 "$bin/$program" || fail "$program"
    grep -q '^rank 1 of 2.*: the sum of 1..2 is 3' "$scratch/out" || fail "$program says something else"
    echo "ok: $program"
done
[ -x "$bin/hello_cpp" ] || fail "hello_cpp was not built, though there is a compiler"
