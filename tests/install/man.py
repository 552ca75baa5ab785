#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does a man page say what the program's --help all says, in the same order?

man.py PAGE PROGRAM
"""

import re
import subprocess
import sys

CHARACTERS = {r"\-": "-", r"\e": "\\", r"\(aq": "'", r"\(ga": "`",
              r"\(ha": "^", r"\(ti": "~", r"\&": "", r"\fB": "", r"\fR": ""}


def words(text):
    # Headings are in capitals in the page, and have no colon.
    return [word.rstrip(":").upper() for word in text.split()]


def said(page):
    """The words of a page that come from --help."""
    page = page.partition("\n.SH SYNOPSIS\n")[2].partition("\n.SH SEE ALSO")[0]
    lines = []
    for line in page.splitlines():
        if line.startswith(".SH "):
            line = line[4:].replace("DESCRIPTION", "")
        elif line.startswith("."):
            line = ""
        lines.append(re.sub(r"\\(\(..|f.|.)",
                            lambda match: CHARACTERS[match[0]], line))
    return words("\n".join(lines))


def main(page, program):
    text = subprocess.run([program, "--help", "all"], check=True, encoding="utf-8",
                          stdout=subprocess.PIPE).stdout
    wanted = words(re.sub("^usage:", "", text, flags=re.IGNORECASE))
    with open(page, encoding="utf-8") as file:
        found = said(file.read())
    for i, word in enumerate(wanted):
        if i >= len(found) or found[i] != word:
            sys.exit(f"{page}: '{' '.join(found[max(0, i - 5):i + 1])}' where "
                     f"{program} --help has '{' '.join(wanted[max(0, i - 5):i + 1])}'")
    if len(found) > len(wanted):
        sys.exit(f"{page}: '{' '.join(found[len(wanted):])}' is not in --help")


if __name__ == "__main__":
    main(*sys.argv[1:])
