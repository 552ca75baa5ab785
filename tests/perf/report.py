#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""shunt-perf-report of a run on one host: report.py SHUNT_PERF REPORT

That each part of the page is there, with what was measured; hosts.py has those
of runs between hosts.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

PERF, REPORT = sys.argv[1:]
failures = 0


def fail(text):
    global failures
    failures += 1
    print("FAIL:", text, flush=True)


def page_of(path):
    """The page, which is UTF-8 wherever the user is."""
    result = subprocess.run([REPORT, path], capture_output=True, timeout=30,
                            check=False,
                            env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    if result.returncode:
        fail(result.stderr)
    return result.stdout.decode(errors="replace")


def refuses_other_files(folder):
    path = os.path.join(folder, "picture.png")
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n")
    result = subprocess.run([REPORT, path], capture_output=True, text=True,
                            timeout=30, check=False)
    if result.returncode != 1 or ":1: not a line of" not in result.stderr:
        fail(f"status {result.returncode}: {result.stderr}")


def section(page, head):
    """The text from this heading to the next one."""
    start = page.find(head)
    if start < 0:
        fail(f"no {head}")
        return ""
    end = page.find("<h", start + len(head))
    return page[start:end]


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "perf.json")
        for args in (["barrier"], ["allgather", "-b", "64", "-e", "4k", "-f",
                                   "8", "--peer", "memcpy", "--in-place"],
                     ["allgather", "-b", "64", "-e", "64", "--overlap"]):
            subprocess.run([PERF, *args, "--ranks", "2", "-n", "5",
                            f"--json={path}"], stdout=subprocess.DEVNULL,
                           timeout=60, check=True)
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(line) for line in file]
        page = page_of(path)
        refuses_other_files(folder)
    if "µs" not in page:
        fail("no microseconds, or not in UTF-8")
    for picture in re.findall(r"<svg.*?</svg>", page, re.S):
        xml.fromstring(picture.replace("&ndash;", "-"))
    if "p99" not in section(page, "<h2>Barrier</h2>"):
        fail("no 99th percentile of the barrier")
    for head in ("<h3>Time of a call", "<h3>99th percentile",
                 "<h3>Bus bandwidth"):
        if section(page, head).count("<circle") != 3:
            fail(f"{head}: not one point for each of three sizes")
    figures = page[page.find("<h2>All figures"):]
    if page.count("<h2>allgather") != 2 or "start and wait" not in page:
        fail("started calls are not apart from blocking ones")
    for row in rows[1:]:
        if f"<td>{row['busbw_gbs']:.2f}</td>" not in figures:
            fail(f"no bandwidth of {row['bytes']} B")
    if "in place" not in page:
        fail("in place is not said")
    sys.exit(1 if failures else 0)


main()
