#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# deps.sh SOURCE: scripts/deps with a Debian of our own making, in which id,
# sudo, dpkg-query and apt-get are scripts that say what we want.

set -eu
deps=$1/scripts/deps
list=$1/scripts/packages.txt
box=$(mktemp -d)
trap 'rm -rf "$box"' EXIT
PATH=$box:$PATH
export PATH

fake() { # fake NAME SCRIPT
    printf '#!/bin/sh\n%s\n' "$2" >"$box/$1"
    chmod +x "$box/$1"
}
fail() {
    echo "$*" >&2
    cat "$box/calls" "$box/out" >&2
    exit 1
}
run() { # run STATUS [ARGUMENT...]
    : >"$box/calls"
    want=$1
    shift
    set +e
    "$deps" "$@" >"$box/out" 2>&1
    got=$?
    set -e
    [ "$got" -eq "$want" ] || fail "scripts/deps $*: status $got, not $want"
}

fake apt-get "echo \"\$*\" >>$box/calls"
fake id 'echo 0'
fake sudo 'exit 1'
fake dpkg-query 'echo "installed gcc c-compiler"; echo "installed meson"
echo "config-files hwloc-nox"
echo "installed pkgconf pkg-config (= 1.8)"'

# As root: what is missing, and only that; what another provides is there.
run 0
grep -q '^-q update' "$box/calls" || fail 'no update'
install=$(grep '^install ' "$box/calls")
for word in -y --no-install-recommends libhwloc-dev libcriterion-dev; do
    case " $install " in
    *" $word "*) ;;
    *) fail "install lacks $word" ;;
    esac
done
for word in gcc meson pkg-config; do
    case " $install " in
    *" $word "*) fail "install has $word, which is there" ;;
    esac
done

# Training alone needs no test framework.
run 0 --train
grep -q libxsmm-dev "$box/calls" || fail 'no libxsmm-dev for training'
grep -q criterion "$box/calls" && fail 'training wants criterion'

# What is installed needs neither that nor an MPI, Fortran or a manual.
run 0 --install
for word in libhwloc-dev libxsmm-dev libucx-dev; do
    grep -q -e "$word" "$box/calls" || fail "no $word for installing"
done
for word in criterion mpi gfortran doxygen g++; do
    grep -q -F -e "$word" "$box/calls" && fail "installing wants $word"
done

# Neither root nor sudo: nothing is done, and the line to run is printed.
fake id 'echo 1000'
run 1
[ -s "$box/calls" ] && fail 'apt-get was called'
grep -q 'sudo apt-get install .*libhwloc-dev' "$box/out" ||
    grep -q 'sudo apt-get update && sudo apt-get install .*libhwloc-dev' \
        "$box/out" || fail 'no line to run'

# The same for what is installed, but it goes on when only parts are missing.
run 1 --install
fake dpkg-query "sed 's/#.*//' $list | awk '/ install/ { print \"installed\", \$1 }'"
run 0 --install
[ -s "$box/calls" ] && fail 'apt-get was called'
grep -q 'without.* libucx-dev' "$box/out" || fail 'it does not say what is left out'
fake dpkg-query 'echo "installed gcc c-compiler"'

# By sudo, where that asks for nothing.
fake sudo '[ "$1" = -n ] && shift; echo sudo >>'"$box"'/calls; exec "$@"'
run 0
grep -q sudo "$box/calls" || fail 'not by sudo'
grep -q '^install ' "$box/calls" || fail 'no install by sudo'

# A failing apt-get is a failure.
fake id 'echo 0'
fake apt-get 'exit 100'
run 100

# Everything is there: nothing is called.
fake apt-get "echo \"\$*\" >>$box/calls"
fake dpkg-query "sed 's/#.*//' $list | awk 'NF { print \"installed\", \$1 }'"
run 0
[ -s "$box/calls" ] && fail 'apt-get was called though nothing is missing'
[ -s "$box/out" ] && fail 'it talks though nothing is missing'

run 2 --nonsense
exit 0
