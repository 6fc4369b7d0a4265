# SPDX-License-Identifier: Apache-2.0
# Rules of style that a program can check: lengths, licence lines, no leftover marks, a tidy top level, the format.
# shellcheck source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"

MOST_LINES=700
MOST_LINES_OF_A_FUNCTION=60
MOST_CODE_OF_AN_ALGORITHM=120

# Files of ours under a root, a path a line: build trees and dot files are not ours.
files_of() # root pattern...
{
    root=$1
    shift
    for pattern in "$@"; do
        find "$root" -mindepth 1 \( -name 'build*' -o -name '.?*' \) -prune -o -type f \
            -name "$pattern" -print
    done | sort
}

# Run a program once with all files that are listed: one a file would take most of the time.
on_each()
{
    tr '\n' '\0' | xargs -0 -r "$@"
}

check_file_lengths() # root
{
    files_of "$1" '*.c' '*.h' '*.cpp' '*.sh' CMakeLists.txt | on_each wc -l |
        awk -v most="$MOST_LINES" '$1 > most && $2 != "total" {print $2 ": " $1 " lines, " most " at most"}'
}

check_function_lengths() # root
{
    files_of "$1" '*.c' '*.h' '*.cpp' | on_each awk -v most="$MOST_LINES_OF_A_FUNCTION" '
        FNR == 1 {start = members = type = 0}
        /^(class|struct)[^(;{]*$/ {type = 1} # of C++: what is measured is its functions
        /^\{/ {start = type ? 0 : FNR; members = type; type = 0}
        members && /^    \{/ {start = FNR}
        /^\}/ || (members && /^    \}/) {
            if (start && FNR - start > most)
                printf "%s:%d: a function of %d lines\n", FILENAME, start, FNR - start
            start = 0
        }
        /^\}/ {members = 0}'
}

# An algorithm is short: in a file of algorithms/ that defines a struct twill_algorithm there is so
# much code, comments and empty lines not counted.
check_algorithm_lengths() # root
{
    files_of "$1/algorithms" '*.c' | on_each grep -lE '^(static )?const struct twill_algorithm [a-z_]+ = ' |
        while read -r file; do
            awk -v most="$MOST_CODE_OF_AN_ALGORITHM" '
                {
                    text = inside ? "/*" $0 : $0
                    inside = 0
                    while ((start = index(text, "/*")) > 0) {
                        rest = substr(text, start + 2)
                        end = index(rest, "*/")
                        inside = end == 0
                        text = substr(text, 1, start - 1) (end ? substr(rest, end + 2) : "")
                    }
                    if (text ~ /[^ \t]/)
                        code++
                }
                END {
                    if (code > most)
                        printf "%s: %d lines of code, an algorithm has %d at most\n", FILENAME, code, most
                }' "$file"
        done
}

check_licence_lines() # root
{
    # shellcheck disable=SC2016 # perl's dollars
    files_of "$1" '*.c' '*.h' '*.cpp' '*.sh' CMakeLists.txt | on_each perl -e '
        for my $name (@ARGV) {
            open(my $file, "<", $name) or die "$name: $!";
            my $line = <$file> // "";
            $line = <$file> // "" if $line =~ /^#!/;
            print "$name: no SPDX line first\n" if $line !~ /SPDX-License-Identifier: Apache-2\.0/;
        }'
}

check_nothing_open() # root
{
    open='TO''DO|FIX''ME|XX''X|HA''CK'
    files_of "$1" '*.c' '*.h' '*.cpp' '*.sh' '*.in' '*.map' '*.[17]' CMakeLists.txt | on_each grep -HnwE "$open"
}

# Two headers with one guard: who includes both gets one.
check_guards() # root
{
    # shellcheck disable=SC2016 # awk's dollars
    files_of "$1" '*.h' | on_each awk '/^#ifndef [A-Z0-9_]*_H$/ && !found[FILENAME]++ {print $2, FILENAME}' |
        sort | awk '$1 == last {print $2 " has the guard " $1 " of " file} {last = $1; file = $2}'
}

# What the library writes is the same in every locale of the program: twill_print() prints its floats. (The preflight check is a
# program.)
check_floats() # folder...
{
    # shellcheck disable=SC2016 # perl's dollars
    for folder in "$@"; do
        files_of "$folder" '*.c' '*.h'
    done | grep -v /launcher/preflight/ | on_each perl -0777 -ne '
        while (/[^a-z_](?:sn?|f|d)printf\(([^;]*);/g) {
            (my $call = $1) =~ s/%%//g;
            print "$ARGV: ", substr($call, 0, 60), "\n" if $call =~ /%[-+0-9.*]*[aefgEG]/;
        }'
}

# What is counted may be one: its noun gets its ending from TWILL_PLURAL(). Sentences that are
# about several by their sense, bytes and columns of tables may have it as it is.
check_plurals() # folder...
{
    # shellcheck disable=SC2016 # perl's dollars
    for folder in "$@"; do
        files_of "$folder" '*.c' '*.h'
    done | grep -v '/recipes/' | on_each perl -0777 -ne '
        BEGIN {
            $of = join "|", map { "(?<!$_ )" } "more than", "at most", "up to", "than", "of", "\\bto", "between", "among";
            $noun = "ranks|nodes|hosts|packages|cores|PUs|CPUs|threads|workers|servers|tensors|buckets|calls|rails|steps|rounds|" .
                "places|files|messages|allocations|values|descriptors|gradients|updates|samples|chunks|slots|links|peers|seconds|" .
                "pages|results|events|lines|entries|shards|elements|connections|registrations|epochs|iterations|communicators|" .
                "requests|sets|candidates|operations|counters|segments|regions|layers|features|parameters|attempts|rows|columns|keys";
            $of =~ tr/|//d;
            $several = qr/files may be open|ranks remain|ranks share|ranks of a node do|cores of %s|slots$|elements in one chunk|are servers|the maximum|are more than|for %d ranks|memory to|memory that/;
        }
        while (/((?:"(?:[^"\\]|\\.)*"\s*(?:PRI\w+\s*)?)+)/g) {
            (my $text = $1) =~ s/"\s*(?:PRI\w+\s*)?"?//g;
            next if $text =~ /memory for/ || $text =~ $several;
            print "$ARGV: $1\n" while $text =~ /$of(%(?:z|ll|l|t)?[udi](?: (?!\w*s\b|on\b|of\b|in\b|to\b)[A-Za-z]+)? (?:$noun))\b(?! %)(?!: )/g;
        }'
}

check_top_level() # root
{
    for entry in "$1"/*; do
        case ${entry##*/} in
        CMakeLists.txt | CMakePresets.json | README.md | LICENSE | CONTRIBUTING.md) ;;
        CHANGELOG.md | docs | lib | algorithms | fabric | numa | kernels | tests | bench | examples) ;;
        build*) ;; # not tracked
        *) echo "${entry##*/} does not belong at the top" ;;
        esac
    done
}

