#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages and pictures of report/, and the pictures in docs/scaling/.

pages.py SOURCE_ROOT
"""

import glob
import math
import os
import re
import sys
import xml.etree.ElementTree as xml

ROOT = sys.argv[1]
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(ROOT, "tools", "report"))
import pages  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
COLOURS = {"a <b> & c": "var(--a)", "plain": "var(--soft)"}


def lines(**more):
    series = {"a <b> & c": {8: (2, 1, 4), 64: (3, 3, 3), 512: (40, 30, 50)},
              "plain": {8: (9, 9, 9), 512: (80, 80, 80)}}
    return pages.Lines(series, "bytes & more", "{:g}".format, "{:g} s".format,
                       **more)


def elements(svg, tag):
    return [e for e in xml.fromstring(svg).iter()
            if e.tag.removeprefix(SVG) == tag]


def axes():
    """Values and marks are within the axis, and in their order."""
    for values in ((1, 2), (0.3, 7000), (5, 5), (1e-6, 3e6), (0.98, 1.02)):
        for log, zero in ((True, False), (False, True), (False, False)):
            axis = pages.Axis(values, 100, 500, log, zero)
            at = [axis(v) for v in sorted(values)]
            marks = axis.marks()
            assert 100 <= at[0] <= at[1] <= 500, (values, log, at)
            assert 2 <= len(marks) <= 16, (values, log, marks)
            assert all(99.9 <= axis(m) <= 500.1 for m in marks), marks
            assert marks == sorted(marks), marks
            for mark in marks:  # a round number, which is short as a text
                assert math.isclose(mark, float(f"{mark:.2e}"),
                                    abs_tol=1e-9), marks
    assert pages.Axis((3, 9), 0, 1, False, True).low == 0
    middle = pages.Axis((1, 100), 0, 200, True)(10)
    assert math.isclose(middle, 100), middle


def labels():
    """No label covers another one."""
    axis = pages.Axis((1, 1000), 0, 100, False)
    kept = list(axis.apart(range(1, 1001), str))
    assert 2 <= len(kept) < 10, kept
    for a, b in zip(kept, kept[1:]):
        assert axis(b) - axis(a) >= 3.1 * (len(str(a)) + len(str(b))), kept


def plots():
    svg = pages.picture(lines(level=7, dashed=("plain",)), COLOURS)
    assert len(elements(svg, "polyline")) == 2
    assert len(elements(svg, "circle")) == 5
    assert svg.count("stroke-dasharray") == 2
    titles = [e.text for e in elements(svg, "title")]
    assert "a <b> & c, 512: 40 s (30 s to 50 s)" in titles, titles
    assert "a <b> & c, 64: 3 s" in titles, titles
    svg = pages.picture(lines(dots=True), COLOURS)
    assert not elements(svg, "polyline") and len(elements(svg, "circle")) == 5
    bars = pages.Bars([("x & y", [("plain", 3, 2, 4, " (&lt;)")])],
                      "{:g} s".format)
    svg = pages.picture(bars, COLOURS | {"plain": "var(--b)"})
    assert len(elements(svg, "rect")) == 1


def files():
    """A picture in a file of its own has its style, and one legend."""
    svg = pages.file_of([lines(title=f"no {i}", size=(330, 230))
                         for i in range(3)], COLOURS, 2)
    picture = xml.fromstring(svg)
    assert picture.get("width") == "660", picture.attrib
    assert int(picture.get("height")) > 2 * 230
    style = elements(svg, "style")[0].text
    assert "prefers-color-scheme:dark" in style and "body" not in style
    words = [e.text for e in elements(svg, "text")]
    assert words.count("a <b> & c") == 1, words


def colours():
    """Every color that is used has a value, for light and for dark."""
    light, dark = pages.STYLE.split("@media", 1)
    dark = dark.partition("svg")[0]
    for text in (light, dark):
        defined = set(re.findall(r"--(\w+):#", text))
        assert defined >= set(re.findall(r"var\(--(\w+)\)", pages.STYLE))
        assert defined >= set("abcdef"), defined


def page():
    made = "".join(pages.page("<title>", ["<p>1</p>"]))
    assert "<h1>&lt;title&gt;</h1><p>1</p></body>" in made, made
    for foreign in ("http:", "https:", "src=", "@import", "url("):
        assert foreign not in made, foreign


def pictures_of_docs():
    """The pictures in docs/scaling/ have this style sheet."""
    paths = glob.glob(os.path.join(ROOT, "docs", "scaling", "*.svg"))
    assert paths
    for path in paths:
        with open(path, encoding="utf-8") as file:
            style = elements(file.read(), "style")
        assert style and style[0].text == pages.PICTURES, path


cases = [axes, labels, plots, files, colours, page, pictures_of_docs]
failed = False
print(f"1..{len(cases)}")
for number, case in enumerate(cases, 1):
    try:
        case()
        print(f"ok {number} - {case.__name__}")
    except AssertionError as error:
        failed = True
        print(f"not ok {number} - {case.__name__}\n# {error!r}")
sys.exit(failed)
