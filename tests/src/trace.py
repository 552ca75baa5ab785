#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks (rank_trace.c) that shunt-run starts.

One file for all of them, with bytes, peers and algorithms.
"""

import json
import os
import subprocess
import sys
import tempfile

PROGRAM = os.path.join(os.environ["SHUNT_TEST_BIN"], "rank_trace")
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text, flush=True)


def run(folder, case, ranks=3, **variables):
    """Run it; {file: events} of what it left."""
    env = {**os.environ, **{name: value.format(folder)
                            for name, value in variables.items()}}
    result = subprocess.run([os.environ["SHUNT_RUN"], "-n", str(ranks),
                             "--grace", "0.2", PROGRAM, case], env=env,
                            capture_output=True, text=True, timeout=60,
                            check=False)
    files = {}
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            files[name] = json.load(file)
        os.remove(path)
    return result, files


def spans(events, name):
    return [e for e in events if e["ph"] == "X" and e["name"] == name]


def timeline(folder):
    result, files = run(folder, "calls", SHUNT_TRACE="{}/all.json")
    if result.returncode or list(files) != ["all.json"]:
        fail(f"not one file, but {list(files)}: {result.stderr}")
        return
    events = files["all.json"]
    if {e["pid"] for e in events} != {0, 1, 2}:
        fail("not of all ranks")
    for rank in range(3):
        own = [e for e in events if e["pid"] == rank]
        gather = spans(own, "allgather")[-1]["args"]
        if (gather["bytes"], gather["algorithm"], gather["dtype"],
                gather["status"]) != (16, "flat", "i64", 0):
            fail(f"rank {rank}: {gather}")
        if gather["to"] != {str(p): 8 for p in range(3) if p != rank}:
            fail(f"rank {rank}: {gather}")
        cast = spans(own, "broadcast")[-1]["args"]
        sent = 2 * (256 << 10) if rank == 1 else 0
        if (cast["bytes"], cast["root"]) != (sent, 1):
            fail(f"rank {rank}: {cast}")
    # Names with the rank in them stay as many files.
    _, files = run(folder, "calls", SHUNT_TRACE="{}/of-%r")
    if sorted(files) != ["of-0", "of-1", "of-2"]:
        fail(f"files {list(files)}")


with tempfile.TemporaryDirectory() as temporary:
    timeline(temporary)
sys.exit(1 if failures else 0)
