#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory lies in MCDRAM where it was asked for, in emulated KNL nodes: tests/system/vm/knl.sh.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
sh "$source/tests/system/vm/knl.sh" "$build"
