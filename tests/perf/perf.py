#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shunt-perf from end to end: perf.py SHUNT_PERF none|mpi

Every operation at several numbers of ranks, briefly; that its results are
right, that its lines are JSON with the promised keys, and that mistakes in the
command line are named.
"""

import csv
import glob
import json
import math
import os
import re
import signal
import subprocess
import sys
import tempfile

PERF, PEER = sys.argv[1:]
KEYS = {"op", "ranks", "bytes", "time_us", "time_us_p99", "algbw_gbs",
        "busbw_gbs", "wrong", "peer", "peer_time_us", "ratio"}
MOVES = ["broadcast", "allgather", "allgatherv", "alltoall", "alltoallv"]
REDUCTIONS = ["reduce_scatter", "reduce_scatterv", "allreduce"]
MOE = ["dispatch", "combine", "moe", "backward"]
PARTS = {
    "dispatch": ["plan", "dispatch", "plan+dispatch"],
    "combine": ["combine"],
    "moe": ["plan", "dispatch", "combine", "dispatch+combine",
            "plan+dispatch+combine"],
    "backward": ["combine_backward", "dispatch_backward", "backward"],
}
# In the order of the paper.
LAYER = ["attn_f", "shared_f", "shared_b", "shared_dw", "mlp_b", "mlp_dw",
         "mlp_f", "attn_b", "attn_dw"]
# mpirun takes its time to start.
RANKS = (1, 2, 3, 4) if PEER == "none" else (2, 4)
SOME = (MOVES[1:] + REDUCTIONS if PEER == "none" else
        ["allgather", "alltoallv", "reduce_scatterv"])
# What a row measures: calls that closely follow one another; a few single ones; or as
# many as shunt-perf itself finds right.
CLOSELY = ["-n", "15", "--batch", "5"]
BRIEF = ["-n", "5", "--batch", "1"]
BY_TIME = ["--time", "0.002"]
if PEER == "mpi":  # whose ranks take the cores of other tests while they wait
    os.environ.setdefault("OMPI_MCA_mpi_yield_when_idle", "1")
failures = 0


def fail(command, text):
    global failures
    failures += 1
    print("FAIL:", " ".join(command), "\n ", text, flush=True)


def run(args):
    command = [PERF] + args
    try:
        return command, subprocess.run(command, capture_output=True, text=True,
                                       timeout=200, check=False)
    except subprocess.TimeoutExpired as late:
        fail(command, f"not finished in {late.timeout} s: {late.stderr}")
        return command, None


def operation(row):
    return row.get("part_of", row["op"])


def measure(ops, ranks, *options, peer=None):
    """The rows of these operations, which the same ranks measure one after the
    other: starting ranks takes longer than a brief row."""
    peer = peer or PEER
    length = [] if BY_TIME[0] in options else BRIEF
    command, result = run([",".join(ops), "--ranks", str(ranks), "--json",
                           "-w", "1", "--peer", peer, *length, *options])
    if not result:
        return []
    if result.returncode != 0:
        fail(command, f"status {result.returncode}: {result.stderr}")
        return []
    if "# all results were right" not in result.stderr:
        fail(command, f"no closing line: {result.stderr}")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    if list(dict.fromkeys(map(operation, rows))) != ops:
        fail(command, f"not these operations in their order: {rows}")
    for row in rows:
        check(command, row, ranks, peer)
    return rows


def check(command, row, ranks, peer):
    missing = KEYS - row.keys()
    if missing:
        fail(command, f"no {missing} in {row}")
        return
    moves = row["op"] not in ("barrier", "plan")
    if row["ranks"] != ranks or row["peer"] != peer:
        fail(command, f"not what was asked for: {row}")
    if row["wrong"] != (0 if moves else None):
        fail(command, f"wrong: {row}")
    # No rank works longer than the slowest one took, and p99 is the longest of
    # less than 100 samples. What the clocks cost, and an interrupt, count as well.
    if not 0 < row["cpu_us"] or (
            row["samples"] < 100 and
            row["cpu_us"] > row["ranks"] * row["time_us_p99"] * 1.05 + 100):
        fail(command, f"CPU time: {row}")
    if not 0 < row["time_us"] <= row["time_us_p99"]:
        fail(command, f"times: {row}")
    if moves and row["bytes"]:
        rate = row["bytes"] / row["time_us"] / 1000
        if not math.isclose(rate, row["algbw_gbs"], rel_tol=1e-6):
            fail(command, f"algbw: {row}")
        if ranks > 1 and not row["busbw_gbs"] and "part_of" not in row:
            fail(command, f"nothing crosses ranks: {row}")
    if row["ratio"] is not None:
        # A fused call without a peer is compared with the same unfused.
        ratio = (row["peer_time_us"] or row["unfused_us"]) / row["time_us"]
        if not math.isclose(ratio, row["ratio"], rel_tol=1e-6):
            fail(command, f"ratio: {row}")
    elif peer != "none" and row["op"] != "plan":
        fail(command, f"no ratio: {row}")


def refused(status, text, *args):
    command, result = run(list(args))
    if result and (result.returncode != status or text not in result.stderr):
        fail(command, f"status {result.returncode}: {result.stderr}")


def collectives():
    sizes = ["-b", "8", "-e", "300k", "-f", "37"]
    for ranks in RANKS:
        measure(["barrier"] + MOVES + REDUCTIONS, ranks, *sizes, *CLOSELY)
    measure(MOVES + REDUCTIONS, 2, *sizes, "--mem", "window", *CLOSELY)
    rows = measure(SOME, RANKS[-1], *sizes, "--in-place")
    if any(row["in_place"] != 1 for row in rows):
        fail(SOME, f"in place: {rows}")
    uneven = ["alltoallv", "allgatherv", "reduce_scatterv"]
    measure(uneven, 3, *sizes, "--counts", "skewed", "--in-place")
    rows = measure(uneven, 3, *sizes, "--counts", "skewed")
    for row in {row["op"]: row for row in rows}.values():  # the largest
        if row["busbw_gbs"] >= row["algbw_gbs"]:
            fail([row["op"]], f"all of it crosses ranks: {row}")
    for dtype in ("i8", "u64", "f64"):
        measure(["allreduce", "alltoallv"], 2, *sizes, "--dtype", dtype, "--op",
                "prod")
    measure(["broadcast"], 3, *sizes, "--root", "2", "--dtype", "bf16",
            *BY_TIME)

    rows = measure(["allreduce"], 2, "-b", "1k", "-e", "4k", *BY_TIME)
    if [row["bytes"] for row in rows] != [1024, 2048, 4096]:
        fail(["allreduce"], f"sizes: {rows}")
    for row in rows:
        if not math.isclose(row["busbw_gbs"], row["algbw_gbs"]):
            fail(["allreduce"], f"2 (n - 1) / n is 1 for 2 ranks: {row}")


def overlap():
    """_start calls during a computation; their results must be right."""
    for row in measure(["barrier", "broadcast"] + SOME, 2, "-b", "64", "-e",
                       "64k", "-f", "1024", "--overlap=3"):
        for side in ("", "peer_") if PEER != "none" else ("",):
            hidden = 1 - ((row[side + "both_us"] - row[side + "compute_us"])
                          / row[side + "time_us"])
            if not math.isclose(row[side + "overlap"],
                                min(1, max(0, hidden)), abs_tol=1e-6):
                fail([row["op"]], f"overlap: {row}")

    rows = measure(["moe", "backward"], 2, "--tokens", "50", "--hidden", "96",
                   "--overlap")
    if [row["op"] for row in rows] != ["dispatch", "combine",
                                       "combine_backward",
                                       "dispatch_backward"]:
        fail(["moe"], f"parts: {rows}")


def tokens():
    small = ["--hidden", "96", "--experts", "10", "--topk", "3"]
    for ranks in RANKS:
        rows = measure(MOE, ranks, *small, "--tokens", "0,1,100")
        if [row["op"] for row in rows] != sum((PARTS[op] * 3 for op in MOE), []):
            fail(MOE, f"parts: {rows}")
    for dtype in ("f32", "bf16"):
        for mem in ("malloc", "window"):
            measure(MOE, 2, *small, "--tokens", "50", "--dtype", dtype, "--mem",
                    mem)
    there = ["dispatch", "combine", "moe"]  # backward: the same rows
    measure(there, 2, *small, "--tokens", "50", "--wire", "fp8")
    for skew in ("zipf:1.5", "hot:1", "one-hot-expert", "node-limited:1"):
        measure(there, 2, *small, "--tokens", "50", "--skew", skew)


def fused():
    """Products fused with a collective, compared with the same unfused."""
    small = ["--hidden", "192", "--inner", "40"]
    for ranks in (1, 2, 3):
        for mem in ("malloc", "window"):
            rows = measure(["gemm-rs", "ag-gemm"], ranks, *small, "--tokens",
                           "1,100", "--mem", mem, peer="none")
            if [row["count"] for row in rows] != [1, 100] * 2:
                fail(["gemm-rs"], f"tokens: {rows}")
            for row in rows:
                alone = row["product_us"], row["collective_us"]
                hidden = (sum(alone) - row["time_us"]) / min(alone)
                if not math.isclose(row["hidden_share"], hidden, rel_tol=1e-6,
                                    abs_tol=1e-6):
                    fail([row["op"]], f"hidden: {row}")
                if row["fused_bound_us"] < row["product_us"]:
                    fail([row["op"]], f"bound: {row}")
    refused(2, "compared with itself", "gemm-rs", "--peer", "memcpy")
    refused(2, "compared with itself", "ag-gemm", "--overlap")
    refused(2, "takes f32", "ag-gemm", "--dtype", "bf16")


def layers():
    """A layer that computes while its exchanges run: its results are those of the
    serial order, and of the definition."""
    small = ["--hidden", "64", "--inner", "32", "--experts", "10", "--topk",
             "3", "--layers", "3"]
    for ranks, more in ((1, ["--micro-batches", "1"]),
                        (3, ["--micro-batches", "1", "--parts", "3"]),
                        (2, ["--order", "paper"]),
                        (2, ["--micro-batches", "1"]),
                        (2, ["--order", "serial", "--mode", "flat"]),
                        (3, ["--routing", "one-hot-expert"]),
                        (3, ["--ratio", "0.5", "--attention", "0.5"])):
        rows = measure(["moe-layer"], ranks, *small, "--tokens", "1,40", *more,
                       peer="none")
        if [row["count"] for row in rows] != [1, 40]:
            fail(["moe-layer"], f"tokens: {rows}")
        for row in rows:
            check_layer(row, more)
    command, result = run(["moe-layer", "--ranks", "2", *small, "--tokens", "9",
                           "-w", "0"])
    if result and ("weights): attn_f " not in result.stdout or
                   "a simulator of the layer predicts" not in result.stdout):
        fail(command, result.stdout + result.stderr)
    refused(2, "compared with itself", "moe-layer", "--peer", "memcpy")
    refused(2, "compared with itself", "moe-layer", "--overlap")
    refused(2, "takes f32", "moe-layer", "--dtype", "bf16")
    refused(2, "plan's own buffers", "moe-layer", "--mem", "malloc")
    refused(2, "is none of search|paper", "moe-layer", "--order", "best")
    refused(2, "--micro-batches", "moe-layer", "--micro-batches", "3")
    refused(2, "only with --micro-batches 1", "moe-layer", "--parts", "2")


def check_layer(row, more):
    compute, exchange = row["layer_compute_us"], row["layer_exchange_us"]
    time = row["time_us"]
    for key, value in (
            ("layer_exposed", (time - compute) / time),
            ("layer_hidden",
             (compute + exchange - time) / min(compute, exchange))):
        if not math.isclose(row[key], value, rel_tol=1e-6, abs_tol=1e-6):
            fail(["moe-layer"], f"{key}: {row}")
    # Each order has every operation once, and at most one at a time.
    if row["layer_parts"] == 1 and not compute * 0.999 < row[
            "layer_predicted_us"] <= (compute + exchange) * 1.001:
        fail(["moe-layer"], f"predicted: {row}")
    order = row["order"].replace("| ", "").split()
    if (set(order) != set(LAYER) or
            {order.count("mlp_f"), order.count("mlp_b")} !=
            {row["layer_parts"]} or len(order) !=
            len(LAYER) - 2 + 2 * row["layer_parts"]):
        fail(["moe-layer"], f"order: {row}")
    if "--parts" in more and row["layer_parts"] != 3:
        fail(["moe-layer"], f"parts: {row}")
    if ("|" in row["order"]) != (row["micro_batches"] == 1):
        fail(["moe-layer"], f"passes: {row}")
    if "paper" in more and row["order"].split() != LAYER:
        fail(["moe-layer"], f"not the paper's order: {row}")


def cuts():
    """An exchange during its experts, in 1, 2, 4, 8 and a learned number of parts."""
    for ranks, more in ((2, ["--ratio", "0.5"]), (3, ["--mode", "flat"])):
        rows = measure(["moe-parts"], ranks, "--hidden", "64", "--inner", "32",
                       "--experts", "10", "--topk", "3", "--tokens", "1,40",
                       *more, peer="none")
        if ([(row["op"], row["count"]) for row in rows] !=
                [(f"parts-{n}", tokens) for tokens in (1, 40)
                 for n in (1, 2, 4, 8, "auto")]):
            fail(["moe-parts"], f"rows: {rows}")
        for row in rows:
            learned = row["op"] == "parts-auto"
            if (row["parts_used"] not in (1, 2, 4, 8) or
                    (row["parts_learned"] >= 16) != learned or
                    not learned and row["op"] != f"parts-{row['parts_used']}"):
                fail(["moe-parts"], f"parts: {row}")
            if min(row["parts_compute_us"], row["parts_exchange_us"],
                   row["parts_plan_us"], row["parts_beside_us"]) <= 0:
                fail(["moe-parts"], f"times: {row}")
    refused(2, "1, 2, 4, 8 and what is learned", "moe-parts", "--parts", "2")
    refused(2, "in one part", "moe-parts", "--peer", "memcpy")


def workloads():
    """Synthetic routers, whose tokens may have no expert; and steps with balance,
    whose results are those of the experts' parameters, also on copies."""
    small = ["--hidden", "48", "--experts", "16", "--topk", "2"]
    measure(["dispatch", "moe", "backward"], 3, *small, "--tokens", "40",
            "--workload", "W4", peer="none")
    measure(["moe-layer"], 2, *small, "--inner", "32", "--layers", "2",
            "--tokens", "40", "--workload", "W4", peer="none")
    steps = ["--tokens", "200", "--expert-bytes", "4k", "--expert-us", "1",
             "--slots", "3", "--leaf-rows", "2", "-n", "10"]
    for balance, names in (("microbatch", ("W0", "W4", "W6")),
                           ("replicas", ("W2",)), ("off", ("W2",))):
        for name in names:
            rows = measure(["moe-step"], 4, *small, *steps, "--balance",
                           balance, "--workload", name, peer="none")
            if len(rows) != 1 or rows[0]["skew"] != name or rows[0][
                    "balance"] != balance:
                fail(["moe-step", name], f"rows: {rows}")
                continue
            check_step(rows[0])
    # Copies on other nodes.
    command, rows = on_virtual_nodes("--expert-us", "1", "--expert-bytes", "4k",
                                     "--leaf-rows", "1", op="moe-step")
    if len(rows) != 1 or not rows[0]["step_copies"] or rows[0]["wrong"]:
        fail(command, f"between nodes: {rows}")
    refused(2, "some tokens have no expert", "moe", "--workload", "W4",
            "--peer", "memcpy")
    refused(2, "is none of W0|W1", "moe", "--workload", "zipf")
    refused(2, "without balance", "moe-step", "--peer", "memcpy")
    refused(2, "in multiples of 4", "moe-step", "--expert-bytes", "6")


