# SPDX-License-Identifier: Apache-2.0
# hosts.sh for scripts that are not tests: defines what it needs, and removes the hosts at exit.
# here: the folder of the tests.
# shellcheck source-path=SCRIPTDIR/../../tests source=support/hosts.sh
scratch=$(mktemp -d)
skip()
{
    echo "$*" >&2
    exit 77
}
fail()
{
    echo "$*" >&2
    exit 1
}
# shellcheck disable=SC2154 # of the script that sources this
. "$here/support/hosts.sh"
trap 'hosts_down; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
