# SPDX-License-Identifier: Apache-2.0
"""Plots and tables of the results of perf/sim/run.

The closed forms here do not use the schedules, so they check them.
"""

import math
import os
import re
import statistics
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "..", "tools", "report"))
import pages  # noqa: E402

MACHINES = ("rails400", "rails200", "ethernet25")


# -- closed forms --------------------------------------------------------------

def choose_ratio(n, m, k):
    """Returns (n choose k) / (m choose k)."""
    if n < k:
        return 0.0
    return math.prod((n - i) / (m - i) for i in range(k))


def expected_rows(nodes, per_node, experts, topk, limited=None):
    """Returns how many rows of a token leave its node, for uniform routing
    without replacement: one for each assignment (plain), rank (ranks) or node
    (dedup), one for each node with a single expert of the token (alone), and
    one for every node (allgather)."""
    ranks = nodes * per_node
    at = experts if limited is None else experts * limited // nodes
    within = nodes if limited is None else limited
    # Nodes with experts of a token, of `within`; its own node is one of them
    # in 1 of `nodes` cases.
    touched = within * (1 - choose_ratio(at - experts // nodes, at, topk))
    on_node = experts // nodes
    alone = within * on_node * topk / (at - topk + 1) * (
        choose_ratio(at - on_node, at, topk - 1))
    ranks_touched = within * per_node * (
        1 - choose_ratio(at - experts // ranks, at, topk))
    away = (nodes - 1) / nodes
    return {"plain": topk * away, "ranks": ranks_touched * away,
            "dedup": touched * away, "alone": alone * away,
            "allgather": nodes - 1}


def exact_sums(rows):
    """Returns the bytes of a combine with exact sums, relative to a combine
    with an f32 sum for each (token, node), and to one with a bf16 row for each
    assignment."""
    several = rows["dedup"] - rows["alone"]
    exact = 2 * several + rows["alone"]
    return exact / (2 * rows["dedup"]), exact / rows["plain"]


def break_even(machine, ranks, per_node, window):
    """Returns the bytes of a rank up to which two levels are faster. With one
    message at a time (window 1), the times of bytes and latencies add up. With
    many, the flat exchange takes the longer of the two.

    Two levels make three more copies: into packages for local peers, into
    those for rail peers, and out of these.
    """
    n, m = ranks, per_node
    if window == 1:
        alpha = machine["post"] + machine["latency_far"]
    else:
        alpha = machine["post"] + machine["take"]
    more = ((m - 1) * (1 / m - 1 / n) / machine["inside"]
            + 3 / machine["copy"])
    if window == 1:
        return (n - m - n / m + 1) * alpha / more
    port = machine["nic"] / (m if machine["nic_of_node"] else 1)
    return (n - m) * alpha / ((n - m) / n / port + more)


# -- reading -------------------------------------------------------------------

class Results:
    """The results of commands that finished, found by their fields."""

    def __init__(self, by_command):
        self.rows = [r for r in by_command.values()
                     if "late_s" not in r and r.get("operation") != "machine"]
        self.machines = {name: by_command[key] for name, key in
                         ((n, f"machine --machine {n}") for n in MACHINES)
                         if key in by_command}
        self.by_command = by_command

    def find(self, **want):
        want = {"engine": "ports", "window": 16, **want}
        return [r for r in self.rows
                if all(r.get(k) == v for k, v in want.items())]

    def time(self, **want):
        """Returns microseconds, or None if there is no such result."""
        found = self.find(**want)
        if not found:
            return None
        times = {r["time_us"] for r in found}
        assert len(times) == 1, want
        return times.pop()

    def exchange(self, modes, narrow=False, **want):
        """Returns the times of dispatch and combine in their modes, or None if
        one is missing."""
        hidden = 7168
        size = 2 * hidden if narrow else 4 * hidden
        parts = []
        for op, mode in zip(("dispatch", "combine"), modes):
            found = [r for r in self.find(operation=op, mode=mode, **want)
                     if "--chunk" not in r["command"]
                     and (op == "dispatch" or mode not in ("nodes", "allgather")
                          or r["sum_bytes"] == size)]
            if not found:
                return None
            parts.append(found[0]["time_us"])
        return parts


# (name, (mode of dispatch, mode of combine), whether sums are rounded)
NAMES = [("plain", ("plain", "plain"), False),
         ("ranks", ("ranks", "ranks"), False),
         ("2dh", ("2dh", "2dh"), False),
         ("nodes, plain back", ("nodes", "plain"), False),
         ("nodes", ("nodes", "nodes"), False),
         ("nodes, bf16 sums", ("nodes", "nodes"), True),
         ("allgather", ("allgather", "allgather"), False),
         ("allgather, bf16 sums", ("allgather", "allgather"), True)]


# -- tables --------------------------------------------------------------------

def table(head, lines, align=None):
    out = ["| " + " | ".join(head) + " |",
           "|" + "|".join(align or ["---"] + ["---:"] * (len(head) - 1)) + "|"]
    out += ["| " + " | ".join(str(c) for c in line) + " |" for line in lines]
    return "\n".join(out)


def micro(value):
    """Formats a time in microseconds with about three digits."""
    if value is None:
        return ""
    if value >= 9995:
        return f"{value / 1000:.1f} ms" if value < 99950 \
            else f"{value / 1000:.0f} ms"
    return f"{value:.0f}" if value >= 99.95 else f"{value:.1f}"


def number(value):
    """Formats a number in short form: 10, 2.5, 64Ki."""
    for limit, unit in ((1 << 20, "Mi"), (1 << 10, "Ki")):
        if value >= limit and value % limit == 0:
            return f"{value // limit:g}{unit}"
    return f"{value:g}"


def bytes_text(size):
    return number(size) + "B"


def rows_table(results):
    lines = []
    for routing, limited in (("uniform", None), ("limited:2", 2)):
        for r in sorted(results.find(operation="rows", routing=routing),
                        key=lambda r: r["nodes"]):
            if r["nodes"] == limited:
                continue
            want = expected_rows(r["nodes"], 8, r["experts"], r["topk"],
                                 limited)
            cells = [routing, r["nodes"], r["experts"]]
            for key in ("plain", "ranks", "dedup", "alone"):
                have = r[key] / r["all_tokens"]
                cells.append(f"{have:.3f} ({want[key]:.3f})")
            cells.append(r["nodes"] - 1)
            cells += [f"{have:.2f} ({should:.2f})" for have, should in
                      zip(exact_sums(r), exact_sums(want))]
            lines.append(cells)
    for r in sorted(results.find(operation="rows", routing="zipf:0.8"),
                    key=lambda r: r["nodes"]):
        lines.append([r["routing"], r["nodes"], r["experts"]]
                     + [f"{r[k] / r['all_tokens']:.3f}"
                        for k in ("plain", "ranks", "dedup", "alone")]
                     + [r["nodes"] - 1]
                     + [f"{share:.2f}" for share in exact_sums(r)])
    return table(["routing", "nodes", "experts", "plain", "rank dedup",
                  "node dedup", "alone", "all-gather", "exact / f32 sums",
                  "exact / plain"], lines)


def alltoallv_table(results):
    lines = []
    for machine in results.machines:
        for ranks in (64, 256, 1024, 2048):
            cells = [machine, ranks]
            for size in (64, 1024, 4096, 16384, 65536, 262144):
                times = [results.time(operation="alltoallv", machine=machine,
                                      ranks=ranks, bytes=size, spread=2,
                                      carry=c) for c in (0, -1)]
                if None in times:
                    cells.append("")
                    continue
                text = [micro(t) for t in times]
                best = times.index(min(times))
                text[best] = f"**{text[best]}**"
                cells.append(" / ".join(text))
            lines.append(cells)
    return table(["machine", "ranks"] + [bytes_text(s) for s in
                 (64, 1024, 4096, 16384, 65536, 262144)], lines)


def exchange_table(results, machine, tokens):
    lines = []
    for routing in ("uniform", "zipf:0.8", "limited:4"):
        for ranks in (64, 256, 1024):
            cells, sums = [routing, ranks], []
            for _, modes, narrow in NAMES:
                parts = results.exchange(modes, narrow, machine=machine,
                                         ranks=ranks, tokens=tokens,
                                         routing=routing)
                sums.append(sum(parts) if parts else None)
                cells.append(" + ".join(micro(p) for p in parts)
                             if parts else "")
            have = [s for s in sums if s is not None]
            if not have:
                continue
            best = sums.index(min(have))
            cells[2 + best] = f"**{cells[2 + best]}**"
            lines.append(cells)
    return table(["routing", "ranks"] + [n for n, _, _ in NAMES], lines)


def best_table(results):
    """Tabulates the fastest mode, and how many times as fast as plain it is."""
    lines = []
    for machine in results.machines:
        for tokens in (128, 1024):
            for routing in ("uniform", "zipf:0.8", "limited:4"):
                cells = [machine, tokens, routing]
                for ranks in (64, 256, 1024):
                    times = {}
                    for name, modes, narrow in NAMES:
                        parts = results.exchange(modes, narrow, machine=machine,
                                                 ranks=ranks, tokens=tokens,
                                                 routing=routing)
                        if parts:
                            times[name] = sum(parts)
                    if "plain" not in times or len(times) < 2:
                        cells.append("")
                        continue
                    name = min(times, key=times.get)
                    exact = {n: t for n, t in times.items()
                             if "bf16" not in n}
                    second = min(exact, key=exact.get)
                    text = f"{name} {times['plain'] / times[name]:.2f}"
                    if second != name:
                        text += f"; {second} " \
                                f"{times['plain'] / exact[second]:.2f}"
                    cells.append(text)
                if any(cells[3:]):
                    lines.append(cells)
    return table(["machine", "tokens", "routing", "64 ranks", "256", "1024"],
                 lines, ["---", "---:"] + ["---"] * 4)


def plan_times(results, machine, ranks, levels):
    """Returns the times of records with counts, and of the three exchanges
    that are needed without."""
    def time(operation, **more):
        found = results.find(operation=operation, machine=machine, ranks=ranks,
                             mode="nodes", two_level=levels, **more)
        return found[0]["time_us"] if found else math.nan

    return (time("plan", counts=True),
            time("plan", counts=False) + time("columns") + time("starts"))


def plan_table(results):
    lines = []
    for machine in results.machines:
        for ranks in (64, 256, 1024):
            found = results.find(operation="plan", machine=machine, ranks=ranks,
                                 mode="nodes", counts=True)
            if not found:
                continue
            cells = [machine, ranks, found[0]["record"]]
            for levels in (False, True):
                cells += [micro(t) if not math.isnan(t) else "" for t in
                          plan_times(results, machine, ranks, levels)]
            for tokens in (128, 1024):
                parts = results.exchange(("nodes", "nodes"), machine=machine,
                                         ranks=ranks, tokens=tokens,
                                         routing="uniform")
                cells.append(micro(parts[0]) if parts else "")
            lines.append(cells)
    return table(["machine", "ranks", "record, B", "flat", "without counts",
                  "two levels", "without counts", "dispatch of 128 tokens",
                  "of 1024 tokens"], lines)


def crossing(results, machine, ranks, window):
    """Returns the bytes of a rank at which flat and two levels take the same
    time: from there on, flat is never slower."""
    ratio = {}
    for r in results.find(operation="alltoallv", machine=machine, ranks=ranks,
                          window=window, spread=1):
        ratio.setdefault(r["bytes"], {})[r["carry"]] = r["time_us"]
    points = sorted((size, math.log(t[0] / t[-1]))
                    for size, t in ratio.items() if len(t) == 2)
    if not points:
        return math.nan
    for (s0, r0), (s1, r1) in reversed(list(zip(points, points[1:]))):
        if r0 > 0 >= r1:
            share = r0 / (r0 - r1)
            return ranks * s0 * (s1 / s0) ** share
    return None


def break_even_table(results):
    lines = []
    for name, machine in results.machines.items():
        for ranks in (64, 256, 1024):
            cells = [name, ranks]
            for window in (1, 16):
                have = crossing(results, name, ranks, window)
                want = break_even(machine, ranks, 8, window)
                if have is None:
                    cells += ["none", f"{want / 1e6:.2f}", ""]
                elif math.isnan(have):
                    cells += ["", f"{want / 1e6:.2f}", ""]
                else:
                    cells += [f"{have / 1e6:.2f}", f"{want / 1e6:.2f}",
                              f"{have / want:.2f}"]
            lines.append(cells)
    return table(["machine", "ranks", "1 at once: simulated", "S*", "ratio",
                  "16 at once: simulated", "S*, overlapped", "ratio"], lines)


def bound_table(results):
    """Tabulates times divided by that of the busiest port alone."""
    lines = []
    for ranks in (64, 256, 1024):
        cells = [ranks]
        for mode in ("plain", "2dh", "nodes"):
            for op in ("dispatch", "combine"):
                found = [r for r in results.find(
                    operation=op, machine="rails400", ranks=ranks, tokens=1024,
                    routing="uniform", mode=mode)
                    if "--narrow" not in r["command"]
                    and "--chunk" not in r["command"]]
                cells.append(f"{found[0]['time_us'] / found[0]['port_us']:.2f}"
                             if found else "")
        if any(cells[1:]):
            lines.append(cells)
    return table(["ranks", "plain dispatch", "combine", "2dh dispatch",
                  "combine", "nodes dispatch", "combine"], lines)


def without_engine(command):
    return command.replace(" --engine simgrid", "")


def agreements(results):
    """Yields (row of ports, row of SimGrid) of the same command."""
    for r in results.rows:
        if r["engine"] == "simgrid":
            other = results.by_command.get(without_engine(r["command"]))
            if other and "time_us" in other:
                yield other, r


def agreement_table(results):
    groups = {}
    for ports, simgrid in agreements(results):
        kind = ports["operation"]
        kind = "alltoallv" if kind == "alltoallv" else "dispatch, combine"
        key = (ports["machine"], ports["ranks"], kind)
        groups.setdefault(key, []).append(
            (ports["time_us"] / simgrid["time_us"], ports["command"]))
    lines = []
    for (machine, ranks, kind), ratios in sorted(
            groups.items(), key=lambda g: (g[0][2], g[0][0], g[0][1])):
        values = sorted(r for r, _ in ratios)
        far = max(ratios, key=lambda r: abs(math.log(r[0])))
        lines.append([kind, machine, ranks, len(values),
                      f"{statistics.median(values):.3f}",
                      f"{values[0]:.2f} to {values[-1]:.2f}",
                      re.sub(r"--(machine|nodes|experts|spread) \S+ ?", "",
                             far[1])])
    return table(["exchange", "machine", "ranks", "runs", "median", "all",
                  "the farthest"], lines,
                 ["---", "---", "---:", "---:", "---:", "---", "---"])


def order_text(results):
    """Writes in how many cases both engines find the same variant faster."""
    groups = {}
    for ports, simgrid in agreements(results):
        key = tuple(ports.get(k) for k in ("operation", "machine", "ranks",
                                           "bytes", "tokens", "routing"))
        groups.setdefault(key, []).append((ports["time_us"],
                                           simgrid["time_us"]))
    pairs = [(a, b) for g in groups.values() for i, a in enumerate(g)
             for b in g[:i]]
    other = sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for a, b in pairs)
    return (f"Of {len(pairs)} pairs of algorithms that both were asked about,\n"
            f"{len(pairs) - other} come in the same order by both.")


def window_table(results):
    windows = (1, 2, 4, 8, 16, 32, 64)
    lines = []
    for mode in ("plain", "2dh", "nodes"):
        cells = [mode]
        for window in windows:
            found = [r for r in results.find(
                operation="dispatch", machine="rails400", ranks=256,
                tokens=1024, routing="uniform", mode=mode, window=window)
                if "--chunk" not in r["command"]]
            cells.append(micro(found[0]["time_us"]) if found else "")
        lines.append(cells)
    return table(["messages at once"] + [str(w) for w in windows], lines)


def chunk_table(results):
    chunks = (15, 30, 60, 120, 240, 480, 960)
    lines = []
    for tokens in (128, 1024):
        cells = [f"{tokens} tokens"]
        for chunk in chunks:
            found = [r for r in results.find(operation="dispatch", ranks=256,
                                             tokens=tokens)
                     if f"--chunk {chunk * 1024}" in r["command"]]
            cells.append(micro(found[0]["time_us"]) if found else "")
        lines.append(cells)
    return table(["chunk, KiB"] + [str(c) for c in chunks], lines)


# -- plots ---------------------------------------------------------------------

COLOURS = {
    "plain": "var(--soft)", "ranks": "var(--d)", "2dh": "var(--b)",
    "nodes": "var(--a)", "nodes, bf16 sums": "var(--e)",
    "nodes, plain back": "var(--ink)",
    "allgather": "var(--c)", "allgather, bf16 sums": "var(--f)",
    "flat": "var(--soft)", "up to 16 KiB carried": "var(--a)",
    "all carried": "var(--b)",
}


def panel(title, series, x_name, y_name, x_text="{:g}".format, **more):
    """Returns a plot of series, {name: [(x, y)]}."""
    return pages.Lines({name: {x: (y, y, y) for x, y in sorted(points)}
                        for name, points in series.items()},
                       x_name, x_text, "{:g}".format, title, y_name,
                       size=(330, 230), **more)


def save(path, panels, columns):
    panels = [p for p in panels if any(p.series.values())]
    with open(path, "w", encoding="utf-8") as file:
        file.write(pages.file_of(panels, COLOURS, columns))


def weak_plot(results, path):
    panels = []
    for routing in ("uniform", "limited:4"):
        series = {}
        for name, modes, narrow in NAMES:
            points = []
            for nodes in (2, 4, 8, 16, 32, 64, 128):
                parts = results.exchange(modes, narrow, machine="rails400",
                                         nodes=nodes, tokens=1024,
                                         routing=routing)
                if parts:
                    points.append((8 * nodes, sum(parts) / 1000))
            if points and (routing == "uniform" or
                           modes[0] in ("plain", "nodes")):
                series[name] = points
        what = {"uniform": "uniform", "limited:4": "at most 4 nodes a token"}
        panels.append(panel(what[routing], series, "ranks",
                            "dispatch + combine, ms"))
    save(path, panels, 2)


def exchange_plot(results, machine, path):
    panels = []
    for tokens in (128, 1024):
        for routing in ("uniform", "zipf:0.8", "limited:4"):
            series = {}
            for name, modes, narrow in NAMES[1:]:
                points = []
                for ranks in (64, 256, 1024):
                    want = {"machine": machine, "ranks": ranks,
                            "tokens": tokens, "routing": routing}
                    plain = results.exchange(("plain", "plain"), **want)
                    parts = results.exchange(modes, narrow, **want)
                    if plain and parts:
                        points.append((ranks, sum(plain) / sum(parts)))
                if points:
                    series[name] = points
            panels.append(panel(f"{tokens} tokens, {routing}", series,
                                "ranks", "times as fast as plain", level=1))
    save(path, panels, 3)


def alltoallv_plot(results, path):
    panels = []
    for machine in results.machines:
        for ranks in (64, 1024):
            series = {}
            for name, carry in (("flat", 0), ("up to 16 KiB carried", 16384),
                                ("all carried", -1)):
                points = [(r["bytes"], r["time_us"]) for r in results.find(
                    operation="alltoallv", machine=machine, ranks=ranks,
                    carry=carry, spread=2)]
                if points:
                    series[name] = sorted(points)
            panels.append(panel(f"{machine}, {ranks} ranks", series,
                                "bytes of a block", "µs", number))
    save(path, panels, 2)


def agreement_plot(results, path):
    kinds = {}
    for ports, simgrid in agreements(results):
        name = ports.get("mode") or ("flat" if ports["carry"] == 0
                                     else "all carried")
        kinds.setdefault(name, []).append(
            (simgrid["time_us"], ports["time_us"] / simgrid["time_us"]))
    if kinds:
        save(path, [panel("ports / SimGrid", kinds, "time by SimGrid, µs",
                          "ratio", log_y=False, zero=False, level=1,
                          dots=True)], 1)


# -- the page ------------------------------------------------------------------

def fill(page, name, text):
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    if begin not in page:
        return page
    before, rest = page.split(begin, 1)
    _, after = rest.split(end, 1)
    return f"{before}{begin}\n{text}\n{end}{after}"


def make(by_command, docs):
    """docs/scaling.md's tables, and docs/scaling/*.svg."""
    results = Results(by_command)
    folder = os.path.join(docs, "scaling")
    os.makedirs(folder, exist_ok=True)
    weak_plot(results, os.path.join(folder, "nodes.svg"))
    for machine in results.machines:
        exchange_plot(results, machine, os.path.join(folder, machine + ".svg"))
    alltoallv_plot(results, os.path.join(folder, "alltoallv.svg"))
    agreement_plot(results, os.path.join(folder, "agreement.svg"))
    path = os.path.join(docs, "scaling.md")
    if not os.path.exists(path):
        return
    with open(path, encoding="utf-8") as file:
        page = file.read()
    parts = {
        "rows": rows_table(results),
        "alltoallv": alltoallv_table(results),
        "best": best_table(results),
        "exchange 128": exchange_table(results, "rails400", 128),
        "exchange 1024": exchange_table(results, "rails400", 1024),
        "plan": plan_table(results),
        "break-even": break_even_table(results),
        "bound": bound_table(results),
        "agreement": agreement_table(results),
        "order": order_text(results),
        "window": window_table(results),
        "chunk": chunk_table(results),
    }
    for name, text in parts.items():
        page = fill(page, name, text)
    with open(path, "w", encoding="utf-8") as file:
        file.write(page)