def experts_that_travel():
    """Moved experts are right, and between nodes exactly their bytes are sent; also
    if ranks have different numbers of experts, and with an odd number of ranks."""
    ops = ("moe-move", "moe-refresh", "moe-reduce")
    small = ["--experts", "7", "--slots", "2", "--expert-bytes", "20k", "-n", "2"]
    for ranks in (2, 3):
        # Ranks have 3 and 4 experts, or 2, 2 and 3; two of each are sent.
        check_experts(["--ranks", str(ranks)], ops,
                      measure(list(ops), ranks, *small, peer="none"), 2 * ranks, 0)
    for op in ops:
        # The rank half the number of ranks further is on the other node.
        command, rows = on_virtual_nodes(*small, "--experts", "8", op=op)
        check_experts(command, (op,), rows, 8, 8 * 20480)
    refused(2, "between ranks", "moe-move", "--ranks", "2", "--experts", "1")
    refused(2, "with a plain copy", "moe-refresh", "--peer", "memcpy")
    refused(2, "in a multiple of 4", "moe-reduce", "--expert-bytes", "6")


def check_experts(command, ops, rows, number, between):
    if tuple(row["op"] for row in rows) != ops:
        fail(command, f"rows: {rows}")
    for row in rows:
        if (row["experts_number"], row["experts_bytes_each"], row["bytes"]) != (
                number, 20480, 40960):
            fail(command, f"experts: {row}")
        if row["wrong"] != 0 or row["experts_bytes_between"] != between:
            fail(command, f"{between} bytes between nodes, and right: {row}")
        if not math.isclose(row["ratio"], row["peer_time_us"] / row["time_us"],
                            rel_tol=1e-6):
            fail(command, f"ratio: {row}")


