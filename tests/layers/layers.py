#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Holds the library to its layers, by its includes and by what nm says of it.

layers.py SOURCE_ROOT ARCHIVE...

A folder includes, and calls, only folders below it. No more than CIRCLE files
call one another in a circle, and no file is longer than LINES. Each descriptor
that the library makes is lifted above 2. Speaks TAP.
"""

import collections
import os
import re
import subprocess
import sys

# From the ground up. What a folder may include, besides itself and <shunt/...>.
BELOW = {
    "kernels": [],
    "src": ["kernels", "transports/common/descriptor.h"],
    "transports": [],
    "collectives": ["kernels", "src"],
    "moe": ["kernels", "src", "collectives"],
    "fused": ["kernels", "src", "collectives"],
    "balance": ["src/base/error.h", "src/kernels/best.h"],
    "bindings": ["src/base/env.h", "src/base/fnv.h", "src/base/own_file.h",
                 "transports/common/descriptor.h"],
    "cli": ["src/base/distance.h", "src/base/fnv.h"],
    "schedule": [],
    "workload": ["src/base/fnv.h"],
    "train": ["kernels", "cli", "workload", "src/plugin/plugin.h", "src/base/fnv.h"],
}
# Of bindings/ there are only variables in libshunt.
CALLS = ["kernels", "src", "collectives", "moe", "fused", "balance", "bindings"]
# What is no layer, but is read as well.
OTHERS = ["include", "perf", "sim", "tools", "examples"]
# What a transport may include besides its folder and transports/common: an engine
# copies as the library does.
PARTS = {"transports/dma": "src/kernels/copy.h"}
CIRCLE = 3
LINES = 700

# What makes a descriptor, and what may be around it (transports/common/descriptor.h).
# `.open(` and `->open(` are functions of plugins. recvmsg() gives descriptors one by
# one, which its file must lift.
MAKES = re.compile(r"(?<![\w.>])(?:memfd_create|socket|eventfd|epoll_create1?|"
                   r"timerfd_create|signalfd|inotify_init1?|accept4?|open|openat|"
                   r"dup|syscall\(SYS_pidfd_open|recvmsg)\b\s*\(?")
LIFTS = re.compile(r"\bshunti_fd_lift\(\s*(?:\(int\))?$")
DUPLICATES = re.compile(r"\bF_DUPFD\w*,\s*([^)]*)\)")
# By which the numbers 0 to 2 are themselves handled; and what makes its only one in
# open(), where the core keeps them occupied, and needs nothing but public headers.
OF_STDIO = ["transports/common/descriptor.h", "transports/inproc/inproc.c"]

root, archives = sys.argv[1], sys.argv[2:]
cases = []


def case(name, complaints):
    cases.append((name, complaints))


def sources(folder):
    for where, _, names in os.walk(os.path.join(root, folder)):
        for name in names:
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(where, name), root)


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def allowed(folder, header):
    inside = folder
    if folder == "transports":  # each plugin is a folder of its own
        return True
    return any(header == place or header.startswith(place + "/")
               for place in [inside] + BELOW[folder])


def upward_includes(folder):
    for path in sources(folder):
        for header in re.findall(r'#include "([^"]+)"', read(path)):
            if "/" not in header:
                yield f"{path} includes {header} without its folder"
            elif not allowed(folder, header):
                yield f"{path} includes {header}"
            elif folder == "transports":
                here = os.path.dirname(path)
                if (os.path.dirname(header) not in (here, "transports/common")
                        and header != PARTS.get(here)):
                    yield f"{path} includes {header}"


def without_comments(text):
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", '""', text,
                  flags=re.DOTALL)


def descriptors_at_0_to_2():
    for path in [p for folder in [*CALLS, "transports"] for p in sources(folder)]:
        if path in OF_STDIO:
            continue
        text = without_comments(read(path))
        for made in MAKES.finditer(text):
            call = re.sub(r"\W+$", "", made.group())
            if not made.group().endswith("(") and "SYS_" not in call:
                continue  # a word, not a call
            if call == "recvmsg":
                lifted = "shunti_fd_move(" in text
            else:
                lifted = LIFTS.search(text[:made.start()])
            if not lifted:
                yield f"{path}: {call}() is not in shunti_fd_lift()"
        for least in DUPLICATES.findall(text):
            if least != "STDERR_FILENO + 1":
                yield f"{path}: a duplicate may be {least}"


def file_of(archive, member):
    """The source of an object, without its ending: "src/wait"."""
    name = re.sub(r"\.c\.o$", "", member)
    archive = os.path.basename(archive)
    if archive.startswith("libkernels-"):  # one for each instruction set
        return f"kernels/{name} ({archive[len('libkernels-'):-len('.a')]})"
    # Meson's names: a folder's slash is an underscore.
    folder, _, rest = name.partition("_")
    if folder not in CALLS:
        sys.exit(f"{archive}: {member} is of no folder known here")
    return f"{folder}/{rest}"


def calls():
    """{file: {file: symbols}}, of all archives together."""
    defined, used = {}, collections.defaultdict(set)
    for archive in archives:
        lines = subprocess.run(["nm", "-A", archive], check=True, text=True,
                               stdout=subprocess.PIPE).stdout.splitlines()
        for line in lines:
            place, _, rest = line.rpartition(":")
            member = place.split(":")[-1]
            name = file_of(archive, os.path.basename(member))
            fields = rest.split()
            if fields[-2] == "U":
                used[name].add(fields[-1])
            elif fields[-2] in "TDBRVW":
                defined[fields[-1]] = name
    graph = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, symbols in used.items():
        for symbol in symbols:
            other = defined.get(symbol)
            if other and other != name:
                graph[name][other].append(symbol)
    return graph, set(used) | set(defined.values())


def circles(graph, files):
    """Strongly connected components of more than one file (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in list(graph[v]):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component = []
            while not component or component[-1] != v:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    sys.setrecursionlimit(10000)
    for v in sorted(files):
        if v not in index:
            visit(v)
    return found


def unended():
    """Files without a newline at their end, outside of what builds leave."""
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders
                      if not name.startswith((".", "build"))]
        for name in names:
            path = os.path.join(folder, name)
            if os.path.islink(path) or not name.endswith(
                    (".c", ".h", ".md", ".py", ".sh", ".build", ".in", ".txt")):
                continue
            with open(path, "rb") as file:
                if (file.read()[-1:] or b"\n") != b"\n":
                    yield os.path.relpath(path, root)


