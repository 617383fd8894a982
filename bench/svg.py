"""Draws plots as small SVG files: bars beside each other on a logarithmic scale, histograms, points, curves, and maps
of a disk. Uses only the standard library."""

import math
from collections.abc import Mapping, Sequence
from html import escape

WIDTH, LEFT, RIGHT, TOP = 860, 190, 90, 64
COLOURS = ["#8c8c8c", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#17becf"]


def bars(title: str, unit: str, groups: Mapping[str, Mapping[str, float]], series: Sequence[str]) -> str:
    """Draws horizontal bars, with a group for each row of a table. A zero or a missing value has no bar."""
    values = [value for group in groups.values() for value in group.values() if value > 0]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    high = max(high, low + 1)
    bar, gap = 13, 14
    height = TOP + sum(bar * len(series) + gap for _ in groups) + 34

    def x(value: float) -> float:
        return LEFT + (math.log10(value) - low) / (high - low) * (WIDTH - LEFT - RIGHT)

    body = []
    for power in range(low, high + 1):
        at = x(10.0**power)
        body.append(f'<line x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{height - 30}" stroke="#ddd"/>')
        body.append(text(at, height - 14, number(10.0**power), "middle"))
    y = TOP
    for name, group in groups.items():
        body.append(text(LEFT - 8, y + bar * len(series) / 2 + 4, name, "end"))
        for place, one in enumerate(series):
            value = group.get(one)
            if value is None:
                continue
            top = y + place * bar
            end = x(value) if value > 0 else LEFT
            body.append(
                f'<rect x="{LEFT}" y="{top}" width="{max(end - LEFT, 1):.1f}" height="{bar - 2}" fill="{COLOURS[place % len(COLOURS)]}"/>'
            )
            body.append(text(end + 4, top + bar - 3, number(value), "start", 10))
        y += bar * len(series) + gap
    return page(f"{title} ({unit}, logarithmic)", series, body, height)


def histogram(title: str, across: str, counts: Mapping[int, int], bins: int = 60) -> str:
    """Draws how often each number occurs, in bins of equal width."""
    low, high = min(counts), max(counts)
    width = max(1, math.ceil((high - low + 1) / bins))
    binned: dict[int, int] = {}
    for value, count in counts.items():
        binned[(value - low) // width] = binned.get((value - low) // width, 0) + count
    height, bottom = 320, 276
    most, steps = max(binned.values()), (high - low) // width + 1
    step = (WIDTH - 70 - 30) / steps
    body = []
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * (bottom - TOP)
        body.append(f'<line x1="70" y1="{y:.1f}" x2="{WIDTH - 30}" y2="{y:.1f}" stroke="#ddd"/>')
        body.append(text(64, y + 4, number(share * most), "end", 10))
    for place, count in sorted(binned.items()):
        tall = count / most * (bottom - TOP)
        body.append(
            f'<rect x="{70 + place * step:.2f}" y="{bottom - tall:.1f}" width="{max(step - 1, 0.6):.2f}" height="{tall:.1f}" fill="{COLOURS[1]}"/>'
        )
    for place in sorted({0, steps // 4, steps // 2, steps * 3 // 4, steps - 1}):
        body.append(text(70 + (place + 0.5) * step, bottom + 16, str(low + place * width), "middle", 10))
    body.append(text(WIDTH / 2, bottom + 34, across, "middle"))
    return page(title, [], body, height)


def scatter(title: str, across: str, upwards: str, series: Mapping[str, Sequence[tuple[float, float]]]) -> str:
    """Draws a small mark for each point. Both axes begin at zero."""
    height, bottom, left, right = 420, 372, 70, WIDTH - 30
    most_x = max((x for points in series.values() for x, _ in points), default=0) or 1
    most_y = max((y for points in series.values() for _, y in points), default=0) or 1
    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - TOP)
        body.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        body.append(text(left - 6, y + 4, number(share * most_y), "end", 10))
        body.append(text(left + share * (right - left), bottom + 16, number(share * most_x), "middle", 10))
    for place, points in enumerate(series.values()):
        marks = (f"M{left + x / most_x * (right - left):.1f} {bottom - y / most_y * (bottom - TOP):.1f}h3" for x, y in points)
        body.append(f'<path d="{"".join(marks)}" stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="3"/>')
    body.append(text(WIDTH / 2, bottom + 34, across, "middle"))
    body.append(text(left, TOP - 8, upwards, "end", 10))
    return page(title, list(series), body, height)


def curves(title: str, across: str, upwards: str, steps: Sequence[str], series: Mapping[str, Sequence[float]]) -> str:
    """Draws a line for each series, with a value for each step. Its name stands in a list below the plot. The lines of
    one colour differ in their dashes."""
    bottom, left, right = 372, 70, WIDTH - 30
    height = bottom + 58 + 18 * len(series)
    most = max((value for values in series.values() for value in values), default=0) or 1
    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        y = bottom - share * (bottom - TOP)
        body.append(f'<line x1="{left}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}" stroke="#ddd"/>')
        body.append(text(left - 6, y + 4, number(share * most), "end", 10))
    step = (right - left) / max(len(steps) - 1, 1)
    body += [text(left + place * step, bottom + 16, name, "middle", 10) for place, name in enumerate(steps)]
    for place, (name, values) in enumerate(series.items()):
        dash = ["", ' stroke-dasharray="7 3"', ' stroke-dasharray="2 3"'][place // len(COLOURS) % 3]
        line = f'fill="none" stroke="{COLOURS[place % len(COLOURS)]}" stroke-width="2"{dash}'
        points = " ".join(f"{left + at * step:.1f},{bottom - value / most * (bottom - TOP):.1f}" for at, value in enumerate(values))
        body.append(f'<polyline points="{points}" {line}/>')
        y = bottom + 62 + 18 * place
        body += [f'<polyline points="{left},{y - 4} {left + 40},{y - 4}" {line}/>', text(left + 50, y, name, "start", 11)]
    body.append(text(WIDTH / 2, bottom + 36, across, "middle"))
    body.append(text(left, TOP - 8, upwards, "end", 10))
    return page(title, [], body, height)


def stacked(title: str, unit: str, groups: Mapping[str, Mapping[str, float]]) -> str:
    """Draws a horizontal bar for each group, with its values one after the other. All groups have the same names."""
    series = list(next(iter(groups.values())))
    most = max(sum(group.values()) for group in groups.values()) or 1
    height, right = TOP + 34 * len(groups) + 34, WIDTH - RIGHT
    body = []
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        at = LEFT + share * (right - LEFT)
        body.append(f'<line x1="{at:.1f}" y1="{TOP - 4}" x2="{at:.1f}" y2="{height - 30}" stroke="#ddd"/>')
        body.append(text(at, height - 14, number(share * most), "middle"))
    for row, (name, group) in enumerate(groups.items()):
        y, at = TOP + 34 * row, float(LEFT)
        body.append(text(LEFT - 8, y + 16, name, "end"))
        for place, value in enumerate(group.values()):
            wide = value / most * (right - LEFT)
            body.append(f'<rect x="{at:.1f}" y="{y}" width="{wide:.1f}" height="24" fill="{COLOURS[place % len(COLOURS)]}"/>')
            at += wide
        body.append(text(at + 4, y + 16, number(sum(group.values())), "start", 10))
    return page(f"{title} ({unit})", series, body, height)


def cells(title: str, maps: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Draws a map for each disk, row by row from its beginning. A cell has the part that is in use and the part that
    is read, each from 0 to 1."""
    across, side, top = 100, 8, TOP + 14
    body = []
    for name, values in maps.items():
        body.append(text(14, top - 4, name, "start"))
        for place, (used, read) in enumerate(values):
            x, y = 14 + place % across * side, top + place // across * side
            grey = round(245 - 95 * min(used, 1))
            body.append(f'<rect x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" fill="rgb({grey},{grey},{grey})"/>')
            if read > 0:
                body.append(f'<rect x="{x}" y="{y}" width="{side - 1}" height="{side - 1}" fill="#d62728" fill-opacity="{max(read, 0.15):.2f}"/>')
        top += -(-len(values) // across) * side + 26
    return page(f"{title}: grey is in use, red is read", [], body, top - 10)


def page(title: str, series: Sequence[str], body: list[str], height: int) -> str:
    legend, at = [], 14.0
    for place, name in enumerate(series):
        legend.append(f'<rect x="{at:.0f}" y="33" width="11" height="11" fill="{COLOURS[place % len(COLOURS)]}"/>')
        legend.append(text(at + 15, 43, name, "start", 11))
        at += 30 + 6.2 * len(name)
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif">',
            f'<rect width="{WIDTH}" height="{height}" fill="white"/>',
            text(14, 22, title, "start", 14),
            *legend,
            *body,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, anchor: str, size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" fill="#222">{escape(words)}</text>'


def number(value: float) -> str:
    """Formats a number with at most three significant digits, and without a power of ten."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    shown = f"{value:.{min(digits, 6)}f}"
    return shown.rstrip("0").rstrip(".") if "." in shown else shown
