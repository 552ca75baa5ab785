# SPDX-License-Identifier: Apache-2.0
"""Pages and pictures of measurements: HTML that needs no other file (no script,
no font, no network), and plots as SVG.

style.css is the style sheet for light and dark pages; shunt-train --report
has the same one built in. Pictures use its colours, "var(--a)" to "var(--f)",
and "var(--soft)" for the side that others are compared with.
"""

import html
import math
import os

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "style.css"),
          encoding="utf-8") as _file:
    STYLE = _file.read()
# The part of the style sheet that pictures need.
PICTURES = STYLE.partition("/* pages */")[0]

escape = html.escape


def page(title, body):
    """Yields the parts of a page. body: an iterable of its parts."""
    yield ("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">"
           "<meta name=\"viewport\" content=\"width=device-width\">"
           f"<title>{escape(title)}</title><style>{STYLE}</style></head>"
           f"<body><h1>{escape(title)}</h1>")
    yield from body
    yield "</body></html>\n"


def key(colours, names):
    return "<p>" + "".join(
        f'<span class="key"><i style="background:{colours[name]}"></i>'
        f"{escape(name)}</span>" for name in names) + "</p>"


# -- parts of a picture: the caller escapes the names of values ----------------

def text(x, y, words, anchor="middle", extra=""):
    """Draws text. `words` must be escaped."""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>'
            f"{words}</text>")


def line(x1, y1, x2, y2, colour="var(--line)", extra=""):
    return (f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" '
            f'stroke="{colour}"{extra}/>')


class Axis:
    """Maps values to positions between `start` and `end`, with a margin."""

    def __init__(self, values, start, end, log, zero=False):
        low, high = min(values), max(values)
        if log:
            low, high = low / 1.15, high * 1.15
        elif zero:
            low, high = 0, high * 1.06 or 1
        else:
            margin = (high - low or abs(high) or 1) * .06
            low, high = low - margin, high + margin
        self.low, self.high, self.log = low, high, log
        self.start, self.end = start, end

    def __call__(self, value):
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def marks(self):
        """Returns about five round values."""
        low, high = self.low, self.high
        if not self.log or high < 2 * low:
            raw = (high - low) / 5
            unit = 10.0 ** math.floor(math.log10(raw))
            step = next(unit * f for f in (1, 2, 5, 10) if unit * f >= raw)
            return [round(step * n, 12)
                    for n in range(math.ceil(low / step),
                                   math.floor(high / step) + 1)]
        decades = math.log10(high / low)
        steps = ((1,) if decades > 2.5 else (1, 3) if decades > 1.2
                 else (1, 2, 5) if decades > .6 else (1, 1.5, 2, 3, 4, 5, 7))
        return [step * 10.0 ** n
                for n in range(math.floor(math.log10(low)),
                               math.ceil(math.log10(high)) + 1)
                for step in steps if low <= step * 10.0 ** n <= high]

    def apart(self, values, words):
        """Yields the values whose labels do not overlap."""
        end = -math.inf
        for value in sorted(values):
            half = 3.1 * len(words(value)) + 4
            if self(value) - half >= end:
                end = self(value) + half
                yield value


# -- plots ---------------------------------------------------------------------

