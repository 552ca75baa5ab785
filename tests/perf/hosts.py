#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shunt-perf between hosts: hosts.py SHUNT_PERF HOSTS REPORT none|some|mpi

In a bed of HOSTS: that ranks of several hosts agree, that all results are
right, that what the kernel counts is what had to cross and some headers, and
that a page comes of it. some: without a peer, and only what differs from mpi,
where that is run, too.
"""

import html.parser
import json
import os
import subprocess
import sys
import tempfile

PERF, HOSTS, REPORT, PEER = sys.argv[1:]
SMALL = ["--hidden", "256", "--experts", "12", "--topk", "4"]
BRIEF = ["-n", "5", "-w", "1", "--no-pin"]
MPI = ["--mca", "pml", "ob1", "--mca", "btl", "tcp,vader,self", "--mca",
       "mpi_yield_when_idle", "1", "-x", "SHUNT_SPIN", "-x",
       "SHUNT_PLUGIN_PATH"]
failures = 0


def fail(command, text):
    global failures
    failures += 1
    print("FAIL:", " ".join(command), "\n ", text, flush=True)


def run(command):
    try:
        return subprocess.run(command, capture_output=True, text=True,
                              timeout=150, check=False,
                              env={**os.environ, "SHUNT_SPIN": "0"})
    except subprocess.TimeoutExpired as late:
        fail(command, f"not finished in {late.timeout} s: {late.stderr}")
        return subprocess.CompletedProcess(command, 124, "", "")


def launch(ranks):
    if PEER == "mpi":
        return [HOSTS, "mpirun", "-n", str(ranks)] + MPI
    return [HOSTS, "run", "-n", str(ranks), "--raw", "--timeout", "120", "--"]


def measure(path, ranks, *args, link=True):
    """The objects that a run appends to the file."""
    peers = ["mpi"] * (PEER == "mpi") + ["link"] * link
    command = launch(ranks) + [PERF, *args, "--peer",
                               ",".join(peers) or "none", f"--json={path}",
                               *BRIEF]
    before = os.path.getsize(path) if os.path.exists(path) else 0
    result = run(command)
    if result.returncode:
        fail(command, f"status {result.returncode}: {result.stdout}\n"
             f"{result.stderr}")
        return command, []
    if "all results were right" not in result.stdout:
        fail(command, f"no closing line: {result.stdout}")
    with open(path, encoding="utf-8") as file:
        file.seek(before)
        rows = [json.loads(line) for line in file]
    if not rows:
        fail(command, "no rows")
    return command, rows


def check_wire(command, row, prefix, slack):
    """Not less than the payload; not much more. The gates and what settles
    calls are in it, so small calls may cost a multiple."""
    need, wire = row[prefix + "need_bytes"], row[prefix + "wire_bytes"]
    # Blocks for both ranks of a host cross once, or twice without a thought.
    most = need * (2 if row["op"] == "allgather" else 1)
    if not need <= wire <= most * 1.15 + slack:
        fail(command, f"{prefix}wire: {wire} bytes for {need}: {row}")
    if not wire / row["hosts"] * 0.999 <= row[prefix + "wire_busiest_bytes"]:
        fail(command, f"busiest: {row}")


def check(command, row, hosts, ranks):
    if (row["hosts"], row["ranks"]) != (hosts, ranks):
        fail(command, f"hosts and ranks: {row}")
    if row["op"] == "plan":
        return
    if row["wrong"] != 0 or (PEER == "mpi" and row["peer_wrong"] != 0):
        fail(command, f"wrong: {row}")
    if not row["link_time_us"] > 0 or not row["time_us"] > 0:
        fail(command, f"times: {row}")
    if not row["time_us_q1"] <= row["time_us"] <= row["time_us_q3"]:
        fail(command, f"quartiles: {row}")
    # The bed's links are of 1 Gbit/s; a little passes faster after a pause.
    if not 20 < row["link_rate_gbs"] * 1000 < 126:
        fail(command, f"link: {row}")
    slack = 20000 * hosts
    check_wire(command, row, "", slack)
    if PEER == "mpi":
        check_wire(command, row, "peer_", slack)


def collectives(path):
    sizes = ["-b", "4k", "-e", "1m", "-f", "256"]
    for op in ("allgather",) if PEER == "some" else (
            "alltoall", "alltoallv", "allgather"):
        command, rows = measure(path, 2, op, *sizes)
        for row in rows:
            check(command, row, 2, 4)
            # Halves of what two ranks have go to the other host; or all of it.
            share = row["bytes"] * (1 if op == "allgather" else 2)
            if row["need_bytes"] != share:
                fail(command, f"need: {row}")
    command, rows = measure(path, 2, "alltoallv", *sizes, "--counts",
                            "skewed", "--algorithm", "two_level")
    for row in rows:
        check(command, row, 2, 4)
        if row["algorithm"] != "two_level":
            fail(command, f"algorithm: {row}")


def tokens(path):
    more_modes = [] if PEER == "some" else [
        ["--mode", "two-level,flat"], ["--partials", "bf16", "--wire", "fp8"]]
    for more in [[], ["--mode", "flat"]] + more_modes:
        command, rows = measure(path, 2, "moe", *SMALL, "--tokens", "700",
                                *more)
        for row in rows:
            check(command, row, 2, 4)
            if row["op"] == "plan" or \
                    row["mode"] not in ("two-level", "two-level,flat"):
                continue
            # Ours by the routing, the library's plan, its counters: one.
            if not (row["need_rows"] == row["plan_rows"] and
                    row["need_bytes"] == row["plan_bytes"]):
                fail(command, f"not the plan's: {row}")
            # Those of a flat combine are alltoallv's.
            if (row["op"] == "dispatch" or row["op"] == "combine" and
                    row["mode"] == "two-level") and \
                    row["sent_bytes"] != row["need_bytes"]:
                fail(command, f"sent: {row}")
            # A flat combine sends what MPI sends; all else is less.
            flat = row["op"] == "combine" and row["mode"] == "two-level,flat"
            if PEER == "mpi" and (
                    row["peer_need_bytes"] != row["need_bytes"] if flat
                    else row["peer_need_bytes"] <= row["need_bytes"]):
                fail(command, f"nothing saved: {row}")


def fused(path):
    """The product is measured beside streams, which are over before the next
    sample."""
    command, rows = measure(path, 2, "gemm-rs,ag-gemm", "--tokens", "64",
                            "--hidden", "192", "--inner", "128", link=False)
    for row in rows:
        share = min(row["product_beside_us"], row["collective_us"])
        hidden = (row["product_beside_us"] + row["collective_us"] -
                  row["time_us"]) / share
        if row["wrong"] != 0 or abs(hidden - row["hidden_share"]) > 1e-6:
            fail(command, f"fused: {row}")
        if PEER == "mpi" and (row["peer_wrong"] != 0 or
                              not row["peer_time_us"] > 0):
            fail(command, f"fused, MPI: {row}")


def refusals():
    command = [HOSTS, "run", "-n", "1", "--timeout", "60", "--", "sh", "-c",
               f'exec "{PERF}" alltoall -e 1k --seed "$RANK"']
    result = run(command)
    said = result.stdout + result.stderr
    if result.returncode != 2 or "with other options than rank 0" not in said:
        fail(command, f"status {result.returncode}: {said}")


class Page(html.parser.HTMLParser):
    """Counts plots, and notices what would have to be fetched."""

    def __init__(self):
        super().__init__()
        self.plots, self.open, self.foreign = 0, [], []

    def handle_starttag(self, tag, attrs):
        self.plots += tag == "svg"
        self.foreign += [v for k, v in attrs if k in ("src", "href")]
        if tag in ("svg", "table", "body", "html", "h2", "h3", "p"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()


def report(path):
    command = [REPORT, path, "--title", "a <title> & more"]
    result = run(command)
    page = Page()
    page.feed(result.stdout)
    if result.returncode or page.open or page.foreign:
        fail(command, f"status {result.returncode}, left open {page.open}, "
             f"foreign {page.foreign}: {result.stderr}")
    # Times, ratios and wire of calls; times and wire of tokens.
    if page.plots < 5:
        fail(command, f"only {page.plots} plots")
    for text in ("a &lt;title&gt; &amp; more", "2 hosts × 2 ranks",
                 "plain streams", "Every result was checked, and right"):
        if text not in result.stdout:
            fail(command, f"no '{text}'")
    with tempfile.NamedTemporaryFile("w", suffix=".json") as half:
        half.write('{"op": "alltoall", "ra')
        half.flush()
        result = run([REPORT, half.name])
        if result.returncode == 0 or ":1: not a line of" not in result.stderr:
            fail([REPORT], f"took half a line: {result.stderr}")


def main():
    if "HOSTS_NAME" not in os.environ:
        can = subprocess.run([HOSTS, "can"], check=False)
        if can.returncode:
            sys.exit(can.returncode)
        # Again, in a bed that goes away with us.
        os.execv(HOSTS, [HOSTS, "with", "2", "--rate", "1gbit", "--",
                         sys.executable] + sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "perf.json")
        collectives(path)
        tokens(path)
        fused(path)
        report(path)
    refusals()
    sys.exit(1 if failures else 0)


main()
