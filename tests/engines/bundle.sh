#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# bundle.sh SOURCE BUILD: the folder that scripts/gpu-bundle makes of BUILD runs in a
# container that has glibc, busybox and nothing else, on the fake driver; a trial that
# fails is told; and where no driver is, one line says so. Speaks TAP.

set -u
source=$1 build=$2
if [ -z "${3-}" ]; then
    for user in '' '--user --map-root-user'; do
        # shellcheck disable=SC2086
        if unshare $user --mount --pid --fork true 2>/dev/null; then
            exec unshare $user --mount --pid --fork --mount-proc \
                sh "$0" "$source" "$build" inside
        fi
    done
    echo "1..0 # SKIP no namespaces here"
    exit 0
fi
busybox=$(command -v busybox) || { echo "1..0 # SKIP no busybox"; exit 0; }
if ldd "$busybox" >/dev/null 2>&1; then
    echo "1..0 # SKIP busybox is not static (busybox-static)"
    exit 0
fi

echo "1..4"
failed=0
verdict() { # verdict STATUS TEXT
    number=$((number + 1))
    if [ "$1" -eq 0 ]; then
        echo "ok $number - $2"
    else
        echo "not ok $number - $2"
        failed=1
    fi
}
number=0

chroot=$(command -v chroot || echo /usr/sbin/chroot)
root=$(mktemp -d)
trap 'umount -l "$root"; rmdir "$root"' EXIT
mount -t tmpfs none "$root" || exit 1
mkdir -p "$root/bin" "$root/lib64" "$root/lib/x86_64-linux-gnu" "$root/proc" \
    "$root/dev/shm" "$root/tmp" "$root/sys" "$root/driver"
cp "$busybox" "$root/bin/busybox"
for name in $("$busybox" --list | grep -vx busybox); do
    ln -s busybox "$root/bin/$name"
done
cp -L /lib64/ld-linux-x86-64.so.2 "$root/lib64/"
for name in libc.so.6 libm.so.6; do
    cp -L "$(ldconfig -p | awk -v name="$name" '$1 == name && /x86-64/ { print $NF; exit }')" \
        "$root/lib/x86_64-linux-gnu/"
done
cp -L "$build/tests/engines/cuda/libcuda.so.1" "$root/driver/"
mount --rbind /proc "$root/proc" && mount --rbind /sys "$root/sys"
for device in null zero urandom; do
    : >"$root/dev/$device" && mount --bind "/dev/$device" "$root/dev/$device"
done
"$source/scripts/gpu-bundle" --build "$build" "$root/bundle" >"$root/tmp/made" 2>&1
verdict $? "the bundle is made: $(tail -n 1 "$root/tmp/made" | sed "s|$root||")"

within() {
    env -i PATH=/bin HOME=/tmp "$chroot" "$root" "$@"
}

within /bundle/run --fake /driver --log /tmp/log >"$root/tmp/out" 2>&1
status=$?
verdict $status "all trials pass on the fake driver"
[ "$status" -eq 0 ] || sed 's/^/# /' "$root/tmp/out"
table=$(python3 "$source/scripts/gpu-table" "$root/tmp/log")
echo "$table" | grep -q 'gradients: the bits of the host | 1, 2, 4 | ok |' &&
    echo "$table" | grep -q 'moe --mem device .* | 1, 2, 4 | ok |' &&
    [ "$(grep -c 'share of that bandwidth' "$root/tmp/log")" -ge 6 ] &&
    grep -q '^# on the fake driver' "$root/tmp/log"
verdict $? "a table of the log, which has shares and says that the driver is fake"

# A driver that fails from some copy on: trials fail, and the log says which.
within /bin/env FAKE_CUDA=break=400/719 /bundle/run --fake /driver --log /tmp/bad \
    >/dev/null 2>&1
[ $? -eq 1 ] && grep -q '^FAILED engine-memory' "$root/tmp/bad"
bad=$?
within /bundle/run --log /tmp/none >/dev/null 2>&1
[ $? -eq 77 ] && [ "$(grep -c '^skipped' "$root/tmp/none")" -eq 1 ] && [ "$bad" -eq 0 ]
verdict $? "a GPU that is lost, and none at all"
exit "$failed"
