"""docs/performance.md: its tables, between markers, and its plots, from figures."""

import os
import re

from . import bars, plot, tables
from .programs import ROOT, Failure

PAGE = os.path.join(ROOT, "docs", "performance.md")
PLOTS = os.path.join(ROOT, "docs", "plots")
TABLES = {
    "machine": tables.machine_table,
    "bars": tables.bars_table,
    "seconds": tables.seconds_table,
    "growth": tables.growth_table,
    "many": tables.many_table,
    "left-out": tables.left_out_list,
}


def write_performance_page(figures):
    with open(PAGE) as file:
        page = file.read()
    for name, make in TABLES.items():
        page = between_markers(page, name, make(figures))
    with open(PAGE, "w") as file:
        file.write(page)
    os.makedirs(PLOTS, exist_ok=True)
    for name, drawn in plots(figures).items():
        with open(os.path.join(PLOTS, name), "w") as file:
            file.write(drawn)


def between_markers(page, name, text):
    pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end -->)", re.DOTALL)
    if not pattern.search(page):
        raise Failure(f"docs/performance.md has no place for the table {name}")
    return pattern.sub(lambda found: f"{found.group(1)}\n{text}\n\n{found.group(2)}", page)


def plots(figures):
    """SVGs by file name; none of what was not measured."""
    drawn = {}
    verdicts = bars.judged(figures)
    if verdicts:
        drawn["bars.svg"] = plot.bars(verdicts, "Ratios, and how far they are from their bars")
    for operation in ("create", "lookup", "unlink"):
        series = {
            place: [(int(number), tables.median(samples, operation)) for number, samples in by_number.items()]
            for place, by_number in figures["entries"].items()
        }
        if series:
            title = f"Cost of one {operation} by the number of files in the workspace"
            drawn[f"{operation}.svg"] = plot.curves(series, title, "files", "µs")
    mounts = {int(number): samples for number, samples in figures["mounts"].items()}
    if mounts:
        series = {
            operation: [(number, tables.median(samples, operation)) for number, samples in mounts.items()]
            for operation in ("create", "lookup", "unlink")
        }
        title = "Costs in one fork by the number of mounts"
        drawn["mounts.svg"] = plot.curves(series, title, "mounts", "µs")
        title = "Memory of the daemon by the number of mounts"
        points = [(number, tables.median(samples, "memory_bytes") / tables.MIB) for number, samples in mounts.items()]
        drawn["memory.svg"] = plot.curves({"daemon": points}, title, "mounts", "MiB")
    return drawn
