#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Timelines of ranks (rank_trace.c) that shunt-run starts.

One file for all of them, with bytes, peers and algorithms; and the flight
recorder's, when a call times out or a rank is lost.
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
    result, files = run(folder, "calls", SHUNT_TRACE="{}/all.json",
                        SHUNT_CMA="off")
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
        # Each by the one way that there is for it.
        if gather["ways"] != {"inline": [p for p in range(3) if p != rank]}:
            fail(f"rank {rank}: {gather}")
        window = spans(own, "broadcast")[-2]["args"]
        if window.get("ways") != ({"window": [0, 2]} if rank == 1 else None):
            fail(f"rank {rank}: {window}")
        if cast.get("ways") != ({"stream": [0, 2]} if rank == 1 else None):
            fail(f"rank {rank}: {cast}")
    # Names with the rank in them stay as many files.
    _, files = run(folder, "calls", SHUNT_TRACE="{}/of-%r")
    if sorted(files) != ["of-0", "of-1", "of-2"]:
        fail(f"files {list(files)}")


def two_levels(folder):
    # A way for each rank that got something, in both levels.
    for least, algorithm in (("1k", "two_level"), ("8", "two_level_in_place")):
        _, files = run(folder, "calls", 4, SHUNT_TRACE="{}/all.json",
                       SHUNT_TEST_NODES="0,0,1,1", SHUNT_ALGORITHM="two_level",
                       SHUNT_RELAY_IN_PLACE=least)
        gathers = spans(files["all.json"], "allgather")
        for event in gathers:
            rank, args = event["pid"], event["args"]
            named = {r for ranks in args["ways"].values() for r in ranks}
            # Our block to the rail peer, and with that one's to the local peer.
            bytes_to = {str((rank + 2) % 4): 8, str(rank ^ 1): 16}
            if args["algorithm"] != algorithm or args["to"] != bytes_to or \
                    named != {int(r) for r in args["to"]}:
                fail(f"two levels: {event}")
        if len(gathers) < 4:
            fail(f"{algorithm}: {len(gathers)} calls")


def modes(folder):
    for there, back in (("two_level", "flat"), ("flat", "two_level")):
        mode = f"{there},{back}".replace("_", "-")
        result, files = run(folder, "tokens", 4, SHUNT_TRACE="{}/all.json",
                            SHUNT_TEST_NODES="0,0,1,1", SHUNT_MOE_MODE=mode)
        if result.returncode or list(files) != ["all.json"]:
            fail(f"{mode}: {list(files)}: {result.stderr}")
            return
        for call, algorithm in (("moe_dispatch", there), ("moe_combine", back),
                                ("moe_combine_backward", there),
                                ("moe_dispatch_backward", back)):
            taken = [s["args"]["algorithm"]
                     for s in spans(files["all.json"], call)]
            if taken != 4 * [algorithm]:
                fail(f"{mode}: {call} took {taken}")


def bounded(folder):
    result, files = run(folder, "timeout", 2, SHUNT_TRACE="{}/of-%r",
                        SHUNT_TRACE_MAX="8k", SHUNT_TIMEOUT="1")
    for name, events in files.items():
        if len(json.dumps(events, separators=(",", ":"))) > 8192:
            fail(f"{name} is too large")
    if "SHUNT_TRACE_MAX" not in result.stderr:
        fail(f"nothing is said of the limit: {result.stderr}")


def whole(folder, case):
    """Two ranks, each with a file that is whole (run() reads it)."""
    result, files = run(folder, case, 2, SHUNT_TRACE="{}/of-%r")
    if result.returncode or len(files) != 2:
        fail(f"{list(files)}: {result.stderr}")
    return result, files


def full(folder):
    # An event that was written in part is removed.
    result, _ = whole(folder, "full")
    if "ends here" not in result.stderr:
        fail(f"nothing is said of the file's end: {result.stderr}")


def forks(folder):
    # Each event is there once.
    _, files = whole(folder, "forks")
    for name, events in files.items():
        seqs = [e["args"]["seq"] for e in spans(events, "barrier")]
        if len(seqs) < 3001 or len(set(seqs)) != len(seqs):
            fail(f"{name}: {len(seqs)} barriers, {len(set(seqs))} of them once")


def recorder(folder):
    result, files = run(folder, "calls",
                        SHUNT_FLIGHT_RECORDER="{}/flight.json")
    if result.returncode or files:
        fail(f"nothing failed, but there is {list(files)}")

    size = 64  # events
    result, files = run(folder, "timeout", 2, SHUNT_TIMEOUT="1",
                        SHUNT_FLIGHT_RECORDER="{}/flight.json",
                        SHUNT_FLIGHT_RECORDER_SIZE=str(size * 520))
    events = [e for e in files.get("flight.json", []) if e["ph"] != "M"]
    if list(files) != ["flight.json"] or not events:
        fail(f"{list(files)}: {result.stderr}")
        return
    if not size / 2 < len(events) < 2 * size:
        fail(f"{len(events)} events of {size}")
    times = [e["ts"] for e in spans(events, "barrier")]
    if times != sorted(times):
        fail("not in order")
    failed = [e for e in events if e["name"] == "failed"]
    pending = spans(events, "allreduce")[-1]
    if "nothing from rank 1" not in failed[-1]["args"]["why"]:
        fail(f"why: {failed}")
    if not pending["args"]["unfinished"] or pending["args"]["awaits"] != [1]:
        fail(f"pending: {pending}")
    if pending["dur"] < 0.5e6:
        fail(f"it waited longer than that: {pending}")

    # What goes to many ranks is named as far as there is room.
    _, files = run(folder, "timeout", 16, SHUNT_TIMEOUT="2",
                   SHUNT_FLIGHT_RECORDER="{}/w-%r")
    wide = [e for name in files for e in spans(files[name], "allgather")]
    if not wide or not all(e["args"].get("to") for e in wide):
        fail(f"without arguments: {wide}")

    result, files = run(folder, "lost", 3, SHUNT_FLIGHT_RECORDER="{}/f-%r")
    if sorted(files) != ["f-0", "f-2"]:
        fail(f"of the survivors: {list(files)}: {result.stderr}")
    for name, events in files.items():
        if "rank 1 is lost" not in events[-1]["args"]["why"]:
            fail(f"{name}: {events[-1]}")


with tempfile.TemporaryDirectory() as temporary:
    timeline(temporary)
    two_levels(temporary)
    modes(temporary)
    bounded(temporary)
    full(temporary)
    forks(temporary)
    recorder(temporary)
sys.exit(1 if failures else 0)
