#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shunt-perf --mem device, on the fake driver: device.py SHUNT_PERF FOLDER

FOLDER has the fake libcuda.so.1, which counts what it copies between memory of its
device. Each call of dispatch must have moved each row there, and so must each of the
two sides that it is compared with.
"""

import json
import math
import os
import re
import subprocess
import sys

PERF, DRIVER = sys.argv[1:]
RANKS, TOKENS, TOPK, HIDDEN = 2, 20, 3, 96
# All ranks' rows, of bf16.
BYTES = RANKS * TOKENS * TOPK * HIDDEN * 2
SAMPLES, WARMUP, CHECKS = 4, 1, 2
SMALL = ["--tokens", str(TOKENS), "--topk", str(TOPK), "--hidden", str(HIDDEN),
         "--experts", "10", "-n", str(SAMPLES), "-w", str(WARMUP), "--batch", "1",
         "--no-pin"]
failures = 0


def fail(command, text):
    global failures
    failures += 1
    print("FAIL:", " ".join(command), "\n ", text, flush=True)


def run(*args, driver=DRIVER, settings="strict,tell"):
    command = [PERF, *args]
    env = os.environ | {"FAKE_CUDA": settings, "SHUNT_SPIN": "0",
                        "LD_LIBRARY_PATH": driver}
    return command, subprocess.run(command, capture_output=True, text=True,
                                   timeout=100, check=False, env=env)


def measure(op, *options, ranks=RANKS):
    """The rows of an operation, and the bytes that the driver copied."""
    command, result = run(op, "--json", "--mem", "device", "--ranks", str(ranks),
                          *SMALL, *options)
    if result.returncode or "all results were right" not in result.stderr:
        fail(command, f"status {result.returncode}: {result.stderr}")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    for row in rows:
        if row["mem"] != "device" or "FAKE" not in row["device"]:
            fail(command, f"not said to be on the fake driver: {row}")
    told = re.findall(r"^fake CUDA: (\d+) bytes", result.stderr, re.M)
    if len(told) != ranks:
        fail(command, f"{len(told)} ranks have used the driver")
    return command, rows, sum(map(int, told))


def rows_move_on_the_device():
    command, rows, copied = measure("dispatch")
    if copied < (CHECKS + WARMUP + SAMPLES) * BYTES:
        fail(command, f"{copied} B between devices, of calls of {BYTES} B")
    if any(row["device_share"] is not None for row in rows):
        fail(command, f"a share of what was not measured: {rows}")
    # The two sides beside ours, without it: more samples are more copies.
    other = ["--only-peer", "--peer", "memcpy"]
    _, _, few = measure("dispatch", *other, ranks=1)
    command, _, more = measure("dispatch", *other, "-n", str(SAMPLES + 10),
                               ranks=1)
    if more - few != 2 * 10 * BYTES // RANKS:
        fail(command, f"{more - few} B for 10 samples of {BYTES // RANKS} B each "
             "by two sides")
    command, rows, _ = measure("dispatch", "--peer", "memcpy")
    for row in rows:
        if row["op"] == "dispatch" and not math.isclose(
                row["device_share"], row["device_copy_us"] / row["time_us"],
                rel_tol=1e-6):
            fail(command, f"share: {row}")


def all_operations():
    for op in ("combine", "moe", "backward"):
        command, rows, _ = measure(op, "--peer", "memcpy")
        for row in rows:
            if row["op"] != "plan" and (row["wrong"] != 0 or
                                        not row["device_share"]):
                fail(command, f"{row}")
    measure("moe", "--overlap", "--parts", "2")
    command, result = run("dispatch", "--mem", "device", "--peer", "memcpy",
                          *SMALL)
    for text in ("FAKE driver, which has no GPU", "share of that bandwidth"):
        if text not in result.stdout:
            fail(command, f"no '{text}': {result.stdout} {result.stderr}")


def refused(status, text, *args, **how):
    command, result = run(*args, "--mem", "device", **how)
    if result.returncode != status or text not in result.stderr:
        fail(command, f"status {result.returncode}: {result.stderr}")


def mistakes():
    refused(2, "take memory of a GPU", "alltoall")
    refused(2, "take memory of a GPU", "moe-layer")
    refused(2, "it takes no --peer but memcpy", "moe", "--peer", "mpi")
    refused(2, "it takes no --peer but memcpy", "moe", "--peer", "memcpy,link")
    refused(2, "finds no GPU", "moe", settings="devices=0")
    # Lost after some operations of its.
    refused(3, "CUDA_ERROR_LAUNCH_FAILED", "dispatch", *SMALL,
            settings="break=50/719")
    if not os.path.exists("/dev/nvidiactl"):
        refused(2, "there is no CUDA driver here", "moe", driver="")


rows_move_on_the_device()
all_operations()
mistakes()
sys.exit(1 if failures else 0)
