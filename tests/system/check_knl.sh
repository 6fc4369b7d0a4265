#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Memory is placed in MCDRAM as requested, in emulated KNL nodes: tests/system/vm/knl.sh.
# shellcheck source-path=SCRIPTDIR source=../support/rules.sh
. "$(dirname "$0")/../support/rules.sh"
sh "$source/tests/system/vm/knl.sh" "$build"
