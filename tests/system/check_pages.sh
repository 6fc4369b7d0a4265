#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the README and of every page in docs/ work as they stand there, with an installed twill. The first words of a fenced block
# say what is done with it:
#   sh              its commands are run, each page in a folder of its own that has examples/ and bench/ of the clone
#   sh torch        the same, where a Python with PyTorch is there
#   LANGUAGE FILE   its text is written to FILE, which later commands use
#   console, text   nothing: it needs what a machine for tests has not (hosts, a batch system), or it is output
# <!-- prints: PATTERN --> below a block that is run: one of its lines must match.
# $TEST_PAGE restricts the test to pages whose path has this text.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
# shellcheck source=../support/pip_torch.sh
. "$here/support/pip_torch.sh"

# split PAGE FOLDER: write each block that is run to FOLDER/NUMBER.run, what it must print to FOLDER/NUMBER.prints, one pattern a line, and
# each block that is a file to FOLDER/NUMBER.file, whose first line is its name.
split()
{
    awk -v folder="$2" '
        /^```/ && inside { inside = 0; close(to); next }
        /^```/ {
            inside = 1; to = "/dev/null"
            language = substr($1, 4)
            if (language == "sh") { to = sprintf("%s/%03d.run", folder, ++blocks); ran = blocks; print "# " $2 >to }
            else if (NF == 2 && language != "console" && language != "text") { to = sprintf("%s/%03d.file", folder, ++blocks); print $2 >to }
            next
        }
        inside { print >to; next }
        /^<!-- prints: .* -->$/ { gsub(/^<!-- prints: | -->$/, ""); print >sprintf("%s/%03d.prints", folder, ran) }' "$1"
}

# run_page PAGE: run its blocks in order. A failure ends the page.
run_page()
{
    blocks=$scratch/blocks place=$scratch/place
    rm -rf "$blocks" "$place"
    mkdir "$blocks" "$place"
    split "$1" "$blocks"
    ln -s "$source/examples" "$source/bench" "$place"
    for block in "$blocks"/*.file "$blocks"/*.run; do echo "$block"; done | sort | while read -r block; do
        case $block in
        *\**) continue ;;
        *.file) sed 1d "$block" >"$place/$(head -n 1 "$block")"; continue ;;
        esac
        with=
        if [ "$(head -n 1 "$block")" = "# torch" ]; then
            [ "$torch" -eq 1 ] || continue
            with="CXX=$(command -v ccache) ${CXX:-c++}" # nearly all of the time is compiling PyTorch's headers
        fi
        (cd "$place" && env ${with:+"$with"} timeout -k 10 "$patience" sh -e "$block") >"$scratch/output" 2>&1 || {
            echo "exit status $? of:"
            sed '1d; s/^/    /' "$block"
            shown "$scratch/output"
            break
        }
        [ ! -f "${block%run}prints" ] || while read -r pattern; do
            grep -qE -e "$pattern" "$scratch/output" || { echo "no line /$pattern/ from:"; sed '1d; s/^/    /' "$block"; shown "$scratch/output"; }
        done <"${block%run}prints"
    done
}

self_test()
{
    # shellcheck disable=SC2016 # Markdown's
    printf '```text\nexit 4\n```\n```c one.c\nint one;\n```\n```sh\ngrep -c one one.c && exit 3\n```\n' >"$scratch/bad.md"
    must_complain 'exit status 3' run_page "$scratch/bad.md"
    # shellcheck disable=SC2016
    printf '```sh\necho one\n```\n\n<!-- prints: two -->\n' >"$scratch/bad.md"
    must_complain 'no line /two/' run_page "$scratch/bad.md"
}

patience=${TEST_PATIENCE:-300}
prefix=$scratch/prefix
must_end 0 "cmake --install" cmake --install "$build" --prefix "$prefix" || finish
PATH=$prefix/bin:$PATH
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name twill.pc)")
PYTHONPATH=$build/python TORCH_TWILL_CACHE=${TORCH_TWILL_CACHE:-$build/torch} PYTHONDONTWRITEBYTECODE=1
export PATH PKG_CONFIG_PATH PYTHONPATH TORCH_TWILL_CACHE PYTHONDONTWRITEBYTECODE
# Open MPI refuses root, and more ranks than cores, unless it is told otherwise.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
torch=1
pip_torch >"$scratch/output" 2>&1 || { torch=0; echo "no PyTorch here: blocks that need it are left out"; }
self_test
pages=0
for page in "$source/README.md" "$source"/docs/*/*.md; do
    # shellcheck disable=SC2016
    case $page in *"${TEST_PAGE:-}"*) ;; *) continue ;; esac
    grep -q '^```sh' "$page" || continue
    pages=$((pages + 1))
    must_pass "${page#"$source/"}" run_page "$page"
done
[ $pages -gt 0 ] || fault "hardly any page has a command"
finish