check_format() # root
{
    files_of "$1" '*.c' '*.h' '*.cpp' | on_each clang-format --dry-run -Werror 2>&1 | grep -E 'error:' | head -n 20
}

check_scripts() # root
{
    {
        files_of "$1" '*.sh'
        find "$1/.ci" -type f ! -name packages 2>/dev/null
    } | tr '\n' '\0' | (cd "$1" && xargs -0 -r shellcheck -f gcc 2>&1) | head -n 20
}

# Comments and pages read well: no folder has more sentences that must be read twice than it may (prose.py).
check_prose() # root
{
    (cd "$1" && python3 "$here/lint/prose.py")
}

repeat() # count text
{
    awk -v n="$1" -v text="$2" 'BEGIN {while (n-- > 0) print text}'
}

self_test()
{
    bad=$scratch/style
    mkdir -p "$bad/lib" "$bad/attic" "$bad/build"
    {
        echo 'int f(void)'
        echo '{'
        repeat 61 '    x();'
        echo '}'
        repeat 650 '/* more */'
        echo "/* TO""DO: less */"
    } >"$bad/lib/long.c"
    cp "$source/.clang-format" "$bad/"
    must_complain 'long.c: 71. lines' check_file_lengths "$bad"
    must_complain 'long.c:2: a function of 62 lines' check_function_lengths "$bad"
    mkdir "$bad/algorithms"
    {
        echo 'const struct twill_algorithm twill_algorithm_x = {'
        repeat 60 '    /* on one line */'
        printf '/* on\nseveral,\n\nand */ int a; /* code */ int b; /* to the end\n*/\n'
        repeat 119 '    int x; // code'
    } >"$bad/algorithms/wordy.c"
    must_complain 'wordy.c: 121 lines of code' check_algorithm_lengths "$bad"
    sed -i '$d' "$bad/algorithms/wordy.c"
    must_pass "self-test: comments are no code" check_algorithm_lengths "$bad"
    rm -r "$bad/algorithms"
    must_complain 'long.c: no SPDX' check_licence_lines "$bad"
    must_complain 'long.c:71' check_nothing_open "$bad"
    must_complain 'attic does not belong' check_top_level "$bad"
    printf '#ifndef A_H\n#define A_H\n#endif\n' | tee "$bad/lib/a.h" >"$bad/lib/b.h"
    must_complain 'b.h has the guard A_H' check_guards "$bad"
    printf 'int f(void)\n{\n    snprintf(text, bytes, "%%d %%%%"\n             " %%.1f", 1, 2.0);\n}\n' >"$bad/lib/floats.c"
    must_complain 'floats.c: text, bytes' check_floats "$bad/lib"
    printf 'f("at most %%u ranks", "rank %%u on CPUs %%s", "%%u PU%%s");\nf("%%s, %%u "\n  "NUMA nodes");\n' >"$bad/lib/counts.c"
    must_complain 'counts.c: %u NUMA nodes' check_plurals "$bad/lib"
    rm "$bad/lib/floats.c"
    sed -i 2,3d "$bad/lib/counts.c"
    must_pass "self-test: what is not one" check_plurals "$bad/lib"
    # shellcheck disable=SC2016
    echo 'cd $1; rm $2' >"$bad/lib/bad.sh"
    if [ -n "$formats" ]; then
        printf 'int f(void) {\n  return 1; }\n' >"$bad/lib/ugly.c"
        must_complain 'ugly.c' check_format "$bad"
    fi
    mkdir -p "$bad/.ci"
    # shellcheck disable=SC2016
    printf '#!/bin/sh\nrm $1\n' >"$bad/.ci/wrong"
    if [ -n "$prose" ]; then
        git -C "$bad" init -q
        printf '/* The copy is had by way of the peer, so it is told. */\nint a;\n/* What it waits for goes on in turn, too. */\n' >"$bad/lib/bent.c"
        mkdir -p "$bad/docs/tutorials"
        printf '%0121d\n' 7 >"$bad/docs/tutorials/wide.md"
        must_complain 'lib: 2 sentences are bent' check_prose "$bad"
        must_complain '1 lines are wide' check_prose "$bad"
        must_complain 'no sentence has' check_prose "$bad"
    fi
    if [ -n "$lints" ]; then
        must_complain 'bad.sh' check_scripts "$bad"
        must_complain 'wrong' check_scripts "$bad"
    fi
}

