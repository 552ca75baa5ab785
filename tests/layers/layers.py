#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the layers of the library, by its includes and by the output of nm.

layers.py SOURCE_ROOT ARCHIVE...

A folder may include, and call, only folders below it. So may the rooms of shunt-train
and of shunt-perf, whose archives are among ARCHIVE. At most CIRCLE files may call one
another in a circle, and no file may be longer than LINES. Each descriptor that the
library makes must be lifted above 2. Only the files that the comment of a part of struct
shunt_comm names may write to that part. Prints TAP.
"""

import collections
import fnmatch
import os
import re
import subprocess
import sys

# The rooms of src/, from the lowest up. Each may include, and call, those before it.
ROOMS = ["src/" + room for room in
         ("kernels", "base", "trace", "host", "plugin", "wire", "op", "progress",
          "memory", "boot", "comm")]
# Headers of src/ that all rooms except src/kernels may include: struct shunt_comm and its
# settings, whose members the rooms declare.
ABOVE_ROOMS = ["src/comm.h", "src/tunables.h", "src/shunt-build.h"]
# The header that lifts descriptors above 2. Transports include it, too.
LIFT = "transports/common/descriptor.h"

SRC = [*ROOMS, *ABOVE_ROOMS]
# The same for moe/, and the structures of an exchange, a plan and a route.
MOE_ROOMS = ["moe/" + room for room in
             ("layout", "plan", "device", "route", "exchange", "state")]
ABOVE_MOE = ["moe/plan.h", "moe/route.h"]

# The rooms of shunt-train, from the lowest up. Each may include those before it, and
# the parts in OF_TRAIN.
TRAIN_ROOMS = ["train/" + room for room in
               ("workload", "baseline", "base", "layers", "parameters", "exchange", "memory",
                "balance", "model", "options", "step", "run")]
# Headers that meson generates in train/.
TRAIN_MADE = ["train/train_config.h", "train/report_style.h"]
OF_TRAIN = ["src/kernels", "src/plugin/plugin.h", "src/base/fnv.h", "tools/cli",
            *TRAIN_MADE]
# The same for shunt-perf. The measurements may not include each other.
PERF_ROOMS = ["perf/" + room for room in
              ("base", "options", "ranks", "peers", "sampling", "tables")]
MEASUREMENTS = ["perf/collectives", "perf/tokens", "perf/copies"]
PERF_MADE = ["perf/perf_config.h", "perf/perf_commit.h"]
OF_PERF = ["src/kernels", "src/plugin/plugin.h", "src/base/fnv.h",
           "src/base/first_line.h", "tools/cli", "train/workload", "train/baseline",
           *PERF_MADE]

# The folders and headers that each folder may include, besides itself and <shunt/...>. A
# folder does not include folders inside of it that have their own row.
BELOW = {
    **{room: [*ROOMS[:i], *(ABOVE_ROOMS if i else []), *([LIFT] if i else [])]
       for i, room in enumerate(ROOMS)},
    "src": SRC,
    "transports": [],
    "collectives": [*SRC],
    "collectives/fused": [*SRC, "collectives"],
    **{room: [*SRC, "collectives", *ABOVE_MOE, *MOE_ROOMS[:i]]
       for i, room in enumerate(MOE_ROOMS)},
    "moe": [*SRC, "collectives", *MOE_ROOMS],
    "moe/balance": ["src/base/error.h", "src/kernels/best.h"],
    "bindings": ["src/base/env.h", "src/base/fnv.h", "src/base/own_file.h", LIFT],
    "tools": [*SRC, "collectives/select.h", "tools/cli"],
    "tools/cli": ["src/base/distance.h", "src/base/fnv.h"],
    **{room: [*(OF_TRAIN if i else ["src/base/fnv.h"]), *TRAIN_ROOMS[:i]]
       for i, room in enumerate(TRAIN_ROOMS)},
    "perf/schedule": [],
    **{room: [*OF_PERF, *PERF_ROOMS[:i]] for i, room in enumerate(PERF_ROOMS)},
    **{room: [*OF_PERF, *PERF_ROOMS, "perf/schedule"] for room in MEASUREMENTS},
    # The programs: shunt-perf, and one that compares routers of shunt-train.
    "perf": [*OF_PERF, *PERF_ROOMS, *MEASUREMENTS, "train/base", "train/layers"],
    "perf/sim": ["moe/layout", "moe/plan", "moe/route", "src/kernels", "perf/base",
                 "tools/cli", "train/workload"],
    "examples": [],
}
# The folders of libshunt, from the lowest up. Of bindings/ it has only variables.
CALLS = [*ROOMS, "collectives", *MOE_ROOMS, "collectives/fused", "moe/balance",
         "bindings"]
# The folder whose rooms are in the archive of a program.
PROGRAMS = {"libtrain.a": "train", "libshunt-perf-parts.a": "perf"}
# Folders that are no layers, but are read as well.
OTHERS = ["include"]
# The header that a transport may include besides its folder and transports/common,
# because an engine copies as the library does.
PARTS = {"transports/dma": "src/kernels/copy.h"}
CIRCLE = 3
LINES = 700

# Calls that make a descriptor, and the call that must be around them
# (transports/common/descriptor.h). `.open(` and `->open(` are functions of plugins.
# recvmsg() receives descriptors one by one, and its file must lift them.
MAKES = re.compile(r"(?<![\w.>])(?:memfd_create|socket|eventfd|epoll_create1?|"
                   r"timerfd_create|signalfd|inotify_init1?|accept4?|open|openat|"
                   r"dup|syscall\(SYS_pidfd_open|recvmsg)\b\s*\(?")
LIFTS = re.compile(r"\bshunti_fd_lift\(\s*(?:\(int\))?$")
DUPLICATES = re.compile(r"\bF_DUPFD\w*,\s*([^)]*)\)")
# Files that need not lift. The first one handles the numbers 0 to 2 itself. The second one
# makes its only descriptor in open(), while the core keeps 0 to 2 occupied, and includes
# only public headers.
OF_STDIO = ["transports/common/descriptor.h", "transports/inproc/inproc.c"]

root = sys.argv[1]
programs = [path for path in sys.argv[2:] if os.path.basename(path) in PROGRAMS]
library = [path for path in sys.argv[2:] if path not in programs]
cases = []


def case(name, complaints):
    cases.append((name, complaints))


def sources(folder):
    """Yields the files of a folder, without those of layers inside of it."""
    for where, folders, names in os.walk(os.path.join(root, folder)):
        here = os.path.relpath(where, root)
        folders[:] = [name for name in folders if f"{here}/{name}" not in BELOW]
        for name in names:
            if name.endswith((".c", ".h")):
                yield os.path.relpath(os.path.join(where, name), root)


def layer_of(path):
    """Returns the layer of a file: the longest one with which its path begins."""
    return max((layer for layer in BELOW if path.startswith(layer + "/")), key=len,
               default="")


def read(path):
    with open(os.path.join(root, path), encoding="utf-8") as file:
        return file.read()


def allowed(folder, header):
    if folder == "transports":  # each plugin is a folder of its own
        return True
    return header in BELOW[folder] or layer_of(header) in [folder, *BELOW[folder]]


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
    for path in [p for folder in [*CALLS, "src", "moe", "transports"] for p in sources(folder)]:
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


# Meson names the object of src/op/read.c "src_op_read.c.o".
OBJECTS = {path.replace("/", "_") + ".o": path[:-len(".c")]
           for layer in BELOW for path in sources(layer) if path.endswith(".c")}


def file_of(archive, member):
    """Returns the source of an object, without its ending: "src/op/read"."""
    archive = os.path.basename(archive)
    if archive.startswith("libkernels-"):  # there is one for each instruction set
        name = re.sub(r"\.c\.o$", "", member)
        return f"src/kernels/{name} ({archive[len('libkernels-'):-len('.a')]})"
    if archive in PROGRAMS:  # an object's name begins behind the program's folder
        member = f"{PROGRAMS[archive]}_{member}"
    if member not in OBJECTS:
        sys.exit(f"{archive}: {member} is of no folder known here")
    return OBJECTS[member]


def calls(archives):
    """Returns {file: {file that it calls: symbols}} and all files of these archives."""
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
    """Returns the strongly connected components of more than one file (Tarjan, 1972)."""
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


# These files may write to every part (src/comm.h).
OF_ALL_PARTS = ["src/comm/init.c", "src/progress/inherited.c", "src/progress/registry.c"]
# A write to comm->part.field: an assignment, a count, an atomic operation.
FIELD = r"->(\w+)\.[\w.]+(?:\[[^]]*\])?"
WRITES = re.compile(
    rf"(?:\+\+|--)[\w>.-]*?{FIELD}|"
    rf"{FIELD}\s*(?:=(?!=)|[-+*|&^]=|<<=|>>=|\+\+|--)|"
    rf"atomic_(?:store|fetch|exchange|compare|clear|test)\w*\(\s*&[\w>.-]*?{FIELD}")


def parts():
    """Returns {part of struct shunt_comm: its own files and those its comment names}."""
    text = read("src/comm.h")
    body = text[text.index("struct shunt_comm {"):]
    members = re.findall(r"struct (shunti_\w+)\s+(\w+);", body[:body.index("\n};")])
    found = {}
    for header in [path for layer in [*ROOMS, "src"] for path in sources(layer)
                   if path.endswith(".h")]:
        text = read(header)
        for kind, part in members:
            at = text.find(f"\nstruct {kind} {{")
            if at >= 0:
                before = text[:at]
                comment = (before[before.rindex("/*"):]
                           if before.endswith("*/") else "")
                name = os.path.basename(header)[:-len(".h")]
                found[part] = {name + ".c", name + ".h",
                               *re.findall(r"[\w*]+\.[ch]\b", comment)}
    return found


def strange_writes():
    """Yields writes to a part of the communicator by files that its comment does not
    name."""
    owners = parts()
    if len(owners) < 20:
        yield f"only {len(owners)} parts of struct shunt_comm were found"
    for path in [p for layer in [*CALLS, "src", "moe"] for p in sources(layer)]:
        if path in OF_ALL_PARTS:
            continue
        name = os.path.basename(path)
        for write in WRITES.finditer(without_comments(read(path))):
            part = next(filter(None, write.groups()))
            if not any(fnmatch.fnmatch(name, owner)
                       for owner in owners.get(part, [name])):
                yield f"{path} writes to {part}: {write.group().split('->')[-1]}"


def unended():
    """Yields the files without a newline at their end, except those of builds."""
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
graph, files = calls(library)
if len(files) < 60:
    case("nm sees the library", [f"only {len(files)} files"])
def height(file):
    """Returns the index of a file's layer in libshunt; None if it is not there."""
    layer = layer_of(file)
    return CALLS.index(layer) if layer in CALLS else None


