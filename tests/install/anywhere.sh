#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# anywhere.sh BUILD COMPILER...
#
# Installs the build into a new folder and starts each program in every way that a
# user may: by its path, by its name on PATH, by a relative path, through links, with
# another argv[0], and without /proc. Each must find its plugins below the prefix,
# and take nothing from the current folder. That has a file of the program's name,
# and plugins which say that they were loaded.

set -eu
build=$1
shift

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
prefix=$(meson introspect "$build" --buildoptions |
    python3 -c 'import json, sys
print({o["name"]: o["value"] for o in json.load(sys.stdin)}["prefix"])')
meson install -C "$build" --no-rebuild --quiet --destdir "$root"
where=$root$prefix
programs=$(cd "$where/bin" && echo shunt-*)
unset SHUNT_PLUGIN_PATH LD_LIBRARY_PATH
clean=/usr/local/bin:/usr/bin:/bin

# -- the current folder, which nothing may be taken from ----------------------

decoys=$root/decoys
mkdir "$decoys" "$root/links"
cat >"$root/decoy.c" <<END
#include <stdio.h>
__attribute__((constructor)) static void loaded(void)
{
    FILE *f = fopen("$root/loaded", "a");

    if (f) {
        fputs("a plugin of the current folder\n", f);
        fclose(f);
    }
}
END
"$@" -shared -fPIC "$root/decoy.c" -o "$root/decoy.so"
for folder in shunt transports lib/shunt shunt/perf shunt/train; do
    mkdir -p "$decoys/$folder"
    for name in shm inproc tcp ucx dma decoy; do
        cp "$root/decoy.so" "$decoys/$folder/shunt_$name.so"
    done
done
mkdir "$decoys/report"
echo "open('$root/loaded', 'a').write('a module of the current folder')" |
    tee "$decoys/report/pages.py" >"$decoys/pages.py"
for name in $programs; do
    printf '#!/bin/sh\necho "a program of the current folder" >>%s/loaded\n' \
        "$root" >"$decoys/$name"
    chmod +x "$decoys/$name"
    ln -s "$where/bin/$name" "$root/links/$name"
    ln -s "$name" "$root/links/other-$name"
done

# -- what each program does ---------------------------------------------------

# The paths of plugins and the number of variables, which plugins add to.
"$where/bin/shunt-info" -t | grep -o '/.*/shunt_.*\.so' | sort >"$root/plugins"
"$where/bin/shunt-info" --env | grep '^  SHUNT_' >"$root/variables"
ls "$where"/lib/shunt/shunt_*.so | sort >"$root/files"
cmp -s "$root/plugins" "$root/files" ||
    { echo "shunt-info by its path does not list all plugins" >&2; exit 1; }
"$where/bin/shunt-perf" barrier --ranks 2 --time 0.01 \
    --json="$root/measured.json" >/dev/null

does() { # does COMMAND... NAME: what NAME is for, started as COMMAND
    for name; do :; done
    name=$(basename "$name")
    case ${name#other-} in
    shunt-info)
        "$@" -t >"$root/out" &&
            grep -o '/.*/shunt_.*\.so' "$root/out" | sort |
            cmp - "$root/plugins" &&
            grep -q '^  shm  *usable' "$root/out" &&
            "$@" --env | grep '^  SHUNT_' | cmp - "$root/variables" ;;
    shunt-run)
        "$@" -n 2 -- "$where/bin/shunt-info" -m >"$root/out" &&
            [ "$(grep -c 'rank [01] of 2' "$root/out")" -eq 2 ] ;;
    shunt-perf)
        "$@" copy --engine dma -e 4k --time 0.01 >"$root/out" &&
            "$@" barrier --ranks 2 --time 0.01 >"$root/out" ;;
    shunt-perf-report)
        "$@" "$root/measured.json" >"$root/out" ;;
    shunt-train)
        "$@" --preset tiny --steps 1 --memory layer=offload \
            --data "$where/include/shunt/moe.h" >"$root/out" ;;
    *)
        echo "no word in this test of what $name does"
        return 1 ;;
    esac
}

