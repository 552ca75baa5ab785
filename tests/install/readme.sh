#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# readme.sh BUILD SOURCE
#
# Runs the lines of "Use it" in README.md as they stand there: as root into
# /usr/local, and as a plain user into a folder below HOME; and those of
# docs/drop-in.md. This happens in a mount namespace of its own, where the tree,
# /usr/local and /etc may be written to and stay as they are: their changes go to
# a file system in memory. What BUILD has built is not built again.

set -eu
build=$1
source=$2

skip() {
    echo "skipped: $*"
    exit 77
}
fail() {
    echo "FAILED: $*" >&2
    exit 1
}

if [ -z "${README_INSIDE-}" ]; then
    map=
    [ "$(id -u)" -eq 0 ] || map=--map-root-user
    unshare -m $map true 2>/dev/null ||
        skip "no mount namespace can be made here"
    # Whether we are the machine's root, or only root of the namespace.
    README_INSIDE=$(id -u) exec unshare -m $map "$0" "$@"
fi

# Open MPI may leave files there.
mount -t tmpfs -o mode=1777 shm /dev/shm
box=$(mktemp -d)
trap 'umount -l "$box"; rmdir "$box"' EXIT
mount -t tmpfs -o mode=755 tmpfs "$box"

# What overlays need where root is that of a namespace alone.
userxattr=rw
[ "$README_INSIDE" -eq 0 ] || userxattr=userxattr

over() { # over FOLDER: writing to it changes the box
    layer=$box/over$(echo "$1" | tr / -)
    mkdir "$layer" "$layer/upper" "$layer/work"
    # So that it has the owner and mode of what it covers.
    chmod --reference="$1" "$layer/upper"
    chown --reference="$1" "$layer/upper" 2>/dev/null || :
    mount -t overlay overlay -o "$userxattr" \
        -o "lowerdir=$1,upperdir=$layer/upper,workdir=$layer/work" "$1" ||
        skip "no overlay can be mounted here"
}
# In containers these are mounts of their own, which the overlay hides.
mkdir "$box/names"
cp /etc/hosts /etc/resolv.conf "$box/names" 2>/dev/null || :
for folder in /usr/local /etc /var/cache/ldconfig "$source"; do
    [ ! -d "$folder" ] || over "$folder"