def check_step(row):
    """Loads are balanced for the step itself, and for the next step if its loads are
    similar; even loads are left alone."""
    before, after = row["step_imbalance_without"], row["step_imbalance"]
    name, balance = row["skew"], row["balance"]
    hot = name in ("W2", "W6")
    if hot != (before > 2) or (balance == "off") != (row["ratio"] is None):
        fail(["moe-step"], f"without: {row}")
    # A rank has 400 rows in the mean, so one row is 0.25 %.
    if balance == "microbatch" and not 1 <= after <= 1.02:
        fail(["moe-step"], f"balance: {row}")
    # From steps that differ only in the draw; the first one is measured twice.
    if balance == "replicas" and not 1 <= after <= 1.3:
        fail(["moe-step"], f"foresight: {row}")
    if balance != "off" and (row["step_copies"] > 0) != (name != "W0"):
        fail(["moe-step"], f"copies: {row}")
    if min(row["step_forced_us"], row["time_us"]) <= 0:
        fail(["moe-step"], f"times: {row}")
    if (row["step_within"], row["step_copy_us"]) != (1.02, 0):
        fail(["moe-step"], f"goal: {row}")


def copy_rows(*options, status=0, ranks=1, **env):
    """The command and its rows: a short run of copy by an engine."""
    command = [PERF, "copy", "--json", "-n", "3", "-w", "1", "--batch", "2",
               *options]
    if ranks > 1:
        command += ["--ranks", str(ranks)]
    result = subprocess.run(command, capture_output=True, text=True,
                            timeout=200, check=False,
                            # also on a machine of one CPU
                            env=os.environ | {"SHUNT_DMA": "on"} | env)
    if result.returncode != status:
        fail(command, f"status {result.returncode}: {result.stderr}")
    return command, result, [json.loads(line)
                             for line in result.stdout.splitlines()]