formats=$(command -v clang-format) || echo "no clang-format here: the format is not checked"
lints=$(command -v shellcheck) || echo "no shellcheck here: scripts are not checked"
prose=yes
git -C "$source" ls-files >/dev/null 2>&1 || prose='' # a source archive has no list of its files
self_test
must_pass "no file over $MOST_LINES lines" check_file_lengths "$source"
must_pass "no function over $MOST_LINES_OF_A_FUNCTION lines" check_function_lengths "$source"
must_pass "no algorithm over $MOST_CODE_OF_AN_ALGORITHM lines of code" check_algorithm_lengths "$source"
must_pass "licence lines" check_licence_lines "$source"
must_pass "nothing left open" check_nothing_open "$source"
must_pass "one guard, one header" check_guards "$source"
must_pass "floats are printed by twill_print()" check_floats "$source/lib" "$source/algorithms" "$source/fabric" "$source/numa"
must_pass "counts of one" check_plurals "$source/lib" "$source/algorithms" "$source/fabric" "$source/numa" "$source/kernels" \
    "$source/bench" "$source/examples"
must_pass "top level" check_top_level "$source"
[ -z "$prose" ] || must_pass "prose" check_prose "$source"
[ -z "$formats" ] || must_pass "clang-format" check_format "$source"
[ -z "$lints" ] || must_pass "shellcheck" check_scripts "$source"
finish
