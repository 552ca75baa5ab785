#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does each comment begin with a thing or a command?

openings.py SOURCE

A comment, or a paragraph of one, that begins with "What", "Of" or "It" has a clause or a
pronoun for its subject, and has to be read twice. Prints TAP, a line for each folder. The
first line is for a sample in which four of seven openings are wrong.
"""

import os
import re
import sys

SOURCE = sys.argv[1]
FOLDERS = ["include", "src", "collectives", "moe", "transports", "train", "perf", "tools",
           "bindings", "examples", "tests"]
COMMENT = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)*\'|/\*(.*?)\*/|//([^\n]*)',
                     re.DOTALL)
WRONG = re.compile(r"(?:What|Who|Whose|That|Of|Which|Whatever|It|Its|They|Their|These are|"
                   r"This is)\b")
SAMPLE = """/* What is wrong. */ int a; /* Ranks. */ "/* Of a text */" // Of b
/** The rest.
 *
 * It goes on.
 * It may go on here.
 */ /* This rank. */ /* These are wrong. */
"""


def openings(text):
    """Yields (line, beginning) of each comment, and of each paragraph after an empty line."""
    for found in COMMENT.finditer(text):
        comment = found[1] if found[1] is not None else found[2]
        if comment is None:
            continue
        number, begins = text.count("\n", 0, found.start()) + 1, True
        for line in comment.split("\n"):
            words = line.strip().lstrip("*").strip()
            if words and begins:
                yield number, words
            begins = not words
            number += 1


def faults(path, text):
    for line, words in openings(text):
        if WRONG.match(words):
            yield f"{path}:{line}: {words[:60]}"


def main():
    sample = list(faults("sample", SAMPLE))
    cases = [("the sample", [] if len(sample) == 4 else sample or ["nothing was found"])]
    for folder in FOLDERS:
        found = []
        for where, _, names in os.walk(os.path.join(SOURCE, folder)):
            for name in sorted(names):
                if name.endswith((".c", ".h")):
                    path = os.path.join(where, name)
                    with open(path, encoding="utf-8") as file:
                        found += faults(os.path.relpath(path, SOURCE), file.read())
        cases.append((folder, found))
    print(f"1..{len(cases)}")
    for number, (name, found) in enumerate(cases, 1):
        print(f"{'not ok' if found else 'ok'} {number} - {name}")
        for fault in found:
            print(f"# {fault}")
    return any(found for _, found in cases)


sys.exit(main())
