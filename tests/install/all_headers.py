#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Does shunt.h include every header of its folder but those that its comment
names, and does the build know all of them?

all_headers.py FOLDER
"""
import os
import re
import sys

folder = sys.argv[1]
there = {name for name in os.listdir(folder) if name.endswith(".h")}
with open(os.path.join(folder, "shunt.h"), encoding="utf-8") as file:
    text = file.read()
included = set(re.findall(r"#include <shunt/([a-z_]+\.h)>", text))
comment = text.partition("*/")[0].partition("Includes all but")[2]
named = set(re.findall(r"\b[a-z_]+\.h\b", comment))
wrong = (there - {"shunt.h"} - included) ^ named
if wrong or not named or included - there:
    sys.exit(f"shunt.h: {', '.join(sorted(wrong | (included - there)))}: either "
             "include it, or say that it is left out")