case("no upward call",
     [f"{a} calls {b}: {', '.join(graph[a][b])}" for a in list(graph)
      for b in graph[a]
      if height(a) is not None and height(b) is not None and height(a) < height(b)])
for program in programs:
    of_program, _ = calls([program])
    case(f"no upward call in {PROGRAMS[os.path.basename(program)]}",
         [f"{a} calls {b}: {', '.join(of_program[a][b])}" for a in list(of_program)
          for b in of_program[a]
          if layer_of(b) not in [layer_of(a), *BELOW[layer_of(a)]]])
case(f"no circle of more than {CIRCLE} files",
     [" ".join(circle) for circle in circles(graph, files)
      if len(circle) > CIRCLE and any(height(file) is not None for file in circle)])
case(f"no file of more than {LINES} lines",
     [f"{path} has {len(read(path).splitlines())}"
      for folder in [*BELOW, *OTHERS] for path in sources(folder)
      if len(read(path).splitlines()) > LINES])

case("each part of a communicator is written by the files that it names",
     list(strange_writes()))
case("every text ends with a newline", list(unended()))

failed = False
print(f"1..{len(cases)}")
for number, (name, complaints) in enumerate(cases, 1):
    failed |= bool(complaints)
    print(f"{'not ok' if complaints else 'ok'} {number} - {name}")
    for complaint in complaints:
        print(f"# {complaint}")
sys.exit(failed)
