#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The key of a job is in no output (JSON, tables, twill-info, logs, reports and errors) and in no command line.
# shellcheck source-path=SCRIPTDIR source=../support/check.sh
# shellcheck disable=SC2016 # the ranks' shells are to expand what is quoted here
. "$(dirname "$0")/../support/check.sh"
run=$bin/twillrun bench=$bin/twill-bench info=$bin/twill-info
mkdir "$scratch/all"
cd "$scratch/all"

# job NAME ranks... : its output goes to NAME.out, what it carries to NAME.key; the status does not matter.
job()
{
    job_name=$1
    shift
    timeout -k 10 "$patience" "$run" -n 2 --grace 0.2 sh -c \
        'printf "%s\n" "$TWILL_JOB" >"'"$scratch/$job_name"'.key.$RANK"; exec "$@"' sh "$@" >"$job_name.out" 2>&1 || :
    grep -qxE '[0-9a-f]{64}' "$scratch/$job_name.key.0" || fail "$job_name: the ranks have no key"
}

job json "$bench" allreduce -b 8 -e 8 -n 1 -w 1 -J json
grep -q '"TWILL_JOB=(a key)"' json || fail "the JSON does not say that there is a key"
job env "$info" --env
grep -q '^TWILL_JOB  *(a key)' env.out || fail "twill-info --env"
job info "$info"
job memory "$info" --memory 1M
job why "$info" --why allreduce 8 f32
for level in error warn info debug; do
    job "log-$level" env TWILL_LOG=$level "$bench" allreduce -b 8 -e 8 -n 1 -w 1
    job "tcp-$level" env TWILL_LOG=$level TWILL_LAYOUT=nodes=1+1 "$bench" allreduce -b 8 -e 8 -n 1 -w 1
done
[ -s log-debug.out ] || fail "nothing was logged"
# What is wrong with a key or beside it, and ranks that die.
job other sh -c '[ "$RANK" = 0 ] || TWILL_JOB=1$TWILL_JOB; exec "$0"' "$info"
job longer sh -c 'TWILL_JOB=${TWILL_JOB}0; exec "$0"' "$info"
job odd sh -c 'TWILL_JOB="${TWILL_JOB}x"; exec "$0"' "$info"
grep -q TWILL_JOB odd.out || fail "a wrong key is not named"
job unknown sh -c 'export TWILL_JOBS="$TWILL_JOB"; exec "$0"' "$info"
job short sh -c '[ "$RANK" = 0 ] || exit 3; export TWILL_TIMEOUT=1; exec "$0"' "$info"
[ ! -x "$bin/hello" ] || job hello "$bin/hello"

# Nor is it in a command line of any process: of twillrun, of the agents and host agents of two "hosts", and of ranks.
printf '#!/bin/sh\nshift\nexec sh -c "$*"\n' >"$scratch/agent"
chmod 755 "$scratch/agent"
timeout -k 10 "$patience" "$run" --hosts a@localhost:1,b@localhost:1 --agent "$scratch/agent" sh -c \
    'printf "%s\n" "$TWILL_JOB" >"'"$scratch"'/argv.key.$RANK"; cat /proc/[0-9]*/cmdline 2>/dev/null; exec "$0"' "$info" >argv.out 2>&1 ||
    fail "a job through an agent"
tr '\0\n' '  ' <argv.out | grep -q 'twillrun --server.*twillrun --server' || fail "the command lines are not seen"

# Another secret in the environment.
export FI_TEST_SECRET=a1b2c3d4a1b2c3d4
job own "$bench" allreduce -b 8 -e 8 -n 1 -w 1 -J own.json
grep -q '"FI_TEST_SECRET=(a key)"' own.json || fail "another secret is not masked"
! grep -rl "$FI_TEST_SECRET" . || fail "another secret was written"

cat "$scratch"/*.key.* | sort -u >"$scratch/keys"
[ "$(wc -l <"$scratch/keys")" -ge 10 ] || fail "too few keys were seen"
while read -r key; do
    ! grep -arl -e "$key" . || fail "a key was written"
    # nor half of it
    ! grep -arl -e "$(printf %s "$key" | cut -c1-16)" . || fail "a part of a key was written"
done <"$scratch/keys"
echo "ok: no key in $(find . -type f | wc -l) outputs"