def copies_are_right():
    """Every kind of copy has its row, whose bytes are right. The engine's counters
    agree with the copies that it got."""
    sizes = ["-b", "3000", "-e", "300000", "-f", "10"]
    for options, ranks in ((["--cache", "cold"], 1), (["--cache", "warm"], 2)):
        command, result, rows = copy_rows(*sizes, *options, "--row-bytes",
                                          "500,2048", ranks=ranks)
        wanted = [("copy-awake", 4096), ("copy-asleep", 4096),
                  ("copy-idle", 0)]
        for size in (3000, 30000, 300000):
            wanted += [("copy", size), ("copy-beside", size)]
            for row in (500, 2048):
                wanted += [("copy-strided", size // row * row),
                           ("copy-index", size // row * row)]
        if [(row["op"], row["bytes"]) for row in rows] != wanted:
            fail(command, f"rows: {rows}")
        for row in rows:
            check_copy(command, row)
        took = re.search(r": (\d+) copies, (\d+) bytes in all; counts (\d+) "
                         r"messages, (\d+) bytes", result.stderr)
        if not took or took.group(1, 2) != took.group(3, 4):
            fail(command, f"counters: {result.stderr}")


def check_copy(command, row):
    if KEYS - row.keys() or row["engine"] != "dma":
        fail(command, f"keys: {row}")
    if row["op"] == "copy-idle":
        if not 0 <= row["idle_cpu_us"] or row["idle_us"] < 300e3:
            fail(command, f"idle: {row}")
        return
    if row["op"] == "copy-asleep" and row["time_us"] is None:
        return  # other threads of the process kept using the CPU
    if row["wrong"] != 0 or not 0 < row["time_us"] <= row["time_us_p99"]:
        fail(command, f"copy: {row}")
    if row["op"] == "copy-beside":
        alone = row["beside_compute_us"], row["beside_copy_us"]
        hidden = (sum(alone) - row["time_us"]) / min(alone)
        if not math.isclose(row["beside_hidden"], hidden, rel_tol=1e-6,
                            abs_tol=1e-6) or not row["beside_sequence_us"]:
            fail(command, f"hidden: {row}")
    elif row["op"] in ("copy", "copy-strided", "copy-index") and (
            row["peer_wrong"] != 0 or
            not math.isclose(row["ratio"], row["peer_time_us"] /
                             row["time_us"], rel_tol=1e-6) or
            not math.isclose(row["stream_ratio"], row["stream_time_us"] /
                             row["time_us"], rel_tol=1e-6)):
        fail(command, f"ratios: {row}")


def copies():
    """A copy engine, compared with its caller's copies."""
    copies_are_right()
    small = ["-b", "8k", "-e", "8k"]
    # An engine of tests, without a thread: it copies in poll(), if at all.
    liar = {"SHUNT_PLUGIN_PATH": os.environ["SHUNT_TEST_ENGINES"]}
    command, result, rows = copy_rows(*small, **liar, SHUNT_ENGINE="liar")
    if {row["engine"] for row in rows} != {"liar"}:
        fail(command, f"not by SHUNT_ENGINE: {rows}")
    for lie in ("byte", "early", "beyond"):
        command, result, rows = copy_rows(*small, "--engine", "liar", **liar,
                                          status=1, SHUNT_LIAR=lie)
        if "WRONG RESULTS" not in result.stderr or any(
                row["wrong"] == 0 for row in rows if row["op"] == "copy"):
            fail(command, f"{lie}: {rows}")
    command, result, rows = copy_rows(*small, "--engine", "liar", **liar,
                                      SHUNT_LIAR="rows")
    taken = {row["op"]: row["time_us"] is not None for row in rows}
    if (taken["copy"], taken["copy-strided"], taken["copy-index"]) != (
            True, False, False):
        fail(command, f"refused: {rows}")
    if "does not take such copies" not in result.stderr:
        fail(command, result.stderr)
    # A GPU of the fake driver: it runs, and its results are right.
    driver = os.path.join(os.environ["SHUNT_TEST_BIN"], "engines", "cuda")
    command, result, rows = copy_rows(*small, "--engine", "cuda",
                                      "--cache", "warm",
                                      LD_LIBRARY_PATH=driver,
                                      FAKE_CUDA="strict")
    for op in ("copy", "copy-strided", "copy-index"):
        for row in rows:
            if row["op"] == op and (row["time_us"] is None or row["wrong"]):
                fail(command, f"cuda: {row}")
    if "to its device" not in result.stderr:
        fail(command, result.stderr)
    refused(2, "no shunt_nothing.so in", "copy", "--engine", "nothing")
    refused(2, "shunt-info lists those", "copy", "--engine", "nothing")
    refused(2, "not a copy engine", "copy", "--engine", "shm")
    refused(2, "copy is compared with memcpy()", "copy", "--peer", "memcpy")
    refused(2, "copy is compared with memcpy()", "copy", "--overlap")
    refused(2, "copy is compared with memcpy()", "copy", "--mem", "window")
    refused(2, "does not apply to copy", "copy", "--in-place")
    refused(2, "is none of cold|warm", "copy", "--cache", "hot")


def on_virtual_nodes(*options, op="moe"):
    """The command and its rows: moe, or another, on nodes that SHUNT_NODE makes of one
    host."""
    command = [os.environ["SHUNT_RUN"], "-n", "4", "--raw", "sh", "-c",
               'SHUNT_NODE=$((RANK / 2)) exec "$0" "$@"', PERF, op,
               "--json", "--tokens", "50", "--hidden", "96", "--experts",
               "10", "--topk", "3", "--routing", "zipf:0.8", "-n", "3",
               *options]
    result = subprocess.run(command, capture_output=True, text=True,
                            timeout=100, check=False)
    if result.returncode:
        fail(command, f"status {result.returncode}: {result.stderr}")
    return command, [json.loads(line) for line in result.stdout.splitlines()]


def virtual_nodes():
    """The bytes that must cross by the routing are those that the plan reports,
    and those that were sent. For calls during a computation they are unknown."""
    command, rows = on_virtual_nodes("--overlap")
    if [row["sent_bytes"] for row in rows] != [None, None]:
        fail(command, f"sent: {rows}")
    command, rows = on_virtual_nodes()
    if len(rows) != len(PARTS["moe"]):
        fail(command, f"rows: {rows}")
    for row in rows:
        check(command, row, 4, "none")
        if (row["hosts"], row["nodes"]) != (1, 2):
            fail(command, f"nodes: {row}")
        if row["op"] not in ("dispatch", "combine"):
            continue
        if row["need_rows"] != row["plan_rows"] or not row["need_rows"]:
            fail(command, f"rows: {row}")
        if not row["need_bytes"] == row["plan_bytes"] == row["sent_bytes"]:
            fail(command, f"bytes: {row}")
        if row["wire_bytes"] is not None:
            fail(command, f"there is no wire: {row}")


def json_file():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.json")
        for label in ("first", "second"):
            command, result = run(["alltoall", "--ranks", "2", "-b", "8", "-e",
                                   "8", "-n", "2", f"--json={path}", "--label",
                                   label])
            if result and "# all results were right" not in result.stdout:
                fail(command, f"no table: {result.stdout}")
        with open(path, encoding="utf-8") as file:
            labels = [json.loads(line)["label"] for line in file]
        if labels != ["first", "second"]:
            fail(command, f"labels: {labels}")


def csv_file():
    """Rows of two operations in one file, with the names once; and nothing
    else is appended to a file with other columns."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "out.csv")
        for op, more in (("alltoall", ["-b", "8", "-e", "16"]),
                         ("moe", ["--tokens", "9", "--hidden", "64"])):
            run([op, "--ranks", "2", "-n", "2", f"--csv={path}", "--label",
                 'a "label", quoted', *more])
        with open(path, encoding="utf-8", newline="") as file:
            names = next(csv.reader(file))
        if len(set(names)) != len(names):
            fail([path], f"a name twice: {names}")
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        if [row["op"] for row in rows] != ["alltoall"] * 2 + PARTS["moe"]:
            fail([path], f"operations: {rows}")
        for row in rows:
            if None in row or row["label"] != 'a "label", quoted':
                fail([path], f"not a row: {row}")
            if not 0 < float(row["time_us"]) <= float(row["time_us_p99"]):
                fail([path], f"times: {row}")
            if (row["hidden"] == "64") != (row["op"] != "alltoall"):
                fail([path], f"hidden: {row}")
        with open(path, "w", encoding="utf-8") as file:
            file.write("op,time\n")
        refused(3, "has other columns", "barrier", "-n", "1", f"--csv={path}")
    command, result = run(["barrier", "--ranks", "2", "-n", "2", "--csv"])
    if result and (result.returncode or
                   not result.stdout.startswith("op,ranks,") or
                   len(result.stdout.splitlines()) != 2):
        fail(command, result.stdout)
    refused(2, "cannot both go to stdout", "barrier", "--csv", "--json")


def births():
    """Runs one after the other, each with new ranks, and their summary."""
    command, result = run(["alltoall", "--ranks", "2", "-e", "16", "-n", "3",
                           "--json", "--repeat-births", "2"])
    if not result:
        return
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    if [(row["birth"], row["bytes"]) for row in rows] != [(1, 8), (1, 16),
                                                          (2, 8), (2, 16)]:
        fail(command, f"births: {rows}")
    alone = os.cpu_count() >= 2 and not os.environ.get("SHUNT_SPIN")
    for row in rows:
        if "CPUs" not in row["pair_place"]:
            fail(command, f"no place: {row}")
        if row["pair_us"] is None if alone else row["pair_us"] == 0:
            fail(command, f"no latency of the pair: {row}")
    for size in (8, 16):
        times = sorted(r["time_us"] for r in rows if r["bytes"] == size)
        line = f"{times[0]:.4g}", f"{times[1]:.4g}"
        if not any(line[0] in text and line[1] in text
                   for text in result.stderr.splitlines()):
            fail(command, f"not {line} of {size} B: {result.stderr}")
    if "# 2 runs, each" not in result.stderr or "no such" in result.stderr:
        fail(command, result.stderr)
    refused(2, "only what --ranks starts", "barrier", "--repeat-births", "2")
    command, result = run(["broadcast", "--ranks", "2", "--root", "7",
                           "--repeat-births", "3"])
    if result and (result.returncode != 2 or
                   result.stdout.count("# run ") != 1):
        fail(command, f"went on: {result.stdout}")


def end_early(command, number, kill):
    """Send a signal to a run when it has printed a row. Returns its status."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL,
                          start_new_session=True) as process:
        for line in process.stdout:
            if line.split()[:1] == [command[1]]:
                kill(process.pid, number)
                break
        process.stdout.read()
    return process.returncode


def births_left_alone():
    """Ctrl-C leaves nothing behind."""
    files = "/tmp/shunt-perf-births-*"
    before = set(glob.glob(files))
    command = [PERF, "barrier", "--ranks", "2", "-n", "2", "--repeat-births",
               "1000"]
    status = end_early(command, signal.SIGINT, os.killpg)
    if status != -signal.SIGINT:
        fail(command, f"status {status}")
    if set(glob.glob(files)) - before:
        fail(command, f"left {set(glob.glob(files)) - before}")


def files_of_mpi():
    """Files of all jobs of Open MPI under own_shm."""
    return {os.path.join(path, name)
            for path, _, names in os.walk(os.environ.get("SHUNT_TEST_MPI", ""))
            for name in names}


def mpi_left_alone():
    """Ctrl-C and kill leave no file of Open MPI; or at one of three attempts,
    since it seldom leaves one itself."""
    command = [PERF, "alltoall", "--ranks", "2", "--peer", "mpi", "--time",
               "0.3"]
    for number, kill in ((signal.SIGINT, os.killpg), (signal.SIGTERM, os.kill)):
        for _ in range(3):
            before = files_of_mpi()
            status = end_early(command, number, kill)
            left = files_of_mpi() - before
            if not status or not left:
                break
        if not status:
            fail(command, f"status 0 after signal {number}")
        if left:
            fail(command, f"left {left}")


def without_mpi():
    """Checks that need no MPI in the build."""
    virtual_nodes()
    fused()
    layers()
    cuts()
    workloads()
    experts_that_travel()
    copies()
    json_file()
    csv_file()
    births()
    births_left_alone()
    measure(MOVES + MOE, 2, "-b", "64", "-e", "64k", "-f", "32", "--tokens",
            "64", "--hidden", "128", peer="memcpy")
    for dtype in ("bf16", "f16"):
        for op in ("sum", "avg"):
            measure(["allreduce"], 3, "-e", "64k", "-f", "64", "--dtype", dtype,
                    "--op", op)
    refused(2, "'nothing'", "nothing")
    refused(2, "name an operation")
    refused(2, "'nothing' is none of", "alltoall,nothing")
    refused(2, "|copy|put; the nearest is dispatch", "dispach")
    refused(2, "'' is none of", "alltoall,")
    refused(2, "alltoall is named twice", "alltoall,barrier,alltoall")
    refused(2, "as one word, with commas", "alltoall", "barrier")
    refused(2, "does not apply to broadcast", "alltoall,broadcast",
            "--in-place")
    several_operations()
    refused(2, "'8q' is no size", "alltoall", "-b", "8q")
    refused(2, "-b is above -e", "alltoall", "-b", "2m", "-e", "1m")
    refused(2, "is none of i8|u8|i32", "alltoall", "--dtype", "f23")
    refused(2, "fp8 is only moved", "allreduce", "--dtype", "fp8")
    refused(2, "takes bf16 or f32", "dispatch", "--dtype", "i8")
    refused(2, "--topk is larger", "moe", "--topk", "9", "--experts", "8")
    refused(2, "copies are no measure", "allreduce", "--peer", "memcpy")
    refused(2, "uniform has no parameter", "moe", "--routing", "uniform:2")
    refused(2, "is none of auto|direct|flat", "moe", "--mode", "fast")
    refused(2, "is none of auto|direct|flat", "moe", "--mode", "flat,fast")
    refused(2, "is none of auto|direct|flat", "moe", "--mode", "flat,flat,flat")
    refused(2, "one of mpi, memcpy and verbs", "moe", "--peer", "memcpy,mpi")
    refused(2, "all ranks are on one host", "alltoall", "--peer", "link")
    refused(3, "cannot write /nowhere", "alltoall", "--json=/nowhere/file")
    refused(2, "no calls that return at once", "alltoall", "--overlap",
            "--peer", "memcpy")
    for op in ("dispatch", "moe"):
        refused(2, f"a sample of {op} is one call", op, "--batch", "2")
    rows = measure(["combine"], 2, "--tokens", "9", "--hidden", "64", "--batch",
                   "7", peer="none")
    if [row["batch"] for row in rows] != [7]:
        fail(["combine"], f"batch: {rows}")
    refused(2, "does not apply to broadcast", "broadcast", "--in-place")
    refused(2, "--root 1: there are 1", "broadcast", "--root", "1")
    for option in ("--help", "-h"):
        command, result = run([option])
        if result and (result.returncode or "Examples:" not in result.stdout):
            fail(command, result.stdout)
    alone_is_said()
    worst_is_of_all_rows()


def several_operations():
    """Options that are not given have each operation's own default. Each operation
    has a table, and rows of the same name are kept apart."""
    ops = ["allreduce", "dispatch", "moe"]
    small = ["--ranks", "2", "-n", "2", "-e", "8", "--tokens", "9", "--hidden",
             "64"]
    command, result = run([",".join(ops), *small, "--json"])
    if result:
        for row in map(json.loads, result.stdout.splitlines()):
            tokens = operation(row) in MOE
            if (row["dtype"], row["mem"]) != (
                    ("bf16", "window") if tokens else ("f32", "malloc")):
                fail(command, f"defaults: {row}")
    command, result = run([",".join(ops), *small, "--repeat-births", "2"])
    if not result:
        return
    runs, _, summary = result.stdout.partition("# 2 runs, each")
    for op in ops:
        if runs.count(f"# -- {op} --") != 2:
            fail(command, f"no table of {op}: {runs}")
    names = [line.split()[0] for line in summary.splitlines()
             if line.startswith("  ")]
    if names != ["allreduce"] + PARTS["dispatch"] + PARTS["moe"]:
        fail(command, f"summary: {summary}")


def alone_is_said():
    """A note says that one rank sends nothing, as in a first try without launcher."""
    for ranks, said in (("1", True), ("2", False)):
        command, result = run(["alltoall", "--ranks", ranks, "-e", "8", "-n",
                               "2"])
        if result and ("nothing travels" in result.stdout) != said:
            fail(command, result.stdout)


def worst_is_of_all_rows():
    """Compare the closing line with the rows."""
    command, result = run(["moe", "--ranks", "2", "--json", "--tokens", "64,9",
                           "--hidden", "64", "-n", "3", "--peer", "memcpy"])
    if not result:
        return
    ratios = [json.loads(line)["ratio"] for line in result.stdout.splitlines()]
    closing_line(command, result.stderr, ratios)


def closing_line(command, text, ratios):
    worst = min(ratio for ratio in ratios if ratio)
    if f"worst {worst:.3f} of all" not in text:
        fail(command, f"worst is {worst:.3f}: {text}")


def with_mpi():
    mpi_left_alone()
    refused(2, "MPI has no such type", "allreduce", "--peer", "mpi", "--dtype",
            "bf16")
    measure(["alltoall"], 2, "-e", "1k")
    measure(["gemm-rs", "ag-gemm"], 2, "--hidden", "192", "--inner", "40",
            "--tokens", "50")
    command, result = run(["dispatch", "--ranks", "2", "--json", "--tokens",
                           "64", "--hidden", "64", "-n", "3", "--peer", "mpi"])
    if result:
        rows = [json.loads(line) for line in result.stdout.splitlines()]
        closing_line(command, result.stderr, [row["ratio"] for row in rows])
        if "of 2 rows that move data (1 do not)" not in result.stderr:
            fail(command, result.stderr)


collectives()
tokens()
if PEER == "mpi":
    with_mpi()
else:
    without_mpi()
# A computation is as long as the call, and a rank that polls makes calls long while
# other tests run.
os.environ["SHUNT_SPIN"] = "0"
overlap()
sys.exit(1 if failures else 0)
