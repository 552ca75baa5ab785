#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Are the messages that docs/when-it-hangs.md explains those of the sources?

messages.py SOURCE

Each text in the tables of messages, and each text of shunt-run that the page quotes, must
result from a format in the sources. So a string literal must make up most of the text.
"""
import glob
import re
import sys

source = sys.argv[1]
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
CONVERSION = r"%[-+ #0]*[\d*]*(?:\.[\d*]+)?(?:hh|h|ll|l|z|j|t)?[diouxXeEfgGcsp]"


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def formats():
    """Yields (pattern, length of the fixed parts) of all literals. Literals that follow
    each other are one."""
    for folder in "src", "collectives", "moe", "tools":
        for path in glob.glob(f"{source}/{folder}/**/*.[ch]", recursive=True):
            for run in re.findall(rf"{LITERAL}(?:\s*{LITERAL})*", read(path)):
                text = "".join(part[1:-1] for part in re.findall(LITERAL, run))
                fixed = re.split(CONVERSION, text)
                if len("".join(fixed)) >= 10:
                    yield (re.compile(".*?".join(map(re.escape, fixed))),
                           len("".join(fixed)))


def is_message(text, known):
    """True if a format makes up at least half of the text."""
    covered = 0
    for whole in text, f"allreduce (operation 3): {text}", f"allreduce: {text}":
        for pattern, fixed in known:
            if pattern.search(whole):
                covered = max(covered, fixed)
    return covered >= len(text) / 2


page = read(f"{source}/docs/when-it-hangs.md")
section = page.partition("## What the message says")[2].partition("\n## ")[0]
rows = re.findall(r"^\| `([^`]+)` \|", section, re.M)
paragraph = " ".join(section.partition("`shunt-run` itself")[2].split())
said = re.findall(r"`(rank [^`]+|not finished [^`]+)`", paragraph)
if len(rows) < 10 or len(said) != 3:
    sys.exit(f"messages.py: cannot read the page: {len(rows)} rows, {said}")
found = list(formats())
if is_message("nothing from rank 1 for a while; it may be asleep, or gone", found):
    sys.exit("messages.py takes anything for a message")
wrong = [text for text in rows + said if not is_message(text, found)]
for text in wrong:
    print(f"no source says: {text}")
sys.exit(bool(wrong))
