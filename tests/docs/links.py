#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the links of the documents lead somewhere, and are the short ones short?

links.py SOURCE

Reads the links of CONTRIBUTING.md, docs/*.md, docs/design/*.md and each README.md. The
file of a link must exist, and the heading behind its "#" as well. docs/performance.md and
docs/lessons.md may not grow. Prints TAP, one line for each document. The first document
is a sample in which everything is wrong.
"""

import glob
import os
import re
import sys

SOURCE = sys.argv[1]
MOST_LINES = {"docs/performance.md": 250, "docs/lessons.md": 126, "sample.md": 3}
SAMPLE = """# Only this heading is there

[a](gone.md), [b](docs/gone.md#here), [c](#no-heading), [d](docs/fused.md#no-heading),
[right](docs/fused.md), [right](#only-this-heading-is-there), [right](https://a.b/c.md)
"""
FAULTS = ["gone.md", "docs/gone.md#here", "#no-heading", "docs/fused.md#no-heading",
          "4 lines, 3 at most"]


def read(name):
    with open(os.path.join(SOURCE, name), encoding="utf-8") as file:
        return file.read()


def anchors(text):
    """Returns the anchors that GitHub makes of the headings."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for heading in re.findall(r"^#+ (.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def faults(name, text):
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = os.path.normpath(os.path.join(os.path.dirname(name), path))
        if path and not os.path.exists(os.path.join(SOURCE, target)):
            yield link
        elif anchor and anchor not in anchors(read(target) if path else text):
            yield link
    lines = text.count("\n")
    if lines > MOST_LINES.get(name, lines):
        yield f"{lines} lines, {MOST_LINES[name]} at most"


def main():
    names = ["CONTRIBUTING.md"] + sorted(
        os.path.relpath(path, SOURCE) for pattern in
        ("README.md", "[!b]*/**/README.md", "bindings/**/README.md", "docs/**/*.md")
        for path in glob.glob(f"{SOURCE}/{pattern}", recursive=True))
    found = list(faults("sample.md", SAMPLE))
    failed = found != FAULTS
    print(f"1..{len(names) + 1}")
    print(("not " if failed else "") + "ok 1 - faults of a sample are found")
    for number, name in enumerate(names, 2):
        found = list(faults(name, read(name)))
        failed = failed or bool(found)
        print(f"{'not ' if found else ''}ok {number} - {name}")
        for fault in found:
            print(f"# {name}: {fault}")
    sys.exit(failed)


main()
