#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does each room have a README that is short and names each of its files?

rooms.py SOURCE

A room is a folder with sources. Its README has at most LINES lines, unless it is the
manual of a program (MANUALS). The README names a file without its ending, in backticks:
`select`, or `cli/parse`. Prints TAP, one line for each room. The first room is a sample
in which everything is wrong.
"""

import os
import re
import sys

SOURCE = sys.argv[1]
LINES = 40
ROOMS = ["src", "collectives", "moe", "transports", "train", "perf", "tools", "bindings",
         "scripts", "examples", "tests"]
MANUALS = ["train"]
# Folders without a README, which that of the folder above describes.
WITHIN = re.compile(r"bindings|src/kernels/gemm|transports/(?!rdma$)\w+|perf/(schedule|sim)|"
                    r"tools/(cli|report)|scripts/packaging|tests/.+")
# Folders whose files the room's README need not name.
AS_A_WHOLE = re.compile(r"transports/\w+|scripts/packaging|tests(/.+)?")
SOURCES = (".c", ".cpp", ".h", ".py", ".css")
SAMPLE = "# sample\n\nThere are `here` and `sub/inside`, `prefix_of` and more.\n" + "\n" * 38
FAULTS = ["41 lines, 40 at most", "does not name prefix", "does not name there"]


def files(folder):
    """Yields the files of a room without their endings, and those of folders within it."""
    for name in sorted(os.listdir(os.path.join(SOURCE, folder))):
        path = f"{folder}/{name}"
        if os.path.isdir(os.path.join(SOURCE, path)):
            if WITHIN.fullmatch(path) and not AS_A_WHOLE.fullmatch(path):
                yield from files(path)
        elif name.endswith(SOURCES):
            yield os.path.splitext(name)[0]


def faults(text, names, most=LINES):
    lines = text.count("\n")
    if lines > most:
        yield f"{lines} lines, {most} at most"
    spans = {os.path.splitext(os.path.basename(word))[0]
             for span in re.findall(r"`([^`\n]+)`", text) for word in span.split()}
    for name in sorted(set(names) - spans):
        yield f"does not name {name}"


def rooms():
    for top in ROOMS:
        for where, folders, names in os.walk(os.path.join(SOURCE, top)):
            folders.sort()
            here = os.path.relpath(where, SOURCE)
            if not WITHIN.fullmatch(here) and (
                    here == top or any(name.endswith(SOURCES) for name in names)):
                yield here


def room_faults(room):
    path = os.path.join(SOURCE, room, "README.md")
    if not os.path.exists(path):
        return ["no README.md"]
    with open(path, encoding="utf-8") as file:
        text = file.read()
    names = ([] if AS_A_WHOLE.fullmatch(room) and room != "transports/rdma"
             else files(room))
    return list(faults(text, names, text.count("\n") if room in MANUALS else LINES))


def main():
    found = list(faults(SAMPLE, ["here", "there", "inside", "prefix"]))
    failed = found != FAULTS
    print(("not " if failed else "") + "ok 1 - faults of a sample are found")
    if failed:
        print(f"# {found}")
    number = 1
    for number, room in enumerate(rooms(), 2):
        found = room_faults(room)
        failed = failed or bool(found)
        print(f"{'not ' if found else ''}ok {number} - {room}")
        for fault in found:
            print(f"# {room}/README.md: {fault}")
    if number < 20:
        failed = True
        print(f"# only {number - 1} rooms were found")
    print(f"1..{number}")
    sys.exit(failed)


main()
