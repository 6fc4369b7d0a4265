#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bash completion offers every option in a tool's --help, and no other, and suitable values.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # for bash
. "$(dirname "$0")/../support/check.sh"
file=$bin/../share/twill.bash
command -v bash >/dev/null || skip "no bash"
tools="twillrun twill-bench twill-info twill-trace twill-place twill-simulate twill-compare"

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

# same_options TOOL [WORD]: its options, behind a word that has options of its own
same_options()
{
    "$bin/$1" ${2:+"$2"} --help | grep -oE '(^|[[:space:],|])--?[A-Za-z][A-Za-z_-]*' | tr -d ' \t,|' | sort -u >"$scratch/help"
    words "$@" - | sort -u >"$scratch/words"
    [ "$(wc -l <"$scratch/help")" -ge 6 ] || fail "the --help of $* was not understood"
    diff "$scratch/help" "$scratch/words" >"$scratch/out" ||
        fail "$*: completion (>) and --help (<) do not have the same options"
}
for tool in $tools; do
    [ ! -x "$bin/$tool" ] || same_options "$tool"
done
[ ! -x "$bin/twill-bench" ] || same_options twill-bench latency

offers allreduce twill-bench ""
offers kernels twill-bench ker
offers train twill-bench tra
offers multi-pair twill-bench mul
offers alone twill-bench rate --interface al
offers --datatype twill-bench allreduce --da
offers bfloat16 twill-bench allreduce -d bf
offers numa twillrun -n 2 --bind ""
offers socket twillrun -np 2 --bind-to s
offers sh twillrun -n 2 -- s
offers shared twill-compare --bind ""
offers alltoall twill-info --why all
offers factors twill-info --why fa
offers l3 twill-bench allreduce --split ""
offers lxor twill-bench allreduce -o ""
offers k-sync: twill-simulate k
offers pareto: twill-simulate --compute p
offers u64 twill-info allreduce 8 ""

echo "ok: completion of $tools"
