#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# plugin.sh BUILD SOURCE COMPILER...
#
# A transport that is no part of the library: the reference transport, under
# another name and in a folder of its own, where a copy of the public headers is
# all there is. It must compile, keep the contract (the conformance suite), be
# listed by shunt-info with its variable, and carry a program's ranks.

set -eu
build=$1
source=$2
shift 2

root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
mkdir -p "$root/include/shunt" "$root/plugins"
cp "$source"/include/shunt/*.h "$root/include/shunt"
sed -e 's/"inproc"/"outside"/' \
    -e 's/^extern const struct shunt_transport shunt_transport_v2;/static const struct shunt_transport_knob knobs[] = {{"SHUNT_OUTSIDE_MOOD", "calm", "What it feels like out there."}, {0}};\n&/' \
    -e 's/^    \.abi = SHUNT_TRANSPORT_ABI,/&\n    .knobs = knobs,/' \
    "$source/transports/inproc/inproc.c" >"$root/outside.c"
"$@" -std=gnu11 -D_GNU_SOURCE -Wall -O1 -shared -fPIC -fvisibility=hidden \
    -I "$root/include" "$root/outside.c" -pthread \
    -o "$root/plugins/shunt_outside.so"

SHUNT_PLUGIN_PATH=$root/plugins
export SHUNT_PLUGIN_PATH
number=0
failed=0
check() { # check NAME COMMAND...
    name=$1
    shift
    number=$((number + 1))
    if "$@" >"$root/log" 2>&1; then
        echo "ok $number - $name"
    else
        echo "not ok $number - $name"
        sed 's/^/# /' "$root/log"
        failed=1
    fi
}
says() { # says TEXT COMMAND...: its output has the text
    text=$1
    shift
    "$@" >"$root/out" 2>&1 && grep -F -e "$text" "$root/out" >/dev/null ||
        { cat "$root/out"; return 1; }
}
SHUNT_OUTSIDE_MOOD=wild
export SHUNT_OUTSIDE_MOOD

check 'the conformance suite' \
    "$build/tests/transports/transport_conformance" --threads outside
check 'shunt-info lists it' says "$root/plugins/shunt_outside.so" \
    "$build/tools/shunt-info" -t
check 'and its variable' says 'SHUNT_OUTSIDE_MOOD=wild' \
    "$build/tools/shunt-info" --env
check 'ranks go by it' env SHUNT_TRANSPORTS=outside \
    "$build/tests/rank_collectives" --threads 3 mixed_memory
check 'and say so' says 'outside (map, read)' env SHUNT_TRANSPORTS=outside \
    SHUNT_LOG=info "$build/tests/rank_collectives" --threads 2 mixed_memory
echo "1..$number"
exit $failed
