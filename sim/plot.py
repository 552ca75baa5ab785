# SPDX-License-Identifier: Apache-2.0
"""Line plots as SVG, in panels; of nothing but text."""

import html
import math

COLOURS = {
    "plain": "#666666", "ranks": "#b07aa1", "2dh": "#f28e2b",
    "nodes": "#4e79a7", "nodes, bf16 sums": "#76b7b2", "allgather": "#e15759",
    "allgather, bf16 sums": "#ff9da7",
    "flat": "#666666", "up to 16 KiB carried": "#4e79a7", "all carried":
    "#f28e2b",
}
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 330, 230, 58, 30, 12, 40


def number(value):
    """10, 2.5, 64K; short."""
    for limit, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if value >= limit and value % limit == 0:
            return f"{value // limit:g}{unit}"
    return f"{value:g}"


def ticks(low, high, log):
    if not log:
        step = 10 ** math.floor(math.log10((high - low) / 3))
        while (high - low) / step > 6:
            step *= 2 if step * 2 * 6 >= high - low else 5
        first = math.ceil(low / step)
        return [round(i * step, 9)
                for i in range(first, math.floor(high / step) + 1)]
    decades = math.log10(high / low)
    steps = ((1,) if decades > 2.5 else (1, 3) if decades > 1.2
             else (1, 2, 5) if decades > .6 else (1, 1.5, 2, 3, 4, 5, 7))
    return [s * 10.0 ** d
            for d in range(math.floor(math.log10(low)) - 1,
                           math.ceil(math.log10(high)) + 1)
            for s in steps if low * .999 <= s * 10.0 ** d <= high * 1.001]


class Panel:
    """series: name -> [(x, y)]; x is always logarithmic, its ticks are the
    points' unless these are dots, and sizes if so."""

    def __init__(self, title, series, x_name, y_name, log=True, line=None,
                 dots=False, sizes=False):
        self.sizes = sizes
        self.title, self.series = title, series
        self.x_name, self.y_name = x_name, y_name
        self.log, self.line, self.dots = log, line, dots

    def bounds(self):
        points = [p for s in self.series.values() for p in s]
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if self.line is not None:
            ys.append(self.line)
        low, high = min(ys), max(ys)
        if self.log:
            low, high = low / 1.15, high * 1.15
        else:
            margin = (high - low or high) * .06
            low, high = low - margin, high + margin
        return min(xs), max(xs), low, high

    def draw(self, out, left, top):
        x0, x1, y0, y1 = self.bounds()
        wide, tall = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

        def at_x(x):
            share = math.log(x / x0) / math.log(x1 / x0) if x1 > x0 else .5
            return left + LEFT + 8 + share * (wide - 16)

        def at_y(y):
            share = (math.log(y / y0) / math.log(y1 / y0) if self.log
                     else (y - y0) / (y1 - y0))
            return top + TOP + (1 - share) * tall

        def text(x, y, what, anchor="middle", more=""):
            out.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
                       f'{more}>{html.escape(what)}</text>')

        text(left + LEFT + wide / 2, top + TOP - 10, self.title,
             more=' font-weight="bold"')
        out.append(f'<rect x="{left + LEFT}" y="{top + TOP}" width="{wide}" '
                   f'height="{tall}" fill="none" stroke="#999"/>')
        for y in ticks(y0, y1, self.log):
            out.append(f'<path d="M{left + LEFT} {at_y(y):.1f}h{wide}" '
                       'stroke="#e4e4e4"/>')
            text(left + LEFT - 5, at_y(y) + 4, f"{y:g}", "end")
        every = sorted({x for s in self.series.values() for x, _ in s})
        if self.dots:
            every = ticks(x0, x1, True)
        last = -1e9
        for x in every:
            if at_x(x) - last < 34:
                continue
            last = at_x(x)
            out.append(f'<path d="M{last:.1f} {top + TOP + tall}v4" '
                       'stroke="#999"/>')
            text(last, top + TOP + tall + 16,
                 number(x) if self.sizes else f"{x:g}")
        text(left + LEFT + wide / 2, top + HEIGHT - 8, self.x_name)
        x, y = left + 14, top + TOP + tall / 2
        text(x, y, self.y_name, more=f' transform="rotate(-90 {x} {y:.1f})"')
        if self.line is not None:
            out.append(f'<path d="M{left + LEFT} {at_y(self.line):.1f}h{wide}" '
                       'stroke="#333" stroke-dasharray="4 3"/>')
        for name, points in self.series.items():
            colour = COLOURS.get(name, "#4e79a7")
            if not self.dots:
                path = "L".join(f"{at_x(x):.1f} {at_y(y):.1f}"
                                for x, y in sorted(points))
                out.append(f'<path d="M{path}" fill="none" stroke="{colour}" '
                           'stroke-width="2"/>')
            for x, y in points:
                out.append(f'<circle cx="{at_x(x):.1f}" cy="{at_y(y):.1f}" '
                           f'r="3" fill="{colour}"/>')


def save(path, panels, columns):
    """Panels row by row, and one legend for all of them."""
    panels = [p for p in panels if any(p.series.values())]
    names = list(dict.fromkeys(n for p in panels for n in p.series))
    width = columns * WIDTH
    places, x, row = [], LEFT, 0
    for name in names:
        wide = 42 + 6.2 * len(name)
        if x + wide > width and x > LEFT:
            x, row = LEFT, row + 1
        places.append((x, 16 + 18 * row))
        x += wide
    legend = 0 if len(names) < 2 else 26 + 18 * row
    height = legend + -(-len(panels) // columns) * HEIGHT
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" '
           f'height="{height}" viewBox="0 0 {width} {height}" '
           'font-family="sans-serif" font-size="11" fill="#222">',
           f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for name, (x, y) in zip(names, places) if legend else ():
        out.append(f'<path d="M{x:.0f} {y}h18" stroke-width="3" '
                   f'stroke="{COLOURS.get(name, "#4e79a7")}"/>')
        out.append(f'<text x="{x + 23:.0f}" y="{y + 4}">{html.escape(name)}'
                   '</text>')
    for i, panel in enumerate(panels):
        panel.draw(out, i % columns * WIDTH, legend + i // columns * HEIGHT)
    out.append("</svg>\n")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(out))
