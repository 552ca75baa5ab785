#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compiles and runs the programs of docs/tutorial.md, by its own commands.

tutorial.py SOURCE BUILD COMPILER...

The first two blocks of C are dense.c; all blocks except the second one are moe.c. The
blocks of shell run as they are in the text: `cc` is COMPILER with all warnings, and
pkg-config finds the library in BUILD. The output must be that of the text, except that
the numbers of ranks and rows may differ. Each rank must have 0 wrong numbers.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

source, build, *compiler = sys.argv[1:]
# Name compilers by path, because ccache would find the script `cc` below in PATH.
compiler = [shutil.which(word) or word for word in compiler]
WARNINGS = "-std=c11 -Wall -Wextra -Wpedantic -Wshadow -Werror"


def write(folder, name, text, mode=0o644):
    path = os.path.join(folder, name)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, mode)


with open(f"{source}/docs/tutorial.md", encoding="utf-8") as file:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", file.read(), re.M | re.S)
c = [text for kind, text in blocks if kind == "c"]
shell = [text for kind, text in blocks if kind == "sh"]
shown = [text for kind, text in blocks if kind == "text"]
if len(c) < 8 or len(shell) != 2 or len(shown) != 1:
    sys.exit("tutorial.py: the tutorial has other blocks than it expects")

with tempfile.TemporaryDirectory() as box:
    write(box, "dense.c", c[0] + c[1])
    write(box, "moe.c", c[0] + "".join(c[2:]))
    write(box, "cc", f"#!/bin/sh\nexec {' '.join(compiler)} {WARNINGS} \"$@\"\n", 0o755)
    write(box, "shunt.pc", "Name: shunt\nDescription: of the build\nVersion: 0\n"
          f"Cflags: -I{source}/include\n"
          f"Libs: -L{build} -lshunt -Wl,-rpath,{build}\n")
    env = {**os.environ, "PKG_CONFIG_PATH": box,
           "PATH": f"{box}:{build}/tools:{os.environ['PATH']}"}
    if subprocess.run(["pkg-config", "shunt"], env=env, check=False).returncode:
        print("skipped: there is no pkg-config")
        sys.exit(77)
    printed = []
    for lines in shell + ["./moe\n"]:
        job = subprocess.run(["sh", "-euc", lines], cwd=box, env=env, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             check=False)
        print(lines + job.stdout)
        if job.returncode:
            sys.exit(f"FAILED: exit status {job.returncode}")
        printed.append(job.stdout.splitlines())

# Match the line of the text with any numbers, except the number of wrong results.
line = re.escape(shown[0].strip().removeprefix("[0] "))
line = re.sub(r"\d+(?!\\ wrong)", r"\\d+", line)
for output, ranks in (printed[1], 4), (printed[2], 1):
    right = [text for text in output
             if re.fullmatch(rf"(\[\d\] )?{line}", text) and f"of {ranks}:" in text]
    if len(right) != ranks or len(output) != ranks:
        sys.exit(f"FAILED: not {ranks} lines as the tutorial shows: {output}")
if f"[0] {shown[0].strip().removeprefix('[0] ')}" not in printed[1]:
    print("(here the numbers of rows are others than in the text)")
