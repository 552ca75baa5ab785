#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD SOURCE COMPILER...
#
# Installs the build into a new folder, then does there what a user does: finds
# the library by pkg-config, builds the example with it, and runs that. Nothing
# of the build folder may be needed (transports are found beside the library).

set -eu
build=$1
source=$2
shift 2

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys
print({o["name"]: o["value"] for o in json.load(sys.stdin)}["prefix"])')

meson install -C "$build" --no-rebuild --quiet --destdir "$root"
# As if it had been configured for this prefix: .pc files can be moved.
where=$root$prefix
pc=$(find "$where" -name shunt.pc)
lib=$(dirname "$(dirname "$pc")")
[ -n "$pc" ] || { echo "no shunt.pc was installed" >&2; exit 1; }
PKG_CONFIG_PATH=$(dirname "$pc")
export PKG_CONFIG_PATH
fail() {
    echo "$*" >&2
    exit 1
}
config() { pkg-config --define-variable=prefix="$where" "$@"; }

version=$(sed -n 's/^#define SHUNT_VERSION "\(.*\)"$/\1/p' \
    "$where/include/shunt/version.h")
[ "$(config --modversion shunt)" = "$version" ] ||
    { echo "shunt.pc and version.h disagree" >&2; exit 1; }
for header in "$source"/include/shunt/*.h; do
    name=$(basename "$header")
    # mpi.h is installed with the library that it describes, if that was built.
    [ "$name" = mpi.h ] || [ -f "$where/include/shunt/$name" ] ||
        { echo "$name was not installed" >&2; exit 1; }
done
ls "$(config --variable=plugindir shunt)"/shunt_*.so >/dev/null

"$@" -std=c11 -Wall -Wextra -Werror "$source/examples/moe_layer.c" \
    $(config --cflags --libs shunt) -lm -o "$root/moe_layer"

# Everything from the installed tree, nothing from the build.
unset SHUNT_PLUGIN_PATH LD_LIBRARY_PATH
# Until 1.0 a minor version is part of the library's name.
series=$(echo "$version" | sed 's/^\(0\.[0-9]*\|[1-9][0-9]*\).*/\1/')
ldd "$root/moe_layer" | grep -F " => $lib/libshunt.so.$series " >/dev/null ||
    fail "the example is not linked with the installed libshunt.so.$series"
"$where/bin/shunt-run" -n 4 --timeout 60 "$root/moe_layer"

# Nothing private is exported.
if nm -D --defined-only "$lib/libshunt.so" | awk '$2 != "A" { print $3 }' |
    grep -vE '^shunt_'; then
    echo "these symbols of libshunt.so are nobody else's business" >&2
    exit 1
fi