done
cp "$box/names/"* /etc 2>/dev/null || :
case $build in
"$source"/*) ;;
*) over "$build" ;;
esac

# -- the lines, and how they are run ------------------------------------------

# The Nth run of indented lines below a heading.
block() { # block FILE HEADING N
    awk -v heading="$2" -v n="$3" '
        /^```/ { code = !code }
        /^#/ && !code { here = $0 == heading; next }
        !here || code { next }
        /^    / { if (!inside) count++; inside = 1
                  if (count == n) print substr($0, 5); next }
        NF { inside = 0 }' "$source/$1"
}
# No variable of ours, and no program but the system's. What we add is where "make
# install" builds, which is where all is built, and whether warnings are errors
# there, without which all would be compiled again; that MPI may start ranks as root,
# and more than there are cores; and that git may look into the tree of another.
werror=
grep -qs -e -Dwerror=true "$build/.options" &&
    werror=" INSTALL_OPTIONS=-Dwerror=true"
path=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
lines() { # lines NAME [COMMAND...]: run stdin in the tree
    cat >"$box/$1.sh"
    [ -s "$box/$1.sh" ] || fail "there are no such lines: $1"
    sed 's/^/+ /' "$box/$1.sh"
    name=$1
    shift
    (cd "$source" && exec env -i PATH="$path" HOME="$home" LANG=C.UTF-8 \
        GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory \
        GIT_CONFIG_VALUE_0="$source" \
        MAKEFLAGS="-- INSTALL_BUILD=${build#"$source"/}$werror" \
        OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
        OMPI_MCA_rmaps_base_oversubscribe=1 SHUNT_MPI_STATS=1 \
        "$@" sh -eu "$box/$name.sh") >"$box/$name.out" 2>&1 || {
        cat "$box/$name.out" >&2
        fail "$name"
    }
    tail -n 5 "$box/$name.out"
}
ran() { # ran NAME: did four ranks compute what they should have?
    [ "$(grep -c 'of 4: .* 0 wrong numbers' "$box/$1.out")" -eq 4 ] ||
        fail "$1: not four ranks without wrong numbers"
}
for_all=$(block README.md '## Use it' 1)
for_one=$(block README.md '## Use it' 2)
then=$(block README.md '## Use it' 3)
home=$box/root
mkdir "$box/root" "$box/home"

# -- for everybody ------------------------------------------------------------

(cd /usr/local && find . | sort) >"$box/before"
printf '%s\n' "$for_all" "$then" | lines root
ran root
# The program that stands there, by the commands above it.
awk '/^```/ { if (code) exit; code = $0 == "```c"; next } code' "$source/README.md" \
    >"$source/layer.c"
echo 'cc layer.c $(pkg-config --cflags --libs shunt) -o layer
shunt-run -n 4 ./layer' | lines layer
[ "$(grep -c 'token 7 came back as 8$' "$box/layer.out")" -eq 4 ] ||
    fail "the program of README.md does not print what it should"
# Also without what pkg-config says, as with other build systems.
echo 'cc examples/moe_layer.c -lshunt -o moe_layer; shunt-run -n 4 ./moe_layer
shunt-run -n 2 shunt-perf barrier --time 0.01 >/dev/null
shunt-train --version
cp /usr/local/bin/shunt-info moved_info
./moved_info -t | grep -q "^  shm  *usable"' | lines plain

# The drop-in, with either MPI, preloaded and linked.
cat >"$source/app.c" <<'END'
#include <mpi.h>
int main(int argc, char **argv)
{
    static char from[1 << 16], to[1 << 16];

    MPI_Init(&argc, &argv);
    MPI_Alltoall(from, 4096, MPI_CHAR, to, 4096, MPI_CHAR, MPI_COMM_WORLD);
    return MPI_Finalize();
}
END
served() {
    grep 'served [1-9]' "$box/$1.out" || fail "$1: nothing was served"
}
preload=$(block docs/drop-in.md '# Drop-in for MPI programs' 1)
link=$(block docs/drop-in.md '# Drop-in for MPI programs' 2)
mkdir "$box/mpi"
call() { # call COMMAND MPI: by its plain name, whatever Debian's alternative is
    printf '#!/bin/sh\nexec %s.%s "$@"\n' "$1" "$2" >"$box/mpi/$1"
    chmod +x "$box/mpi/$1"
}
if command -v mpirun.openmpi >/dev/null; then
    call mpirun openmpi
    { echo "mpicc.openmpi app.c -o app"; echo "$preload" | grep -e ' -x '; } |
        lines openmpi env PATH="$box/mpi:$path"
    served openmpi
    call mpicc openmpi
    printf '%s\n' "$link" 'mpirun -n 2 ./app' |
        lines linked env PATH="$box/mpi:$path"
    served linked
fi
if command -v mpirun.mpich >/dev/null; then
    call mpirun mpich
    { echo "mpicc.mpich app.c -o app"; echo "$preload" | grep -e ' -genv '; } |
        lines mpich env PATH="$box/mpi:$path"
    served mpich
fi

echo 'make uninstall PREFIX=/usr/local' | lines uninstall
(cd /usr/local && find . | sort) | diff "$box/before" - ||
    fail "make uninstall leaves things behind, or takes too much"

# -- for oneself --------------------------------------------------------------

# By a plain user, to whom the tree belongs, where we can become one.
become=
if [ "$README_INSIDE" -eq 0 ]; then
    become="setpriv --reuid 65534 --regid 65534 --clear-groups"
    chown 65534:65534 "$box/home" "$source"
    find "$build" -path "$build/tests" -prune -o -print0 |
        xargs -0 chown -h 65534:65534
    $become test -w "$build" ||
        skip "a plain user cannot get at $source"
fi
rm -f "$source/moe_layer"
home=$box/home
printf '%s\n' "$for_one" "$then" | lines user $become
ran user
[ -f "$box/home/.local/lib/libshunt.so" ] ||
    fail "the user's PREFIX has no library"
echo 'make uninstall PREFIX=$HOME/.local' | lines user_uninstall $become
[ -z "$(find "$box/home/.local" -mindepth 1 2>/dev/null)" ] ||
    fail "make uninstall leaves things behind"
if [ -n "$become" ]; then
    echo '! make install PREFIX=/usr/local' | lines refused $become
    grep -q 'no folder that you may write to' "$box/refused.out" ||
        fail "a PREFIX of somebody else is not explained"
fi
