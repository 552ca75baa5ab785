#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shunt-perf put from end to end: put.py SHUNT_PERF

Puts of a transport are right and counted; and so are requests of libibverbs beside
them, by its stand-in (tests/verbs). Mistakes in the command line are named.
"""

import json
import math
import os
import subprocess
import sys

PERF = sys.argv[1]
WITH_VERBS = os.path.join(os.path.dirname(os.path.realpath(__file__)),
                          "../verbs/with_verbs")
SIZES = (8, 65536)
failures = 0


def fail(command, text):
    global failures
    failures += 1
    print("FAIL:", " ".join(command), "\n ", text, flush=True)


def run(command, **env):
    return subprocess.run(command, capture_output=True, text=True, timeout=100,
                          check=False, env=os.environ | env)


def refused(text, *args):
    command = [PERF, *args]
    result = run(command)
    if result.returncode != 2 or text not in result.stderr:
        fail(command, f"status {result.returncode}: {result.stderr}")


def measure(transport, *options, under=()):
    """A few messages of each size between two ranks, which yield while they
    wait."""
    command = [*under, PERF, "put", "--ranks", "2", "--json", "-n", "3", "-w", "1",
               "-b", "8", "-e", "65536", "-f", "8192", "--batch", "8", *options]
    result = run(command, SHUNT_TRANSPORTS=transport, SHUNT_SPIN="0")
    rows = []
    if result.returncode == 0:
        rows = [json.loads(line) for line in result.stdout.splitlines()]
    if [(row["op"], row["bytes"]) for row in rows] != [
            (op, size) for size in SIZES for op in ("put", "put-stream")]:
        fail(command, f"status {result.returncode}: {result.stderr}, {rows}")
    for row in rows:
        if row["wrong"] != 0 or not 0 < row["time_us"] <= row["time_us_p99"]:
            fail(command, f"{row}")
    return command, rows


def alone():
    command, rows = measure("shm")
    for row in rows:
        if row["peer"] != "none" or row["put_peer_requests"] is not None:
            fail(command, f"there is no peer: {row}")


def beside_requests():
    command, rows = measure("rdma", "--peer", "verbs", under=(WITH_VERBS, "rc"))
    for row in rows:
        # With registered memory and a steadily growing signal no record is sent.
        if (row["peer"], row["put_requests"], row["put_peer_requests"]) != (
                "verbs", 1, 1):
            fail(command, f"requests: {row}")
        if not math.isclose(row["ratio"], row["peer_time_us"] / row["time_us"],
                            rel_tol=1e-6):
            fail(command, f"ratio: {row}")


def for_a_while():
    """Rounds of many puts that need their sender's progress, also after the last."""
    command = [WITH_VERBS, "rc", PERF, "put", "--ranks", "2", "--json", "--time",
               "0.2", "-b", "65536", "-e", "65536"]
    result = run(command, SHUNT_TRANSPORTS="rdma", SHUNT_SPIN="0")
    if result.returncode != 0 or len(result.stdout.splitlines()) != 2:
        fail(command, f"status {result.returncode}: {result.stderr}")


alone()
if os.path.exists(os.path.join(os.path.dirname(PERF), "shunt-perf-verbs.so")):
    beside_requests()
    for_a_while()
else:
    refused("built without libibverbs", "put", "--ranks", "2", "--peer", "verbs")
refused("put is between two ranks", "put")
refused("put is compared with --peer verbs alone", "put", "--ranks", "2", "--peer",
        "memcpy")
refused("only put is compared with it", "alltoall", "--peer", "verbs")
refused("a put has bytes", "put", "--ranks", "2", "-b", "0")
sys.exit(1 if failures else 0)
