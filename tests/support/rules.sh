# SPDX-License-Identifier: Apache-2.0
# For the check_*.sh that hold the tree to a rule. A rule is a function that prints a complaint a line
# and is content when it prints nothing; every rule is also tried on an input made bad for it, where
# it has to complain.

set -u
here=$(cd "$(dirname "$0")/.." && pwd) # tests/
source=${TEST_SOURCE:-$(dirname "$here")}
build=${TEST_BUILD:-$source/build}
# shellcheck disable=SC2034 # read by who sources this
sanitize=${TEST_SANITIZE:-}
# Near the root, whatever TMPDIR says: paths of sockets of munge and PMIx may have 107 characters.
scratch=$(mktemp -d /tmp/twill-XXXXXX) || exit 1
# Of other programs, too: Open MPI's jobs all have one folder there, which one may remove as another makes its own in it.
# Nor is anything taken from a user's home, or left there.
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

# must_pass TITLE RULE ARGUMENT...
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

# must_complain PATTERN RULE ARGUMENT...: on a bad input the rule must say something that matches.
must_complain()
{
    pattern=$1
    shift
    said=$("$@" 2>&1)
    printf '%s\n' "$said" | grep -q -e "$pattern" ||
        fault "$1 does not notice what it is for: no /$pattern/ in: ${said:-nothing}"
}

# What a program has said: all of it, or the first and the last of it.
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

# must_end WANTED TITLE COMMAND...: by exit status, a number or "failure". Output is kept in
# $scratch/output, and shown when the status is another.
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

# A variable of the build's cache.
cached()
{
    sed -n "s/^$1:[A-Z]*=//p" "$build/CMakeCache.txt"
}

finish()
{
    [ "$failures" -eq 0 ] || echo "$failures checks failed"
    exit $((failures > 0))
}
