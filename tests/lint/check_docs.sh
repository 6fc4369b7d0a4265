# SPDX-License-Identifier: Apache-2.0
# Documentation agrees with the code: names and paths that it has, messages, the README's commands and examples, the
# language of the manual pages.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

# How the build makes a page from the lists of the source.
fill() # page
{
    awk -v to="$scratch/filled" -v between=' , ' -f "$source/lib/man/fill_lists.awk" "$build/lib/man/lists" "$1" 2>&1
}

check_page() # page...
{
    mandoc -Tlint -W warning "$@" 2>&1
}

# Nothing is wider than a terminal of 80 columns, and troff has nothing to say.
check_width() # page...
{
    mandoc -Tutf8 -O width=78 "$@" | sed 's/.\x08//g' | LC_ALL=C.UTF-8 grep -nE '^.{81,}' | sed 's/^/wider than 80 columns: /'
    [ -z "$groff" ] || { groff -mdoc -ww -Tutf8 -rLL=78n "$@" >/dev/null; } 2>&1
}

# Neither is what programs print for --help.
check_help() # program word...
{
    "$@" --help >"$scratch/help" 2>&1
    [ "$(wc -l <"$scratch/help")" -gt 9 ] || echo "$* --help says hardly anything"
    LC_ALL=C.UTF-8 grep -nE '^.{81,}' "$scratch/help" | sed 's/^/wider than 80 columns: /'
}

# Each public header has a page. Each function that the library exports has a page of its own or a link to one, which names
# it and shows how it is called and which header has it.
check_calls() # library folder
{
    nm -D --defined-only "$1" | sed -n 's/.* T \(twill_[a-z_0-9]*\).*/\1/p' >"$scratch/calls"
    [ "$(wc -l <"$scratch/calls")" -gt 60 ] || echo "${1##*/} exports hardly any function"
    for header in "$source"/lib/twill.h "$source"/lib/twill_*.h; do
        [ -s "$2/${header##*/}.3" ] || echo "${header##*/} has no man 3 page"
    done
    while read -r name; do
        page=$2/$name.3
        [ ! -f "$page" ] || ! grep -q '^\.so ' "$page" || page=$2/$(sed -n 's|^\.so man3/||p' "$page")
        if [ ! -f "$page" ]; then
            echo "$name has no man 3 page"
        elif ! grep -qx "\.Nm $name\( ,\)*" "$page" || ! grep -qx "\.Fo $name" "$page"; then
            echo "${page##*/} does not show $name"
        else # those of TWILL_FORMS are declared by a macro
            header=$(grep -lE "^TWILL_API .*[ *]$name\\(" "$source"/lib/twill*.h)
            [ -z "$header" ] || grep -qx "\.In ${header##*/}" "$page" || echo "${page##*/} names another header than ${header##*/}"
        fi
    done <"$scratch/calls"
}

# The messages that the page on troubleshooting explains, its headings in code, are said by the source: each word of
# them between the parts that differ ("...").
check_messages() # page tree
{
    find "$2/lib" "$2/fabric" "$2/numa" "$2/bench" -name '*.[ch]' -exec cat {} + | tr '\n' ' ' |
        sed 's/" *"//g' >"$scratch/source"
    # shellcheck disable=SC2016 # Markdown's
    sed -n 's/^### `\(.*\)`$/\1/p' "$1" >"$scratch/messages"
    [ "$(wc -l <"$scratch/messages")" -gt 9 ] || echo "${1##*/} explains hardly any message"
    sed 's/ *\.\.\. */\n/g' "$scratch/messages" | grep -v '^$' | while read -r part; do
        grep -qF -e "$part" "$scratch/source" || echo "${1##*/}: nothing says: $part"
    done
}

# The list of messages is that of the source.
check_list() # page
{
    python3 "$source/tests/lint/list_messages.py" | diff "$1" - >"$scratch/changed" && return
    sed -n 's/^[<>]/&/p' "$scratch/changed" | head -4
    echo "${1##*/} is stale: python3 tests/lint/list_messages.py >docs/reference/messages.md"
}

# What README names must be there. Commands first: they are the promise.
check_readme() # readme tree
{
    for command in 'sh examples/quickstart.sh' 'sh tests/run.sh'; do
        grep -qF "$command" "$1" || echo "README does not name: $command"
    done
}

