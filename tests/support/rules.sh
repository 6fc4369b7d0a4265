# SPDX-License-Identifier: Apache-2.0
# Helpers for check_*.sh that enforce a rule on the tree. A rule is a function that prints one
# complaint per line and nothing if all is well; every rule is also run on bad input, about which it
# must complain.

set -u
here=$(cd "$(dirname "$0")/.." && pwd) # tests/
source=${TEST_SOURCE:-$(dirname "$here")}
build=${TEST_BUILD:-$source/build}
# shellcheck disable=SC2034 # read by the script that sources this
sanitize=${TEST_SANITIZE:-}
# Near the root, whatever TMPDIR says: socket paths of munge and PMIx have at most 107 characters.
scratch=$(mktemp -d /tmp/twill-XXXXXX) || exit 1
# For other programs, too: Open MPI's jobs share one folder there, which one may remove while
# another creates its own in it. Nothing is read from a user's home, or left there.
export TMPDIR="$scratch" HOME="$scratch/home"
mkdir "$HOME"
# shellcheck disable=SC3045 # Debian's sh has it
ulimit -c 0 2>/dev/null || : # a core that a user has asked for would be left behind
trap 'rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
failures=0

skip()
{
    echo "skipped: $*"
    exit 77
}

fault()
{
    echo "FAIL: $*"
    failures=$((failures + 1))
}

# must_pass TITLE RULE ARGUMENT...: the rule must print nothing.
must_pass()
{
    title=$1
    shift
    said=$("$@" 2>&1)
    if [ -z "$said" ]; then
        echo "ok: $title"
    else
        fault "$title"
        printf '%s\n' "$said" | sed 's/^/    /'
    fi
}

# must_complain PATTERN RULE ARGUMENT...: on bad input, the rule must print a line that matches.
must_complain()
{
    pattern=$1
    shift
    said=$("$@" 2>&1)
    printf '%s\n' "$said" | grep -q -e "$pattern" ||
        fault "$1 does not detect its fault: no /$pattern/ in: ${said:-nothing}"
}

# shown FILE: print a program's output, or its beginning and end.
shown()
{
    if [ "$(wc -l <"$1")" -le 120 ]; then
        sed 's/^/    /' "$1"
    else
        head -n 60 "$1" | sed 's/^/    /'
        echo "    ..."
        tail -n 60 "$1" | sed 's/^/    /'
    fi
}

# must_end WANTED TITLE COMMAND...: run a command, which must exit with WANTED, a number or
# "failure". Output is kept in $scratch/output, and shown on any other status.
must_end()
{
    wanted=$1
    title=$2
    shift 2
    "$@" >"$scratch/output" 2>&1
    status=$?
    if [ "$wanted" = "$status" ] || { [ "$wanted" = failure ] && [ "$status" -ne 0 ]; }; then
        echo "ok: $title"
        return 0
    fi
    fault "$title: exit status $status, wanted $wanted"
    shown "$scratch/output"
    return 1
}

# cached NAME: print a variable of the build's CMake cache.
cached()
{
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

# copy_tree FOLDER: copy the sources as a clone has them. In FOLDER/build, ccache finds what other builds with equal options,
# in a folder `build` of their sources, have compiled (see run.sh).
copy_tree()
{
    mkdir "$1"
    (cd "$source" && tar --exclude='./build*' --exclude='./.git' -cf - .) | tar -xf - -C "$1"
    export CCACHE_BASEDIR="$1"
}

# percentiles: read lines "NAME: SECONDS"; print for each name how many there are, their median, 99th percentile and largest.
percentiles()
{
    sort -t : -k 1,1 -k 2,2n | awk -F : '
        function row() { if (n) printf "%s: %d: median %.3f, 99 %% %.3f, most %.3f s\n", name, n, t[int(n / 2)], t[int(n * 99 / 100)], t[n - 1] }
        $1 != name {row(); name = $1; n = 0}
        {t[n++] = $2}
        END {row()}'
}

finish()
{
    [ "$failures" -eq 0 ] || echo "$failures checks failed"
    exit $((failures > 0))
}
