#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the timelines of ranks (rank_trace.c) that shunt-run starts.

They are one file for all ranks, with bytes, peers and algorithms. If a call times
out or a rank is lost, there is the file of the flight recorder.
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
    """Run the case; returns {file: events} of the files that it left."""
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
        # Each block is sent by the only protocol that is possible for it.
        if gather["ways"] != {"inline": [p for p in range(3) if p != rank]}:
            fail(f"rank {rank}: {gather}")
        window = spans(own, "broadcast")[-2]["args"]
        if window.get("ways") != ({"window": [0, 2]} if rank == 1 else None):
            fail(f"rank {rank}: {window}")
        if cast.get("ways") != ({"stream": [0, 2]} if rank == 1 else None):
            fail(f"rank {rank}: {cast}")
    # If the name has the rank in it, each rank's file is kept.
    _, files = run(folder, "calls", SHUNT_TRACE="{}/of-%r")
    if sorted(files) != ["of-0", "of-1", "of-2"]:
        fail(f"files {list(files)}")


def two_levels(folder):
    # Each rank that was sent a block is listed under a protocol, in both levels.
    for least, algorithm in (("1k", "two_level"), ("8", "two_level_in_place")):
        _, files = run(folder, "calls", 4, SHUNT_TRACE="{}/all.json",
                       SHUNT_TEST_NODES="0,0,1,1", SHUNT_ALGORITHM="two_level",
                       SHUNT_RELAY_IN_PLACE=least)
        gathers = spans(files["all.json"], "allgather")
        for event in gathers:
            rank, args = event["pid"], event["args"]
            named = {r for ranks in args["ways"].values() for r in ranks}
            # This rank's block goes to the rail peer; with that peer's, to the local peer.
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


def copies(folder):
    # The bytes that are sent to copies, without the gaps in the memory.
    result, files = run(folder, "copies", 2, SHUNT_TRACE="{}/all.json")
    if result.returncode or list(files) != ["all.json"]:
        fail(f"copies: {list(files)}: {result.stderr}")
        return
    refreshes = spans(files["all.json"], "moe_replicas_refresh")
    if len(refreshes) != 2:
        fail(f"{len(refreshes)} refreshes")
    for event in refreshes:
        other, args = 1 - event["pid"], event["args"]
        if args["to"] != {str(other): 2 * 20000} or \
                args["ways"].get("window") != [other]:
            fail(f"copies: {event}")


TRACKS = ("compute", "copies", "wire", "waits", "library")


def named(events, thread):
    """{track: its spans} of a thread, by the names of its rows."""
    rows = {e["tid"]: e["args"]["name"].partition(": ")[2] for e in events
            if e["name"] == "thread_name"
            and e["args"]["name"].startswith(thread + ": ")}
    found = {}
    for e in events:
        if e["ph"] == "X" and e["tid"] in rows:
            found.setdefault(rows[e["tid"]], []).append(e)
    return found


def clip(spans_, whole):
    """The part of the spans that is within the span `whole`, in microseconds."""
    begin, end = whole["ts"], whole["ts"] + whole["dur"]
    return sum(max(0, min(e["ts"] + e["dur"], end) - max(e["ts"], begin))
               for e in spans_)


def partition(what, tracks_):
    """The tracks of a thread must add up to the time that its program measured."""
    whole, = (e for e in tracks_["program"] if e["name"] == "measured")
    wall = whole["dur"]
    took = {t: clip(tracks_.get(t, []), whole) for t in TRACKS}
    if abs(sum(took.values()) - wall) > 0.01 * wall:
        fail(f"{what}: {took} is not {wall} us")
    ends = 0
    for e in sorted((e for t in TRACKS for e in tracks_.get(t, [])),
                    key=lambda e: e["ts"]):
        if e["ts"] < ends - 0.01:
            fail(f"{what}: two tracks at {e['ts']}")
            break
        ends = e["ts"] + e["dur"]
    # The program says when it computed and when it was in calls.
    says = {name: clip((e for e in tracks_["program"] if e["name"] == name),
                       whole) for name in ("busy", "call")}
    if says["busy"] > took["compute"] + 0.01 * wall or \
            took["compute"] > wall - says["call"] + 0.1 * wall:
        fail(f"{what}: {took}, but {says} of {wall} us")
    return took


