# SPDX-License-Identifier: Apache-2.0
# docs/tutorials/first-program.md: its program is compiled and its commands run literally, with an installed twill.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

page=$source/docs/tutorials/first-program.md

blocks() # language page
{
    awk -v begin="^\`\`\`$1\$" '$0 ~ begin {inside = 1; next} /^```$/ {inside = 0} inside' "$2"
}

prefix=$scratch/prefix
must_end 0 "cmake --install" cmake --install "$build" --prefix "$prefix" || finish
mkdir "$scratch/here"
blocks c "$page" >"$scratch/here/mean.c"
blocks sh "$page" >"$scratch/here/commands"
[ "$(wc -l <"$scratch/here/commands")" -gt 7 ] || fault "the tutorial has hardly any command"
PATH=$prefix/bin:$PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name twill.pc)")
export PATH PKG_CONFIG_PATH
while read -r command; do
    must_end 0 "$command" sh -c "cd '$scratch/here' && $command"
    case $command in
    *./mean) grep -q '^ranks: [12], mean: 0\(\.5\)\{0,1\}$' "$scratch/output" || fault "no mean: $command" ;;
    *--why*) grep -q ring "$scratch/output" || fault "no candidates" ;;
    *bench*) grep -q '#wrong' "$scratch/output" || fault "no table" ;;
    esac
done <"$scratch/here/commands"
finish
