#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# header.sh HEADER COMPILER [FLAG...]: does it compile alone? Twice in a row, so
# that its include guard is seen too, and from a file, so that it is no main file
# itself. Every NAME_INIT of it initialises a struct NAME.

set -eu
header=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
printf '#include <shunt/%s>\n#include <shunt/%s>\nint nothing_more;\n' \
    "$header" "$header" >"$folder/unit"
grep -o '#define SHUNT_[A-Z_]*_INIT\>' \
    "$(dirname "$0")/../../include/shunt/$header" | sed 's/#define //' |
    while read -r macro; do
        name=$(echo "${macro%_INIT}" | tr A-Z a-z)
        echo "struct $name an_$name(void);"
        echo "struct $name an_$name(void)"
        echo "{ struct $name x = $macro; return x; }"
    done >>"$folder/unit"
"$@" "$folder/unit"
