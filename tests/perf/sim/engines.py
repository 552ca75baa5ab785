#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Ports and SimGrid agree: engines.py SHUNT_SCALING

Two models of a network, written by different people: the time of an exchange
must not depend much on which is asked. And the command's mistakes are named.
"""

import json
import subprocess
import sys

SCALING = sys.argv[1]
EXCHANGES = [
    ["alltoallv", "--nodes", "4", "--bytes", "200"],
    ["alltoallv", "--nodes", "4", "--bytes", "200000", "--spread", "2"],
    ["alltoallv", "--nodes", "4", "--bytes", "5000", "--carry", "all"],
    ["alltoallv", "--machine", "ethernet25", "--nodes", "3", "--bytes", "9000"],
    ["dispatch", "--nodes", "4", "--tokens", "200"],
    ["combine", "--nodes", "4", "--tokens", "200", "--routing", "zipf:0.8"],
    ["dispatch", "--nodes", "4", "--tokens", "200", "--mode", "2dh",
     "--machine", "rails200"],
    ["dispatch", "--nodes", "8", "--tokens", "100", "--mode", "plain"],
    ["dispatch", "--sizes", "1,2,3", "--tokens", "300"],
    ["plan", "--nodes", "3", "--tokens", "50", "--two-level"],
]


def time_of(exchange, engine):
    out = subprocess.run([SCALING, *exchange, "--engine", engine], check=True,
                         capture_output=True, text=True, timeout=100).stdout
    return json.loads(out)["time_us"]


failures = 0
for exchange in EXCHANGES:
    ports, simgrid = (time_of(exchange, e) for e in ("ports", "simgrid"))
    far = abs(ports / simgrid - 1) > 0.15
    failures += far
    print("FAIL" if far else "ok  ", f"{ports:10.1f} {simgrid:10.1f} us",
          " ".join(exchange))
for wrong in (["dispatch", "--mode", "none"], ["nothing"], [],
              ["dispatch", "--topk", "300"], ["dispatch", "--tokens", "x"]):
    done = subprocess.run([SCALING, *wrong], check=False, capture_output=True,
                          text=True, timeout=100)
    if done.returncode != 2 or not done.stderr:
        failures += 1
        print("FAIL: status", done.returncode, wrong, done.stderr)
sys.exit(1 if failures else 0)
