# SPDX-License-Identifier: Apache-2.0
# A name stands for one thing: struct, union, enum and typedef names are unique in the tree, a macro or constant of
# product code has one value, and no two source files share a base name.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

command -v ctags >/dev/null 2>&1 || skip "there is no ctags (universal-ctags)"

# "name kind file text", a definition a line. Each instruction set has its own operations of the same names: kernels/
# is left out. So are doubles of a library, which have its names.
definitions() # root kinds folder...
{
    root=$1 kinds=$2
    shift 2
    (cd "$root" && find "$@" -name '*.[ch]' -print 2>/dev/null) | sort | (cd "$root" &&
        ctags -L - -x --languages=C --map-C=+.h --map-C++=-.h --kinds-C="$kinds" --_xformat='%N %K %F %C')
}

check_types() # root
{
    definitions "$1" gsut lib fabric algorithms numa bench tests examples |
        grep -v -e ' typedef lib/twill.h ' -e ' typedef lib/twill_[a-z]*.h ' -e ' tests/doubles/' |
        awk '$0 !~ ($2 == "typedef" ? "typedef" : $2 " " $1) {next} # an array of enums is none
             file[$1] != "" && file[$1] != $3 {print $3 ": " $2 " " $1 " is defined in " file[$1] ", too"}
             {file[$1] = $3}'
}

check_constants() # root
{
    definitions "$1" de lib fabric algorithms numa bench |
        awk '{name = $1; kind = $2; file = $3}
             name == "X" || name == "NAME" || (kind == "enumerator" && name ~ /^TWILL_/ && file ~ /c$/) {next} # an array of them is none
             first[name] != "" && first[name] != file {print file ": " kind " " name " is defined in " first[name] ", too"}
             {first[name] = file}'
}

check_files() # root
{
    (cd "$1" && find lib fabric algorithms numa kernels bench tests examples \( -name '*.[ch]' -o -name '*.sh' \) -print) |
        awk -F/ '{print $NF, $0}' | sort | awk '$1 == last {print $2 " has the base name of " file} {last = $1; file = $2}'
}

self_test()
{
    mkdir -p "$scratch/tree/lib" "$scratch/tree/fabric"
    echo 'struct twice { int a; };' | tee "$scratch/tree/lib/a.c" >"$scratch/tree/fabric/b.c"
    must_complain 'struct twice' check_types "$scratch/tree"
    echo '#define LIMIT 3' >"$scratch/tree/lib/a.c"
    echo 'enum { LIMIT = 4 };' >"$scratch/tree/fabric/b.c"
    must_complain 'LIMIT is defined' check_constants "$scratch/tree"
    must_pass "self-test: names that differ" check_types "$scratch/tree"
    : >"$scratch/tree/fabric/a.c"
    must_complain 'has the base name' check_files "$scratch/tree"
}

self_test
must_pass "types" check_types "$source"
must_pass "constants and macros" check_constants "$source"
must_pass "file names" check_files "$source"
finish
