#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# install.sh BUILD SOURCE COMPILER...
#
# Installs the build into a new folder, then does there what a user does: finds
# the library by pkg-config and by CMake, builds the example with it, and runs
# that. Nothing of the build folder may be needed (transports are found beside the
# library). Man pages, completion and documents have to be there and be right.

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

# Modules are found below a prefix that is not that of the build.
if [ -e "$lib/shunt/perf/shunt-perf-mpi.so" ]; then
    "$where/bin/shunt-perf" alltoallv --ranks 2 --peer mpi -e 64 --time 0.02 \
        >"$root/perf" 2>&1 || { cat "$root/perf" >&2; exit 1; }
fi

# Nothing private is exported.
if nm -D --defined-only "$lib/libshunt.so" | awk '$2 != "A" { print $3 }' |
    grep -vE '^shunt_'; then
    echo "these symbols of libshunt.so are nobody else's business" >&2
    exit 1
fi

# CMake finds the same library, for this series of versions and for no other.
if command -v cmake >/dev/null; then
    mkdir "$root/cmake"
    cat >"$root/cmake/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.13)
project(user C)
foreach(other 0.0 0.99 1 1.0)
  find_package(shunt ${other} QUIET)
  if(shunt_FOUND)
    message(FATAL_ERROR "version ${other} was found")
  endif()
endforeach()
find_package(shunt ${SERIES} QUIET COMPONENTS nonesuch)
if(shunt_FOUND OR NOT shunt_NOT_FOUND_MESSAGE MATCHES nonesuch)
  message(FATAL_ERROR "the component nonesuch was found")
endif()
find_package(shunt ${SERIES} REQUIRED COMPONENTS shunt
  OPTIONAL_COMPONENTS nonesuch)
if(NOT shunt_shunt_FOUND OR shunt_nonesuch_FOUND)
  message(FATAL_ERROR "components: ${shunt_shunt_FOUND} ${shunt_nonesuch_FOUND}")
endif()
add_executable(moe_layer ${SOURCE}/examples/moe_layer.c)
target_link_libraries(moe_layer shunt::shunt m)
END
    CC=$* cmake -S "$root/cmake" -B "$root/cmake/build" -DSERIES="$series" \
        -DSOURCE="$source" -DCMAKE_PREFIX_PATH="$where" \
        >"$root/cmake/log" 2>&1 &&
        cmake --build "$root/cmake/build" >>"$root/cmake/log" 2>&1 ||
        { cat "$root/cmake/log" >&2; exit 1; }
    ldd "$root/cmake/build/moe_layer" |
        grep -F " => $lib/libshunt.so.$series " >/dev/null ||
        fail "CMake did not link with the installed libshunt.so.$series"
else
    echo "no cmake here: its configuration was not tried"
fi

# Programs start where they were installed, their man pages say what --help says,
# and bash completes what it explains.
cat >"$root/complete" <<'END'
. "$1"
program=$2
shift 2
COMP_WORDS=("$program" "$@")
COMP_CWORD=$#
_shunt "$program"
printf '%s\n' "${COMPREPLY[@]}"
END
completion=$where/share/bash-completion/completions
words() { # words PROGRAM WORD...: what the last one may become
    bash "$root/complete" "$completion/$(basename "$1")" "$@"
}
programs=$(cd "$where/bin" && echo shunt-*)
# What others may have in this prefix is none of shunt-perf-report's modules.
mkdir -p "$where/report"
echo 'raise SystemExit("a module of another package")' >"$where/report/pages.py"
for name in $programs; do
    "$where/bin/$name" --help >"$root/help" || fail "$name --help failed"
    page=$where/share/man/man1/$name.1
    [ -f "$page" ] || fail "no man page for $name"
    words "$where/bin/$name" - >"$root/words"
    for option in $(grep -oE '^ +(-[A-Za-z], )?--[a-z0-9-]+' "$root/help" | tr -d ,)
    do
        grep -qxF -e "$option" "$root/words" ||
            fail "bash does not complete $option of $name"
    done
    "$source/tests/install/man.py" "$page" "$where/bin/$name"
    if command -v groff >/dev/null; then
        groff -man -Tutf8 -ww -z "$page" 2>"$root/groff"
        [ ! -s "$root/groff" ] || { cat "$root/groff" >&2; exit 1; }
    fi
done
words "$where/bin/shunt-run" -n 4 --bind '' | grep -qx core ||
    fail "bash does not complete shunt-run --bind"
values() { # values PROGRAM OPTION VALUE...: are these completed, and no others?
    program=$1
    option=$2
    shift 2
    [ -f "$completion/$program" ] || return 0
    printf '%s\n' "$@" | sort >"$root/wanted"
    for equals in '' '='; do
        words "$where/bin/$program" "$option" $equals '' | sort |
            diff "$root/wanted" - >"$root/diff" ||
            { cat "$root/diff" >&2
              fail "bash does not complete $program $option$equals"; }
    done
}
values shunt-perf --dtype i8 u8 i32 u32 i64 u64 f16 bf16 f32 f64 fp8
values shunt-perf --op sum min max avg prod
values shunt-perf --peer mpi memcpy none link verbs
values shunt-train --gate softmax switch gshard sigmoid noisy
words "$where/bin/shunt-train" --preset ti | grep -qx tiny ||
    [ ! -f "$completion/shunt-train" ] ||
    fail "bash does not complete shunt-train --preset"
PATH=$where/bin:$PATH words "$where/bin/shunt-run" -n 4 --live shunt-r |
    grep -qx shunt-run || fail "bash does not complete the command of shunt-run"
if [ -f "$completion/shunt-perf" ]; then
    for word in alltoallv moe copy; do
        words "$where/bin/shunt-perf" "$word" | grep -qx "$word" ||
            fail "bash does not complete shunt-perf $word"
    done
fi

# Man pages of the library: each function that is exported, and an overview.
(
    cd "$where/share/man"
    [ -f man7/shunt.7 ] || exit 1
    for function in $(sed -n 's/^ *\(shunt_[a-z0-9_]*\);/\1/p' "$source/src/shunt.map"); do
        [ -f "man3/$function.3" ] || { echo "no $function.3" >&2; exit 1; }
    done
    # One that is only a reference leads to one that is there.
    for of in $(sed -n 's/^\.so //p' man3/*.3); do
        [ -f "$of" ] || { echo "no $of" >&2; exit 1; }
    done
) || fail "man pages are missing"

# The documents, as they lie in the tree.
(
    cd "$source"
    for file in LICENSE README.md CHANGELOG.md docs/*.md docs/design/*.md \
        docs/*.svg docs/scaling/*.svg train/README.md; do
        cmp "$file" "$where/share/doc/shunt/$file" || exit 1
    done
) || fail "documents are missing"

# What they link to is there, too.
find "$where/share/doc/shunt" -name '*.md' | while read -r file; do
    for link in $(grep -oE '\]\([^)#: ]+[)#]' "$file" | sed 's/..//; s/.$//'); do
        [ -e "$(dirname "$file")/$link" ] || fail "${file##*/} links to $link"
    done
done