# Paths that a page names; <topic> and * stand for anything, NAME for what a reader makes.
check_paths() # page tree
{
    grep -oE '(^|[^/[:alnum:]_])(examples|tests|bench|lib|algorithms|fabric|numa|kernels|docs)/[A-Za-z0-9_.<>*/-]+' "$1" |
        grep -v NAME | sed 's/^[^a-z]//; s/[.,:]*$//; s/<[a-z]*>/*/g' | sort -u | while read -r path; do
            # shellcheck disable=SC2086 # a pattern
            ls -d "$2"/$path >"$scratch/found" 2>&1 || echo "${1##*/} names $path, which is not there"
        done
}

# The README's program compiles as it stands.
check_readme_program() # readme
{
    awk '/^```c$/ {inside = 1; next} /^```$/ {inside = 0} inside' "$1" >"$scratch/readme.c"
    [ "$(wc -l <"$scratch/readme.c")" -gt 5 ] || echo "README has hardly any program"
    "$(cached CMAKE_C_COMPILER)" -Wall -Wextra -Werror -I"$source/lib" -o "$scratch/readme" "$scratch/readme.c" \
        -L"$build/lib" -ltwill -Wl,-rpath,"$build/lib" 2>&1
}

# `file:function` in a page: the file is there, and has such a function.
check_citations() # page tree
{
    # shellcheck disable=SC2016 # Markdown's
    grep -oE '`[a-z][A-Za-z_/0-9]*\.[ch]:[A-Za-z_0-9]+`' "$1" | tr -d '`' | sort -u | while IFS=: read -r file name; do
        if [ ! -f "$2/$file" ]; then
            echo "${1##*/} cites $file, which is not there"
        elif ! grep -qE "\\b$name\\(" "$2/$file"; then
            echo "${1##*/} cites $name in $file, which has no such function"
        fi
    done
}

