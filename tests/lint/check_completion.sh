#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bash completion offers every option in a tool's --help, and no other, and suitable values.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # for bash
. "$(dirname "$0")/../support/check.sh"
file=${TEST_SOURCE:-$(dirname "$0")/../..}/bench/completion/twill.bash
command -v bash >/dev/null || skip "no bash"
tools="twillrun twill-bench twill-info twill-place twill-compare"

# words LINE...: what is offered for its last word.
words()
{
    bash -c '. "$0"; COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        function=$(complete -p "$1") && function=${function#*-F } && "${function%% *}"
        printf "%s\n" "${COMPREPLY[@]}"' "$file" "$@"
}

# offers WORD LINE...
offers()
{
    offers_word=$1
    shift
    words "$@" | grep -qxF -e "$offers_word" || fail "'$offers_word' is not offered for: $*"
}

for tool in $tools; do
    [ -x "$bin/$tool" ] || continue
    "$bin/$tool" --help | grep -oE '(^|[[:space:],|])--?[A-Za-z][A-Za-z_-]*' | tr -d ' \t,|' | sort -u >"$scratch/help"
    words "$tool" - | sort -u >"$scratch/words"
    [ "$(wc -l <"$scratch/help")" -ge 6 ] || fail "the --help of $tool was not understood"
    diff "$scratch/help" "$scratch/words" >"$scratch/out" ||
        fail "$tool: completion (>) and --help (<) do not have the same options"
done

offers allreduce twill-bench ""
offers --datatype twill-bench allreduce --da
offers bfloat16 twill-bench allreduce -d bf
offers numa twillrun -n 2 --bind ""
offers socket twillrun -np 2 --bind-to s
offers sh twillrun -n 2 -- s
offers shared twill-compare --bind ""
offers alltoall twill-info --why all

# What the lists of the source have, completion, --help and manual page have, too.
source=${TEST_SOURCE:-$(dirname "$0")/../..}
listed() # MACRO FILE: the names in its lines "X(NOUN, name, ..."
{
    sed -n "/^#define $1(/,/[^\\\\]\$/p" "$source/$2" | sed -n 's/^    X([A-Z0-9_]*, "*\([a-z0-9_]*\).*/\1/p'
}

# lists LEAST MACRO FILE LINE...: all of them are offered for the line's last word.
lists()
{
    lists_of=$(listed "$2" "$3")
    [ "$(echo "$lists_of" | wc -w)" -ge "$1" ] || fail "$2 of $3 was not understood: $lists_of"
    shift 3
    for name in $lists_of; do
        offers "$name" "$@"
        [ "$1" = twill-info ] && continue # says "types"
        "$bin/twill-bench" --help | grep -qw "$name" || fail "twill-bench --help has no $name"
        grep -qw "$name" "$source/lib/man/twill-bench.1" || fail "twill-bench(1) has no $name"
    done
}
lists 14 TWILL_TYPES lib/lists.h twill-info allreduce 8 ""
lists 5 TWILL_OPS_ARITHMETIC lib/lists.h twill-bench allreduce -o ""
lists 3 TWILL_OPS_BITWISE lib/lists.h twill-bench allreduce -o ""
lists 3 TWILL_OPS_LOGICAL lib/lists.h twill-bench allreduce -o ""
lists 4 TWILL_LEVELS_INSIDE_NODE lib/lists.h twill-bench allreduce --split ""
lists 2 TWILL_LEVELS lib/lists.h twill-bench allreduce --split ""
lists 9 TWILL_COLLECTIVES algorithms/collective_list.h twill-bench ""
lists 15 TWILL_MEASURED_COLLECTIVES bench/common/measured_collectives.h twill-bench ""
types=$(listed TWILL_TYPES lib/lists.h | wc -w)
[ "$(words twill-bench allreduce -d "" | wc -l)" -eq $((types + 1)) ] || fail "other types for twill-bench -d"
echo "ok: completion of $tools"
