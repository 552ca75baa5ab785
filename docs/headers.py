# SPDX-License-Identifier: Apache-2.0
"""Reads the public headers: which functions there are, and what is said of them."""
import os
import re

TREE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
HEADERS = ["comm", "coll", "request", "memory", "moe", "moe_parts", "moe_waves",
           "moe_experts", "moe_gradients", "balance", "fused", "fused_cblas",
           "status", "trace", "version", "mpi"]
# Plugins are called by the library: their headers declare no function of it.
PLUGINS = {"engine", "transport", "shunt"}


def read(path):
    with open(os.path.join(TREE, path), encoding="utf-8") as file:
        return file.read()


def body(comment):
    """The lines of a comment without its frame."""
    lines = [re.sub(r"^\s*/?\*+/?\s?", "", re.sub(r"\s*\*/$", "", line)).rstrip()
             for line in comment.splitlines()]
    return "\n".join(lines).strip("\n")


def plain(comment):
    """The first paragraph of a comment, in one line: what follows is about arguments."""
    return " ".join(body(comment).strip().split("\n\n")[0].split())


def sentence(text):
    """The first one. A dot of an abbreviation or of a file's name is no end."""
    end = re.search(r"(?<!e\.g)(?<!i\.e)(?<!cf)[.:](?=\s|$)(?!\s[a-z])", text)
    return text[:end.start() + 1].rstrip(":") if end else text


def functions(header):
    """[(name, comment or None, declaration)] of a header, in order."""
    text = read(f"include/shunt/{header}.h")
    # Between a comment and its function C++ may have pragmas.
    text = re.sub(r"^#(ifdef __cplusplus|pragma|endif).*\n", "", text, flags=re.M)
    return [(match[3], match[1], match[2] + match[4])
            for match in re.finditer(
                r"(/\*\*(?:(?!\*/).)*?\*/\s*)?"
                r"^((?:SHUNT_API|static inline)\b[^;{]*?\b(shunt_\w+))(\([^;{]*)",
                text, re.M | re.S)]


def subject(header):
    """The purpose of a header: the first sentence of its own comment."""
    comment = re.search(r"/\*\*\n \* @file\n(.*?)\*/", read(f"include/shunt/{header}.h"),
                        re.S)[1]
    return sentence(plain(comment))