# Tests that a page names by their topic, below the heading of their folder, are there: that of the folder or a neighbour.
check_tests() # page folder
{
    awk -F'`' '/^#/ { folder = $2; next } folder != "" { for (i = 2; i <= NF; i += 2) if ($i ~ /^[a-z_0-9*]+$/) print folder, $i }' "$1" |
        while read -r folder topic; do
            [ -n "$(find "$2/${folder%%/*}" -name "test_*$topic*.c")" ] || echo "${1##*/} names a test $topic in $folder, which is not there"
        done
}

# Names that begin with TWILL_ are variables (not old names of entries), names of the public headers, or options of CMake.
check_names() # page tree
{
    grep -ohE '\bTWILL_[A-Z0-9_]+\b' "$1" | sort -u | while read -r name; do
        grep -qwF "$name" "$2/lib/job/config.h" "$2"/lib/twill.h "$2"/lib/twill_*.h "$2/CMakeLists.txt" ||
            echo "${1##*/} names $name, which is not there"
    done
}

# The anchors of a page's headings, as GitHub and the site make them.
anchors() # page
{
    awk '/^```/ {inside = !inside} !inside && sub(/^#+ /, "")' "$1" | sed 's/\[\([^]]*\)\]([^)]*)/\1/g' |
        tr '[:upper:] ' '[:lower:]-' | sed 's/[^a-z0-9_-]//g'
}

# Markdown links to files of ours, and to headings of pages.
check_links() # file tree
{
    grep -oE '\]\([^) ]+' "$1" | sed 's/^](//' | grep -v '://' | sort -u | while read -r link; do
        path=${link%%#*} anchor=${link#"${link%%#*}"}
        if [ -n "$path" ] && [ ! -e "$2/$path" ]; then
            echo "${1##*/} links to $path, which is not there"
        elif [ -n "$anchor" ] && ! anchors "${path:+$2/}${path:-$1}" | grep -qxF -e "${anchor#\#}"; then
            echo "${1##*/} links to $link, which has no such heading"
        fi
    done
}

# Pages, plots and speed.json of docs/results are what make_pages.py makes of bench/results, and each file there has its fields.
check_results() # tree
{
    PYTHONDONTWRITEBYTECODE=1 python3 "$1/bench/results/make_pages.py" --check 2>&1
}

# The program of EXAMPLES does what the page says.
check_example() # page
{
    sed -n '/^#include/,/^}/p' "$1" | sed 's/\\e/\\/g' >"$scratch/sum.c"
    "$(cached CMAKE_C_COMPILER)" -Wall -Werror -I"$source/lib" -o "$scratch/sum" "$scratch/sum.c" \
        -L"$build/lib" -ltwill -Wl,-rpath,"$build/lib" || return
    [ "$("$build/bin/twillrun" -n 4 --bind none "$scratch/sum" | sort -u)" = "4 ranks" ] ||
        echo "the example of ${1##*/} does not say: 4 ranks"
}

self_test()
{
    page=$scratch/bad.7
    cp "$manual/man7/twill.7" "$page"
    sed -i 's/double sum = 1/double sum = 2/' "$page"
    must_complain 'does not say: 4 ranks' check_example "$page"
    printf '.It @RANK@\n.It @RAMK@\n.Li @tipes@\n' >"$scratch/template"
    must_complain 'no variable RAMK' fill "$scratch/template"
    must_complain 'no list tipes' fill "$scratch/template"
    must_complain 'no item for segment' fill "$scratch/template"
    printf '.Dd November 20, 2026\n.Dt X 1\n.Os\n.Sh NAME\n.It Ev\n' >"$page"
    [ -z "$mandoc" ] || must_complain 'bad.7' check_page "$page"
    printf '.Dd November 20, 2026\n.Dt X 1\n.Os\n.Sh NAME\n.Nm x\n.Nd x\n.Bd -literal\n%090d\n.Ed\n' 7 >"$page"
    [ -z "$mandoc" ] || must_complain 'wider than 80' check_width "$page"
    must_complain 'wider than 80' check_help sh -c 'seq 20; printf "%090d\n" 7'
    must_complain 'hardly anything' check_help true
    mkdir "$scratch/man3"
    printf '.Nm twill_init\n.Fo twill_unit\n' >"$scratch/man3/twill_init.3"
    echo '.so man3/twill_nowhere.3' >"$scratch/man3/twill_send_start.3"
    must_complain 'twill_wait has no' check_calls "$build/lib/libtwill.so" "$scratch/man3"
    must_complain 'twill_send_start has no' check_calls "$build/lib/libtwill.so" "$scratch/man3"
    must_complain 'twill_init.3 does not show' check_calls "$build/lib/libtwill.so" "$scratch/man3"
    must_complain 'twill_recover.h has no man 3 page' check_calls "$build/lib/libtwill.so" "$scratch/man3"
    printf '.In twill.h\n.Nm twill_comm_shrink\n.Fo twill_comm_shrink\n' >"$scratch/man3/twill_comm_shrink.3"
    must_complain 'twill_comm_shrink.3 names another header than twill_recover.h' check_calls "$build/lib/libtwill.so" "$scratch/man3"
    # shellcheck disable=SC2016 # Markdown's
    printf '### `no code says ... this`\n' >"$scratch/bad.md"
    must_complain 'nothing says: no code says' check_messages "$scratch/bad.md" "$source"
    must_complain 'bad.md is stale' check_list "$scratch/bad.md"
    echo 'see examples/nowhere.c and [x](NO.md)' >"$scratch/README.md"
    must_complain 'quickstart' check_readme "$scratch/README.md" "$source"
    must_complain 'nowhere.c' check_paths "$scratch/README.md" "$source"
    must_complain 'NO.md' check_links "$scratch/README.md" "$source"
    # shellcheck disable=SC2016 # Markdown's
    printf '## One `two`: (3)\n[x](#one-two-3) [x](README.md#license-of-none)\n' >"$scratch/bad.md"
    must_complain 'README.md#license-of-none, which has no' check_links "$scratch/bad.md" "$source"
    sed -i 's/ .x.(README.*//' "$scratch/bad.md"
    must_pass "self-test: a heading" check_links "$scratch/bad.md" "$source"
    must_complain 'hardly any program' check_readme_program "$scratch/README.md"
    # shellcheck disable=SC2016 # Markdown's
    echo 'see `lib/nowhere.c:f`, `lib/base/base.c:nothing` and TWILL_NOWHERE, and the old name TWILL_SEGMENT' >"$scratch/bad.md"
    must_complain 'cites lib/nowhere.c' check_citations "$scratch/bad.md" "$source"
    must_complain 'cites nothing in lib/base/base.c' check_citations "$scratch/bad.md" "$source"
    must_complain 'names TWILL_NOWHERE' check_names "$scratch/bad.md" "$source"
    must_complain 'names TWILL_SEGMENT,' check_names "$scratch/bad.md" "$source"
    # shellcheck disable=SC2016 # Markdown's
    printf '## `fabric/tcp/`\n\nMessages (`tcp`), nothing (`gone`).\n' >"$scratch/bad.md"
    must_complain 'names a test gone in fabric/tcp/' check_tests "$scratch/bad.md" "$source/tests/unit"
}

results_test()
{
    mkdir -p "$scratch/tree/bench" "$scratch/tree/docs"
    cp -r "$source/bench/results" "$scratch/tree/bench/results"
    cp -r "$source/docs/results" "$scratch/tree/docs/results"
    must_pass "self-test: results" check_results "$scratch/tree"
    if python3 -c 'import matplotlib' 2>/dev/null; then # the same plot each time
        for nth in 1 2; do
            rm "$scratch/tree/docs/results/one-node.svg"
            python3 "$scratch/tree/bench/results/make_pages.py" >"$scratch/drawn.$nth"
            cp "$scratch/tree/docs/results/one-node.svg" "$scratch/drawn.$nth.svg"
        done
        must_pass "self-test: a plot" check_results "$scratch/tree"
        must_pass "self-test: the same plot again" cmp "$scratch/drawn.1.svg" "$scratch/drawn.2.svg"
    else
        echo "no matplotlib here: plots are not drawn"
    fi
    sed -i 's/twill/twist/' "$scratch/tree/docs/results/one-node.md"
    must_complain 'one-node.md is stale' check_results "$scratch/tree"
    sed -i 's/\[2, 3\.4/[2, 3.5/' "$scratch/tree/bench/results/pytorch-server.json"
    must_complain 'pytorch-server.svg is stale' check_results "$scratch/tree"
    echo '{"study": "strange", "tables": {"x": {"units": {"a": ""}, "rows": [[1, 2]]}}}' >"$scratch/tree/bench/results/strange.json"
    must_complain 'strange.json has no command' check_results "$scratch/tree"
    must_complain 'x has no rows, or rows that do not fit' check_results "$scratch/tree"
    must_complain 'its machine has no processor' check_results "$scratch/tree"
}

groff=$(command -v groff) || echo "no groff here: its warnings are not looked for"
mandoc=$(command -v mandoc) || echo "no mandoc here: manual pages are not checked"
manual=$build/share/man
self_test
results_test
must_pass "pages of docs/results" check_results "$source"
for name in twill.7 twill-fabric.7 twill-mpi.7 twillrun.1 twill-bench.1 twill-info.1 twill-trace.1 twill-place.1 twill-simulate.1 twill-compare.1; do
    page=$manual/man${name##*.}/$name
    [ -f "$page" ] || fault "no $name"
    [ -z "$mandoc" ] || [ ! -f "$page" ] || must_pass "mandoc: $name" check_page "$page"
    [ -z "$mandoc" ] || [ ! -f "$page" ] || must_pass "80 columns: $name" check_width "$page"
    [ ! -f "$page" ] || must_pass "names of $name" check_names "$page" "$source"
done
if [ -x "$(cached DOXYGEN_EXECUTABLE)" ]; then
    must_pass "man 3 pages of all functions" check_calls "$build/lib/libtwill.so" "$manual/man3"
    grep -L '^\.so ' "$manual"/man3/*.3 >"$scratch/pages"
    # shellcheck disable=SC2046 # names of ours
    [ -z "$mandoc" ] || must_pass "mandoc: man 3" check_page $(cat "$scratch/pages")
    # shellcheck disable=SC2046
    [ -z "$mandoc" ] || must_pass "80 columns: man 3" check_width $(cat "$scratch/pages")
else
    echo "this build had no doxygen: there are no man 3 pages"
fi
must_pass "example in twill(7)" check_example "$manual/man7/twill.7"
for name in twillrun twill-info twill-trace twill-place twill-simulate twill-compare twill-bench 'twill-bench latency' 'twill-bench train'; do
    # shellcheck disable=SC2086 # a program and its first argument
    must_pass "80 columns: $name --help" check_help "$build/bin/"$name
done
must_pass "README" check_readme "$source/README.md" "$source"
must_pass "program of README" check_readme_program "$source/README.md"
for page in "$source"/*.md "$source"/*/README.md "$source"/tests/*/README.md "$source"/bench/*/README.md "$source"/lib/*/README.md; do
    must_pass "links of ${page#"$source/"}" check_links "$page" "${page%/*}"
done
must_pass "names of README.md" check_names "$source/README.md" "$source"
for page in "$source/README.md" "$source/CONTRIBUTING.md" "$source"/docs/*/*.md; do
    must_pass "paths of ${page#"$source/"}" check_paths "$page" "$source"
done
for page in "$source"/docs/*/*.md; do
    must_pass "links of ${page#"$source/"}" check_links "$page" "${page%/*}"
    must_pass "names of ${page#"$source/"}" check_names "$page" "$source"
done
for page in "$source"/docs/inside/*.md "$source/CONTRIBUTING.md"; do
    must_pass "citations of ${page##*/}" check_citations "$page" "$source"
done
must_pass "tests of tests/unit/README.md" check_tests "$source/tests/unit/README.md" "$source/tests/unit"
must_pass "messages of docs/guides/troubleshooting.md" check_messages "$source/docs/guides/troubleshooting.md" "$source"
must_pass "docs/reference/messages.md" check_list "$source/docs/reference/messages.md"
finish
