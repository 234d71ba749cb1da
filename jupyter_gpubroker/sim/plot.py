# SPDX-License-Identifier: BSD-3-Clause
"""Use over time as a picture: an SVG of its own, without a library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

WIDTH, HEIGHT, MARGIN = 900, 320, 48
COLOURS = {"allocated": "#1f77b4", "active": "#2ca02c"}


def svg(made: Mapping[str, Any]) -> str:
    """Allocated and active GPUs over time, as parts of all."""
    points = made["over_time"]
    end = made["end_s"] or 1.0
    body = [*_grid(end), *(_line(points, name, end) for name in COLOURS if points)]
    legend = [
        f'<text x="{MARGIN + 90 * index}" y="16" fill="{colour}">{name}</text>'
        for index, (name, colour) in enumerate(COLOURS.items())
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            *body,
            *legend,
            "</svg>",
            "",
        ]
    )


def _x(time: float, end: float) -> float:
    return MARGIN + (WIDTH - 2 * MARGIN) * time / end


def _y(share: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * share


def _grid(end: float) -> list[str]:
    lines = []
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent / 100)
        lines.append(
            f'<path d="M{MARGIN} {y:.1f}H{WIDTH - MARGIN}" stroke="#ddd"/>'
            f'<text x="4" y="{y + 4:.1f}">{percent} %</text>'
        )
    for part in range(5):
        hours = end * part / 4 / 3600
        lines.append(
            f'<text x="{_x(end * part / 4, end):.1f}" y="{HEIGHT - 20}" '
            f'text-anchor="middle">{hours:.3g} h</text>'
        )
    return lines


def _line(points: Sequence[Mapping[str, float]], name: str, end: float) -> str:
    path = " ".join(f"{_x(point['from_s'], end):.1f},{_y(point[name]):.1f}" for point in points)
    return f'<polyline points="{path}" fill="none" stroke="{COLOURS[name]}" stroke-width="1.5"/>'
