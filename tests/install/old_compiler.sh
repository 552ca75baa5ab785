#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# old_compiler.sh SOURCE: a compiler that is too old is refused when the build is
# configured, by its name and the version that is needed. It is the one of this
# machine, which says that it is older.

set -eu
source=$1
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

refused() { # refused COMPILER VERSION NEEDED
    command -v "$1" >/dev/null || {
        echo "there is no $1 here"
        return 0
    }
    # meson reads gcc's version from its macros, and that of clang from its text.
    cat >"$root/old-$1" <<END
#!/bin/sh
case \$* in
*-dM*)
    $1 "\$@" | sed -E 's/(__GNUC__) [0-9]+/\1 ${2%%.*}/
        s/(__GNUC_MINOR__|__GNUC_PATCHLEVEL__) [0-9]+/\1 0/' ;;
--version)
    $1 --version | sed '1s/[0-9]*\.[0-9]*\.[0-9]*\(-[0-9]*\)*/$2/g' ;;
*)
    exec $1 "\$@" ;;
esac
END
    chmod +x "$root/old-$1"
    if CC="$root/old-$1" meson setup "$root/build-$1" "$source" \
        >"$root/log" 2>&1; then
        echo "$1 $2 was taken" >&2
        exit 1
    fi
    grep -F "$1 $2 is too old: Shunt needs $1 $3 or newer" "$root/log" || {
        tail -n 5 "$root/log" >&2
        exit 1
    }
}
refused gcc 11.0.0 12
refused clang 13.0.0 14
