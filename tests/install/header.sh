#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# header.sh HEADER COMPILER [FLAG...]: does it compile alone? Twice in a row, so
# that its include guard is seen too, and from a file, so that it is no main file
# itself.

set -eu
header=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#include <shunt/%s>\n#include <shunt/%s>\nint nothing_more;\n' \
    "$header" "$header" >"$folder/unit"
"$@" "$folder/unit"
