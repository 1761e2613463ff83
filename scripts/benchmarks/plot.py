"""Plain SVGs: how far from its bar each ratio is, and how costs grow. Readable on light and on dark."""

import math
from html import escape

STYLE = """
text { font: 12px system-ui, sans-serif; fill: #768390; }
.title { font-size: 15px; font-weight: 600; }
.met { fill: #218bff; } .missed { fill: #e16f24; }
.grid { stroke: #8c959f; stroke-opacity: .25; } .bar { stroke: #768390; stroke-dasharray: 4 3; }
.line { fill: none; stroke-width: 2; }
@media (prefers-color-scheme: light) { text { fill: #57606a; } .title { fill: #24292f; } }
@media (prefers-color-scheme: dark) { text { fill: #9da7b3; } .title { fill: #e6edf3; } }
"""
# Told apart also by who sees red and green as one, on white and on black; so are "met" and "missed".
COLOURS = ["#8c959f", "#218bff", "#e16f24", "#a475f9"]
WIDTH = 860


def svg(height, parts, label):
    size = f'viewBox="0 0 {WIDTH} {height}"'
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(label)}">'
    return f"{opening}<style>{STYLE}</style>\n" + "\n".join(parts) + "\n</svg>\n"


def text(x, y, said, kind="", anchor="start"):
    attribute = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{attribute}>{escape(said)}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def number(value):
    return f"{value:.3g}"


def nice(value):
    """The next number that begins with 1, 2 or 5."""
    power = 10 ** math.floor(math.log10(value or 1))
    return next(first * power for first in (1, 2, 5, 10) if first * power >= value * 0.999)


def bars(verdicts, title):
    """A row for each verdict: its ratio over its bar, on a scale of powers of ten; the bar is the dashed line."""
    left, right, top, row = 330, WIDTH - 110, 64, 24
    shares = [max(one["ratio"] / one["limit"], 0.001) for one in verdicts]
    low = math.floor(math.log10(min([0.1, *shares])))
    high = math.log10(max([2, *shares]) * 1.1)

    def across(share):
        return left + (math.log10(share) - low) / (high - low) * (right - left)

    height = top + row * len(verdicts) + 16
    parts = [text(12, 24, title, "title"), text(across(1), 48, "the bar", anchor="middle")]
    for power in range(low, math.floor(high) + 1):
        if power:
            parts.append(line(across(10**power), top - 8, across(10**power), height - 8, "grid"))
            parts.append(text(across(10**power), 48, f"× {number(10**power)}", anchor="middle"))
    for index, (one, share) in enumerate(zip(verdicts, shares)):
        middle = top + row * index + row / 2
        kind = "met" if one["met"] else "missed"
        parts.append(text(left - 10, middle + 4, one["name"], anchor="end"))
        start, end = across(10**low), across(share)
        place = f'x="{start:.1f}" y="{middle - 7:.1f}" width="{max(end - start, 2):.1f}" height="14"'
        parts.append(f'<rect {place} rx="2" class="{kind}"/>')
        said = f"{number(one['ratio'])} of {number(one['limit'])}"
        parts.append(text(WIDTH - 12, middle + 4, said, anchor="end"))
    parts.append(line(across(1), top - 8, across(1), height - 8, "bar"))
    return svg(height, parts, title)


def curves(series, title, across_name, unit):
    """`series`: points (x, y) by name. x on a scale of powers of ten, y from nothing."""
    left, right, top, bottom = 70, WIDTH - 190, 48, 300
    points = [point for one in series.values() for point in one]
    low, high = (math.log10(pick(x for x, _ in points)) for pick in (min, max))
    step = nice(max(y for _, y in points) / 4)
    most = step * 4.5

    def place(x, y):
        share = (math.log10(x) - low) / ((high - low) or 1)
        return left + share * (right - left), bottom - y / most * (bottom - top)

    parts = [text(12, 24, f"{title}, {unit}", "title")]
    parts.append(text((left + right) / 2, bottom + 40, across_name, anchor="middle"))
    for tick in range(5):
        _, at = place(10**low, step * tick)
        parts += [line(left, at, right, at, "grid"), text(left - 8, at + 4, number(step * tick), anchor="end")]
    for x in sorted({x for x, _ in points}):
        at, _ = place(x, 0)
        parts.append(text(at, bottom + 20, f"{x:,}", anchor="middle"))
    labels = []
    for index, (name, one) in enumerate(series.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in sorted(one)))
        parts.append(f'<polyline points="{path}" class="line" stroke="{colour}"/>')
        for point in one:
            x, y = place(*point)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')
        labels.append((place(*max(one))[1], name, colour))
    at = 0
    for y, name, colour in sorted(labels):
        # Labels stand beside the ends of their lines, and not on each other.
        at = max(y, at + 16)
        parts.append(f'<circle cx="{right + 14}" cy="{at:.1f}" r="4" fill="{colour}"/>')
        parts.append(text(right + 24, at + 4, name))
    return svg(bottom + 52, parts, title)