for layer in BELOW:
    if os.path.isdir(os.path.join(root, layer)):
        case(f"{layer} includes what is below it", list(upward_includes(layer)))

case("no descriptor of the library is 0 to 2", list(descriptors_at_0_to_2()))
graph, files = calls()
if len(files) < 60:
    case("nm sees the library", [f"only {len(files)} files"])
case("no upward call",
     [f"{a} calls {b}: {', '.join(graph[a][b])}" for a in list(graph)
      for b in graph[a]
      if a.split("/")[0] in CALLS and b.split("/")[0] in CALLS and
      CALLS.index(a.split("/")[0]) < CALLS.index(b.split("/")[0])])
case(f"no circle of more than {CIRCLE} files",
     [" ".join(circle) for circle in circles(graph, files)
      if len(circle) > CIRCLE and
      any(file.split("/")[0] in CALLS for file in circle)])
case(f"no file of more than {LINES} lines",
     [f"{path} has {len(read(path).splitlines())}"
      for folder in [*BELOW, *OTHERS] for path in sources(folder)
      if len(read(path).splitlines()) > LINES])

case("every text ends with a newline", list(unended()))

failed = False
print(f"1..{len(cases)}")
for number, (name, complaints) in enumerate(cases, 1):
    failed |= bool(complaints)
    print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
    for complaint in complaints:
        print(f"# {complaint}")
sys.exit(failed)