number=0
failed=0
check() { # check TEXT FOLDER COMMAND...: in FOLDER, `does COMMAND`
    text=$1
    folder=$2
    shift 2
    number=$((number + 1))
    : >"$root/out"
    rm -f "$root/loaded"
    if (cd "$folder" && does "$@") >"$root/log" 2>&1 && [ ! -e "$root/loaded" ]
    then
        echo "ok $number - $text"
    else
        echo "not ok $number - $text"
        cat "$root/log" "$root/loaded" "$root/out" 2>/dev/null |
            tail -n 20 | sed 's/^/# /'
        failed=1
    fi
}

# What the decoy does is seen, or nothing would be.
rm -f "$root/loaded"
SHUNT_PLUGIN_PATH=$decoys/shunt "$where/bin/shunt-info" -t >/dev/null 2>&1 || :
[ -s "$root/loaded" ] || { echo "the decoys are not noticed" >&2; exit 1; }

for name in $programs; do
    check "$name by its path" "$decoys" "$where/bin/$name"
    check "$name by its name" "$decoys" \
        env PATH="$where/bin:$clean" "$name"
    check "$name in its folder" "$where/bin" "./$name"
    check "$name by a relative path" "$where" "bin/$name"
    check "$name up and down" "$decoys" "../${where#"$root/"}/bin/$name"
    check "$name by a link" "$decoys" "$root/links/$name"
    check "$name by two links" "$decoys" "$root/links/other-$name"
    check "$name by a link on PATH" "$decoys" \
        env PATH="$root/links:$clean" "other-$name"
    check "$name from /" / env PATH="$where/bin:$clean" "$name"
    if [ "$(head -c 2 "$where/bin/$name")" != '#!' ]; then
        # A shell says who it is by bash's "exec -a".
        for zero in "$name" "./$name" "$decoys/$name" -; do
            check "$name, called '$(basename -- "$zero")'" "$decoys" \
                bash -c 'exec -a "$1" "$2" "${@:4}"' bash "$zero" \
                "$where/bin/$name" "$name"
        done
    fi
done

# A program finds the folder of its build if its own has no plugins.
if [ -d "$prefix/lib/shunt" ]; then
    echo "# $prefix has plugins already: moved programs were not tried"
else
    mkdir "$root/moved"
    cp "$where/bin/shunt-info" "$root/moved"
    number=$((number + 1))
    (cd "$decoys" && PATH="$root/moved:$clean" shunt-info -t) \
        >"$root/out" 2>&1 || :
    if grep -q "none was found" "$root/out" && [ ! -e "$root/loaded" ]; then
        echo "ok $number - a program without plugins has none"
    else
        echo "not ok $number - a program without plugins has none"
        sed 's/^/# /' "$root/out"
        failed=1
    fi
fi

# The loader may know the library by a relative name, and the program may move on.
cat >"$root/moves.c" <<'END'
#include <stdio.h>
#include <shunt/shunt.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    struct shunt_comm *comm = NULL;

    if (argc != 2 || chdir(argv[1]) || shunt_comm_create_env(NULL, &comm) ||
        shunt_comm_finish(comm))
        return fprintf(stderr, "%s\n", shunt_last_error(comm)), 1;
    shunt_comm_destroy(comm);
    return 0;
}
END
"$@" -I "$where/include" "$root/moves.c" -L "$where/lib" -lshunt -o "$root/moves"
number=$((number + 1))
rm -f "$root/loaded"
if (cd "$where" && LD_LIBRARY_PATH=lib "$root/moves" "$decoys") \
    >"$root/log" 2>&1 && [ ! -e "$root/loaded" ]; then
    echo "ok $number - a library by a relative name"
else
    echo "not ok $number - a library by a relative name"
    cat "$root/log" "$root/loaded" 2>/dev/null | sed 's/^/# /'
    failed=1
fi

# Where nothing is mounted on /proc, the kernel says by which path it started it.
if unshare -m true 2>/dev/null; then
    cat >"$root/without_proc" <<END
#!/bin/sh
umount -l /proc && exec "\$@"
END
    chmod +x "$root/without_proc"
    check "shunt-info without /proc" "$decoys" env PATH="$where/bin:$clean" \
        unshare -m "$root/without_proc" shunt-info
else
    echo "# no namespace can be made here: not tried without /proc"
fi
echo "1..$number"
exit $failed
