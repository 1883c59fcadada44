"""A job or a simulation as one page of HTML: nothing is loaded from elsewhere, and no program runs in it. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape

from elasticdl.shared.words import duration
from elasticdl.views.wall_time.causes import USEFUL, WORDS
from elasticdl.views.wall_time.values import WallTime

CURVE_POINTS_MAX = 400
_WIDTH, _HEIGHT = 420, 140
_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #3b82f6; --lost: #f59e0b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0 1.5rem; }
th, td { text-align: left; padding: .2rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.bar { display: inline-block; height: .7rem; background: var(--bar); border-radius: 2px; }
.lost { background: var(--lost); }
.curves { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem; }
figure { margin: 0; } figcaption { font-weight: 600; }
svg { width: 100%; height: auto; } code { font-size: 13px; overflow-wrap: anywhere; }
footer { color: #888; margin-top: 2rem; }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A section of the page: rows under columns; the columns in ``numbers`` are aligned to the right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What a page shows.

    Attributes:
        summary: name and text of each line of the report.
        wall_time: where the time of a job went; None: this is no job.
        texts: a line for each event that ``wall_time`` names.
        curves: name -> (step, value) of its points.
        made: who has written the page, and when.
        limits: the least and the largest value of all curves; None: each has its own.
    """

    job: str
    state: str
    summary: Sequence[tuple[str, str]]
    wall_time: WallTime | None
    texts: Mapping[int, str]
    curves: Mapping[str, Sequence[tuple[float, float]]]
    tables: Sequence[Table]
    made: str
    limits: tuple[float, float] | None = None

    def html(self) -> str:
        """The whole page."""
        title = f"{self.job}: {self.state}"
        parts = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body><main>",
            f"<h1>{escape(title)}</h1>",
            _table(Table(title="Summary", columns=(), rows=self.summary)),
            self._causes(),
            self._curves(),
            *map(_table, self.tables),
            f"</main><footer>{escape(self.made)}</footer></body></html>",
        ]
        return "\n".join(part for part in parts if part) + "\n"

    def _causes(self) -> str:
        found = self.wall_time
        if found is None or not found.parts:
            return ""
        rows = []
        largest = max(part.seconds for part in found.parts)
        for part in found.parts:
            words = WORDS[part.cause]
            lines = [escape(words.title)]
            if part.cause not in USEFUL and found.percent(part.seconds) >= 3.0:
                lines += [escape(words.advice)] if words.advice else []
                lines += [
                    f"<code>{escape(self.texts[seq][:200])}</code>" for seq, _ in part.evidence if seq in self.texts
                ]
            kind = "bar" if part.cause in USEFUL else "bar lost"
            bar = f'<span class="{kind}" style="width: {100 * part.seconds / largest:.1f}%"></span>'
            rows.append(
                f'<tr><td>{"<br>".join(lines)}</td><td class="number">{part.seconds:.1f}</td>'
                f'<td class="number">{found.percent(part.seconds):.1f} %</td><td style="width: 12rem">{bar}</td></tr>'
            )
        useful = found.percent(found.useful_s)
        about = f"{duration(found.wall_s)}, of which {duration(found.useful_s)} ({useful:.0f} %) were useful."
        head = "<tr><th>cause</th><th>seconds</th><th>percent</th><th></th></tr>"
        return f"<h2>Where the time went</h2><p>{about}</p><table>{head}{''.join(rows)}</table>"

    def _curves(self) -> str:
        figures = [_figure(name, points, self.limits) for name, points in self.curves.items() if len(points) > 1]
        return f'<h2>Curves</h2><div class="curves">{"".join(figures)}</div>' if figures else ""


def _table(table: Table) -> str:
    if not table.rows:
        return ""
    head = "".join(f"<th>{escape(column)}</th>" for column in table.columns)
    rows = "".join(
        "<tr>"
        + "".join(
            f'<td class="number">{escape(cell)}</td>' if place in table.numbers else f"<td>{escape(cell)}</td>"
            for place, cell in enumerate(row)
        )
        + "</tr>"
        for row in table.rows
    )
    return f"<h2>{escape(table.title)}</h2><table>{f'<tr>{head}</tr>' if head else ''}{rows}</table>"


def _figure(name: str, points: Sequence[tuple[float, float]], limits: tuple[float, float] | None) -> str:
    """A line of SVG. A screen reader gets the first and the last value."""
    shown = sampled([point for point in points if math.isfinite(point[1])], CURVE_POINTS_MAX)
    if len(shown) < 2:
        return ""
    steps, values = zip(*shown, strict=True)
    low, high = min(values), max(values)
    least, largest = limits or (low, high)
    width, height = max(steps) - min(steps) or 1.0, largest - least or 1.0
    line = " ".join(
        f"{_WIDTH * (step - min(steps)) / width:.1f},{_HEIGHT - 8 - (_HEIGHT - 16) * (value - least) / height:.1f}"
        for step, value in shown
    )
    told = f"{name}: from {values[0]:.4g} to {values[-1]:.4g}, least {low:.4g}, largest {high:.4g}"
    count = f"{len(shown)} of {len(points)} points" if len(shown) < len(points) else f"{len(points)} points"
    return (
        f"<figure><figcaption>{escape(name)}</figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(told)}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/></svg>'
        f"<small>{escape(told.removeprefix(f'{name}: '))}; {count}</small></figure>"
    )


def sampled(points: Sequence[tuple[float, float]], most: int) -> Sequence[tuple[float, float]]:
    """At most about so many of the points, with the first and the last one."""
    step = math.ceil(len(points) / most)
    return points if step <= 1 else [*points[:-1:step], points[-1]]


def by_name(found: Iterable[tuple[str, float, float]]) -> dict[str, list[tuple[float, float]]]:
    """(name, step, value) of points, grouped by name in the order in which the names come."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for name, step, value in found:
        curves.setdefault(name, []).append((step, value))
    return curves