class Lines:
    """A plot with a line for each of series, {name: {x: (y, low, high)}}, and a
    bar from low to high where these differ. `dots`: points without lines.
    `level`: the height of a dashed line. Linear axes begin at zero unless
    `zero` is false."""

    def __init__(self, series, x_name, x_text, y_text, title="", y_name="",
                 log_x=True, log_y=True, level=None, dots=False, zero=True,
                 size=(720, 300), dashed=()):
        self.series, self.size, self.dots = series, size, dots
        self.x_name, self.x_text, self.y_text = x_name, x_text, y_text
        self.title, self.y_name, self.level = title, y_name, level
        self.log_x, self.log_y, self.zero = log_x, log_y, zero
        self.dashed = dashed

    def draw(self, colours, left=0, top=0):
        points = [(x, p) for s in self.series.values() for x, p in s.items()]
        ys = [y for _, p in points for y in p]
        if self.level is not None:
            ys.append(self.level)
        x0, x1 = left + (66 if not self.y_name else 58), left + self.size[0] - 24
        y0, y1 = top + self.size[1] - 40, top + (30 if self.title else 12)
        ax = Axis([x for x, _ in points], x0, x1, self.log_x, self.zero)
        ay = Axis(ys, y0, y1, self.log_y, self.zero)
        for mark in ay.marks():
            yield line(x0, ay(mark), x1, ay(mark))
            yield text(x0 - 6, ay(mark) + 4, self.y_text(mark), "end")
        at = ax.marks() if self.dots else {x for x, _ in points}
        for mark in ax.apart(at, self.x_text):
            yield text(ax(mark), y0 + 16, self.x_text(mark))
        yield from self.names((x0 + x1) / 2, (y0 + y1) / 2, left, top)
        if self.level is not None:
            yield line(x0, ay(self.level), x1, ay(self.level), "var(--ink)",
                       ' stroke-dasharray="5 4"')
        for name, own in self.series.items():
            yield from self.one(name, own, colours[name], ax, ay)

    def names(self, x, y, left, top):
        yield text(x, top + self.size[1] - 4, escape(self.x_name))
        if self.title:
            yield text(x, top + 18, escape(self.title), extra=' class="strong"')
        if self.y_name:
            yield text(left + 14, y, escape(self.y_name), extra=
                       f' transform="rotate(-90 {left + 14} {y:.1f})"')

    def one(self, name, points, colour, ax, ay):
        if not self.dots:
            dashes = (' stroke-dasharray="4 3"' if name in self.dashed else "")
            way = " ".join(f"{ax(x):.1f},{ay(p[0]):.1f}"
                           for x, p in points.items())
            yield (f'<polyline fill="none" stroke="{colour}" '
                   f'stroke-width="1.8"{dashes} points="{way}"/>')
        for x, (y, low, high) in points.items():
            words = f"{escape(name)}, {self.x_text(x)}: {self.y_text(y)}"
            if low < high:
                yield line(ax(x), ay(low), ax(x), ay(high), colour,
                           ' stroke-width="1.2"')
                words += f" ({self.y_text(low)} to {self.y_text(high)})"
            yield (f'<circle cx="{ax(x):.1f}" cy="{ay(y):.1f}" r="3" '
                   f'fill="{colour}"><title>{words}</title></circle>')


class Bars:
    """A plot with a bar for each value. groups: [(title, [(name, value, low,
    high, remark)])]."""

    BAR, GAP, NAMES, REMARKS = 17, 12, 190, 190

    def __init__(self, groups, value_text, width=720):
        self.groups, self.value_text = groups, value_text
        self.size = (width, sum(len(bars) * self.BAR + self.GAP + 16
                                for _, bars in groups))

    def draw(self, colours, left=0, top=0):
        ax = Axis([bar[3] for _, bars in self.groups for bar in bars],
                  left + self.NAMES, left + self.size[0] - self.REMARKS,
                  False, True)
        y = top + 4
        for title, bars in self.groups:
            yield text(left + 4, y + 12, escape(title), "start",
                       ' class="strong"')
            y += 18
            for bar in bars:
                yield from self.one(bar, colours, ax, y)
                y += self.BAR
            y += self.GAP - 2

    def one(self, bar, colours, ax, y):
        name, value, low, high, remark = bar
        yield text(ax.start - 8, y + 12, escape(name), "end")
        yield (f'<rect x="{ax.start}" y="{y + 2}" height="{self.BAR - 5}" '
               f'width="{max(1, ax(value) - ax.start):.1f}" '
               f'fill="{colours[name]}" fill-opacity=".85"/>')
        if high > low:
            yield line(ax(low), y + self.BAR / 2 - .5, ax(high),
                       y + self.BAR / 2 - .5, "var(--ink)")
        yield text(max(ax(value), ax(high)) + 6, y + 12,
                   self.value_text(value) + remark, "start")


def picture(plot, colours):
    """Returns a plot as a part of a page."""
    width, height = plot.size
    return (f'<svg viewBox="0 0 {width} {height}" role="img">'
            + "".join(plot.draw(colours)) + "</svg>")


def legend(names, colours, width):
    """Returns ([parts], height) of a legend, in as many lines as needed."""
    parts, x, y = [], 58, 16
    for name in names:
        wide = 42 + 6.2 * len(name)
        if x + wide > width and x > 58:
            x, y = 58, y + 18
        parts.append(line(x, y, x + 18, y, colours[name], ' stroke-width="3"'))
        parts.append(text(x + 23, y + 4, escape(name), "start"))
        x += wide
    return parts, y + 10


def file_of(plots, colours, columns):
    """Returns a picture for a separate file: plots of the same size, row by
    row, and one legend for all of them."""
    names = list(dict.fromkeys(n for plot in plots for n in plot.series))
    wide, tall = plots[0].size
    width = columns * wide
    parts, above = legend(names, colours, width) if len(names) > 1 else ([], 0)
    height = above + -(-len(plots) // columns) * tall
    for i, plot in enumerate(plots):
        parts += plot.draw(colours, i % columns * wide,
                           above + i // columns * tall)
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
        f'height="{height}" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif">',
        f"<style>{PICTURES}</style>",
        f'<rect width="{width}" height="{height}" fill="var(--paper)"/>',
        *parts, "</svg>\n"])
