"""Figures as Markdown tables."""

import statistics

from . import bars
from .growth import idle_mount
from .programs import Failure

MIB = 1 << 20


def table(headings, rows):
    lines = ["| " + " | ".join(headings) + " |", "|---|" + "---:|" * (len(headings) - 1)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def place_names(figures):
    """Those that were measured, ext4 first, in the order in which they came."""
    names = []
    for by_place in figures["seconds"].values():
        names += [name for name in by_place if name not in names]
    return sorted(names, key=lambda name: (name != "ext4", name.startswith("tine"), name))


def seconds_table(figures):
    names = place_names(figures)
    rows = []
    for what, by_place in figures["seconds"].items():
        reference = by_place.get("ext4")
        rows.append([what, *(cell(by_place.get(name), reference) for name in names)])
    return table(["seconds: median (minimum to maximum), ratio to ext4", *names], rows)


def cell(samples, reference):
    if not samples:
        return "–"
    median = statistics.median(samples)
    ratio = f", **{short(median / statistics.median(reference))}**" if reference and reference is not samples else ""
    spread = f" ({short(min(samples))} to {short(max(samples))})" if len(samples) > 1 else ""
    return f"{short(median)}{spread}{ratio}"


def short(number):
    """Three digits, no more."""
    if number >= 100:
        return f"{number:.0f}"
    if number >= 10:
        return f"{number:.1f}"
    return f"{number:.2f}" if number >= 1 else f"{number:.3g}"


def bars_table(figures):
    rows = []
    for one in bars.judged(figures):
        limit = f"{one['limit']:g}" + (f" (hoped for: {one['stretch']:g})" if one["stretch"] else "")
        rows.append([one["name"], short(one["ratio"]), short(one["of_minima"]), limit, said(one["met"])])
    for name, value, limit in memory_bars(figures):
        rows.append([name, f"{value / MIB:.1f} MiB", "", f"{limit // MIB} MiB", said(value <= limit)])
    return table(["measured : compared with", "ratio of medians", "of minima", "bar", "met"], rows)


def said(met):
    return "yes" if met else "**no**"


def memory_bars(figures):
    """Name, bytes and limit of each."""
    found = []
    if figures["memory"]:
        read = statistics.median(one["walked_and_read"] for one in figures["memory"])
        mapped = statistics.median(one["of_it_mapped_files"] for one in figures["memory"])
        name = f"memory of the daemon, one mount walked and read ({mapped / MIB:.1f} MiB of it mapped files)"
        found.append((name, read, bars.WALKED_LIMIT))
    memory = {int(number): median(samples, "memory_bytes") for number, samples in figures["mounts"].items()}
    try:
        found.append(("memory of a further idle mount", idle_mount(memory), bars.IDLE_LIMIT))
    except Failure:
        pass
    return found


def median(samples, key):
    return statistics.median(sample[key] for sample in samples)


def growth_table(figures):
    rows = []
    for place, by_number in figures["entries"].items():
        for number, samples in by_number.items():
            costs = [short(median(samples, operation)) for operation in ("create", "lookup", "unlink")]
            rows.append([f"{place}, {int(number):,} files", *costs, "", ""])
    for number, samples in figures["mounts"].items():
        costs = [short(median(samples, operation)) for operation in ("create", "lookup", "unlink")]
        new = f"{median(samples, 'new_seconds') * 1000:.0f}"
        rows.append([f"tine, {number} {'mount' if number == '1' else 'mounts'}", *costs, new, f"{median(samples, 'memory_bytes') / MIB:.1f}"])
    return table(["where", "create, µs", "lookup, µs", "unlink, µs", "`tine new`, ms", "daemon, MiB"], rows)


def many_table(figures):
    """Of many workspaces at once what each takes, and the daemon's memory for all."""
    rows = []
    for place, samples in figures.get("many", {}).items():
        for one in samples:
            number = one["number"]
            new, status = (statistics.median(one[key]) * 1000 for key in ("new_seconds", "status_seconds"))
            disk, memory = (
                [one[when].get(what) for when in ("fresh", "used")] for what in ("disk_bytes", "memory_bytes")
            )
            rows.append([
                f"{place}, {number} at once",
                f"{new:.0f}",
                f"{status:.0f}",
                *(short(taken / number / 1024) for taken in disk),
                *(short(taken / MIB) if taken else "–" for taken in memory),
            ])
    headings = [
        "where",
        "new, ms",
        "first `git status`, ms",
        "disk for each, KiB",
        "in use",
        "daemon for all, MiB",
        "in use",
    ]
    return table(headings, rows) if rows else "Not measured."


def machine_table(figures):
    about = figures["machine"]
    rows = [
        ["processor", f"{about['processor']}, {about['cores']} cores"],
        ["virtualisation", about["virtualisation"]],
        ["memory", f"{about['memory_gib']} GiB"],
        ["kernel", f"Linux {about['kernel']}"],
        ["file system", about["file_system"]],
        ["repository", f"{figures['repository']['name']}, {figures['repository']['files']:,} files"],
        ["rounds", str(figures["rounds"])],
        ["load before", f"{figures['load_before']}"],
    ]
    rows += [[name, version] for name, version in about["versions"].items() if version]
    return table(["what", "which"], rows).replace("---:", "---")


def left_out_list(figures):
    lines = [f"- {one['what']} in {one['place']}: {one['why']}" for one in figures["left_out"]]
    return "\n".join(lines) or "Nothing."