def summary(what, events):
    """Check the last events, which are sums by track and by call."""
    lines = [e["args"] for e in events if e["name"] == "summary"]
    for line in (x for x in lines if "thread" in x):
        parts = sum(line[t + "_us"] for t in TRACKS)
        if abs(parts - line["wall_us"]) > 1:
            fail(f"{what}: {line}")
    calls = {x["call"]: x for x in lines if "call" in x}
    reduced, exchanged = calls["allreduce"], calls["alltoall"]
    done = spans(events, "alltoall")
    if reduced["hidden"] != 0 or not 0 < exchanged["hidden"] < 1:
        fail(f"{what}: {reduced}, {exchanged}")
    if exchanged["calls"] != len(done) or \
            abs(exchanged["under_way_us"] - sum(e["dur"] for e in done)) > 9:
        fail(f"{what}: {exchanged} of {len(done)} calls")
    return [x for x in lines if "thread" in x]


def tables(folder, events):
    """shunt-info must print the sums."""
    path = os.path.join(folder, "kept.json")
    with open(path, "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(
            json.dumps(e, separators=(",", ":")) for e in events) + "\n]\n")
    info = os.path.join(os.path.dirname(os.environ["SHUNT_RUN"]), "shunt-info")
    result = subprocess.run([info, "--trace", path], capture_output=True,
                            text=True, timeout=60, check=False)
    os.remove(path)
    rows = [line.split() for line in result.stdout.splitlines()]
    for rank in "0", "1":
        main, = (r for r in rows if r[:2] == [rank, "main"])
        if abs(sum(float(x[:-1]) for x in main[3:]) - 100) > 0.3:
            fail(f"not all of the time: {main}")
        if not any(r[:3] == [rank, "alltoall", "20"] for r in rows):
            fail(f"no calls of rank {rank}: {rows}")
    if subprocess.run([info, "--trace", os.devnull], capture_output=True,
                      timeout=60, check=False).returncode != 1:
        fail("shunt-info finds sums in nothing")


def tracks(folder):
    for nodes in ("0,0", "0,1"):
        result, files = run(folder, "tracks", 2, SHUNT_TRACE="{}/all.json",
                            SHUNT_TEST_NODES=nodes)
        if result.returncode or list(files) != ["all.json"]:
            fail(f"tracks: {list(files)}: {result.stderr}")
            return
        for rank in range(2):
            what = f"nodes {nodes}, rank {rank}"
            own = [e for e in files["all.json"] if e["pid"] == rank]
            took = partition(what, named(own, "main"))
            if not took["copies"] or bool(took["wire"]) != (nodes == "0,1"):
                fail(f"{what}: {took}")
            if len(summary(what, own)) != 1:
                fail(f"{what}: not one thread")
        tables(folder, files["all.json"])

    _, files = run(folder, "tracks_of_threads", 2, SHUNT_TRACE="{}/of-%r")
    for name, events in files.items():
        threads = {e["args"]["name"].partition(":")[0] for e in events
                   if e["name"] == "thread_name"}
        if len(threads) != 2 or len(summary(name, events)) != 2:
            fail(f"{name}: threads {threads}")
        for thread in threads:
            partition(f"{name}, {thread}", named(events, thread))

    # A helper has tracks of its own.
    _, files = run(folder, "tracks_helped", 2, SHUNT_TRACE="{}/of-%r",
                   SHUNT_TEST_NODES="0,1", SHUNT_PROGRESS="auto")
    helpers = [named(events, "helper") for events in files.values()]
    if len(helpers) != 2 or not all(h.get("wire") for h in helpers):
        fail(f"no helper at work: {[list(h) for h in helpers]}")
    for name, events in files.items():
        partition(name, named(events, "main"))


def bounded(folder):
    result, files = run(folder, "timeout", 2, SHUNT_TRACE="{}/of-%r",
                        SHUNT_TRACE_MAX="8k", SHUNT_TIMEOUT="1")
    for name, events in files.items():
        if len(json.dumps(events, separators=(",", ":"))) > 8192:
            fail(f"{name} is too large")
    if "SHUNT_TRACE_MAX" not in result.stderr:
        fail(f"nothing is said of the limit: {result.stderr}")


def whole(folder, case):
    """Run two ranks. Each must leave a complete file, which run() parses."""
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
    # Each event must be there once.
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

    # If there are many receivers, they are listed as far as there is room.
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
    copies(temporary)
    tracks(temporary)
    bounded(temporary)
    full(temporary)
    forks(temporary)
    recorder(temporary)
sys.exit(1 if failures else 0)
