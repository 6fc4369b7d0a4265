# SPDX-License-Identifier: Apache-2.0
# hosts.sh for scripts that are no tests: what it needs, and its end. here: the folder of the tests.
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
# shellcheck disable=SC2154 # of who reads this
. "$here/support/hosts.sh"
trap 'hosts_down; rm -rf "$scratch"' EXIT
trap 'exit 1' HUP INT TERM
