# SPDX-License-Identifier: Apache-2.0
# For the check_*.sh that run programs: what rules.sh has, but the first failure ends the script.
# shellcheck source-path=SCRIPTDIR source=rules.sh
. "$(dirname "$0")/support/rules.sh"
set -e
bin=$build/bin

fail()
{
    printf 'FAILED: %s\n' "$*" >&2
    for fail_file in "$scratch/out" "$scratch/err"; do
        [ ! -s "$fail_file" ] || sed 's/^/    /' "$fail_file" >&2
    done
    exit 1
}

# ranks N program args: its output goes to $scratch/out and $scratch/err; the status is the job's.
ranks()
{
    ranks_n=$1
    shift
    timeout 240 "$bin/twillrun" -n "$ranks_n" "$@" >"$scratch/out" 2>"$scratch/err"
}

patience=240 # seconds; what builds takes longer
# expect STATUS TEXT command...: it must end with this status, and say this (a fixed string).
expect()
{
    expect_status=$1 expect_text=$2 expect_got=0
    shift 2
    rm -f "$scratch/err"
    timeout "$patience" "$@" >"$scratch/out" 2>&1 || expect_got=$?
    [ "$expect_got" -eq "$expect_status" ] || fail "status $expect_got, not $expect_status: $*"
    grep -qF -e "$expect_text" "$scratch/out" || fail "'$expect_text' was not said by: $*"
}
