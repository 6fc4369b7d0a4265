#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A compiler's launcher for warnings only: parse the source, and leave an empty object. Kernels, of benches too, are compiled, since their target
# options are only checked as code is made. Usage: sh warnings.sh OBJECT COMPILER ARGUMENT...
set -eu
object=$1
shift
case $object in
kernels/* | */kernels/* | */peers/*) exec "$@" -o "$object" ;;
esac
"$@" -fsyntax-only
: >"$object"
