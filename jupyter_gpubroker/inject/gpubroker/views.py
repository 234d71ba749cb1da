# SPDX-License-Identifier: BSD-3-Clause
"""How answers of the broker look: plain text that reads well, and HTML of the same words."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

OVER = ("completed", "failed", "cancelled")
"""States that nothing follows."""

_MUTED = "color: var(--jp-ui-font-color2, #616161)"
_PRE = "margin: 0; max-height: 14em; overflow: auto; white-space: pre-wrap; font-size: 90%"
_COLOURS = {
    "running": "#2e7d32",
    "completed": "#2e7d32",
    "failed": "#c62828",
    "draining": "#c77700",
    "stopping": "#c77700",
}


class Rows(list[dict[str, Any]]):
    """A list of answers that shows itself as a table."""

    def __init__(
        self,
        rows: Iterable[dict[str, Any]],
        columns: Sequence[tuple[str, Callable[[dict[str, Any]], str]]],
        empty: str,
    ) -> None:
        """``empty`` is what no rows look like."""
        super().__init__(rows)
        self._columns = columns
        self._empty = empty

    def _cells(self) -> list[list[str]]:
        return [[_first_line(cell(row)) for _, cell in self._columns] for row in self]

    def __repr__(self) -> str:
        if not self:
            return self._empty
        lines = [[heading for heading, _ in self._columns], *self._cells()]
        widths = [max(len(line[n]) for line in lines) for n in range(len(self._columns))]
        return "\n".join(
            "  ".join(cell.ljust(widths[n]) for n, cell in enumerate(line)).rstrip()
            for line in lines
        )

    def _repr_html_(self) -> str:
        if not self:
            return f'<div style="{_MUTED}">{escape(self._empty)}</div>'
        head = "".join(_cell("th", heading) for heading, _ in self._columns)
        body = "".join(
            "<tr>" + "".join(_cell("td", cell) for cell in line) + "</tr>" for line in self._cells()
        )
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def queue_rows(answer: Iterable[dict[str, Any]]) -> Rows:
    """GET /queue."""
    columns = (
        ("#", lambda row: str((row.get("why") or {}).get("position", ""))),
        ("job", lambda row: row["id"] + (" (yours)" if row["mine"] else "")),
        ("user", lambda row: row["user"]),
        ("name", lambda row: row["name"]),
        ("wants", lambda row: row["words"]),
        ("waiting", lambda row: duration(time.time() - row["submitted"])),
        ("for", lambda row: ", ".join((row.get("why") or {}).get("waits_for_users", ()))),
        ("until", _until),
        ("why", lambda row: (row.get("why") or {}).get("text", "")),
    )
    return Rows(answer, columns, "Nothing waits in the queue.")


def job_rows(answer: Iterable[dict[str, Any]]) -> Rows:
    """GET /jobs."""
    columns = (
        ("job", lambda job: job["id"]),
        ("name", lambda job: job["name"]),
        ("shape", lambda job: job["request"]["words"]),
        ("state", lambda job: job["state"]),
        ("since", lambda job: clock(job["since"])),
        ("", status),
    )
    return Rows(answer, columns, "You have no jobs.")


def status(job: dict[str, Any]) -> str:
    """What there is to say about its state, usually in one line; empty if nothing."""
    why, notice, lease = job.get("why"), job.get("notice"), job.get("lease")
    if job["state"] in OVER:
        return str(job["outcome"])
    if notice:
        return str(notice["text"])
    if why:
        return f"position {why['position']}: {why['text']}"
    if job["state"] == "parked":
        return f"kept until {clock(job['deadline'])}" if job.get("deadline") else "kept"
    if lease:
        nodes = ", ".join(dict.fromkeys(share["node"] for share in lease["shares"]))
        return f"on {nodes} until {clock(lease['expires'])}"
    return ""


def describe(job: dict[str, Any]) -> list[str]:
    """A Job or Session in a few lines, the most important first; what is told of it in more
    than one line is indented."""
    name = f" {job['name']}" if job["name"] else ""
    lines = [f"{job['id']}{name}: {job['state']}, {job['request']['words']}"]
    lines += indented(status(job))
    if job.get("lease"):
        lines.append(job["lease"]["guarantees"]["sentence"])
    if job.get("idle") and job["idle"]["idle"]:
        lines.append(f"idle: {job['idle']['facts']}" if job["idle"]["facts"] else "idle")
    if job["restarts"] or job["preemptions"]:
        lines.append(
            f"attempt {job['attempt']}, restarts {job['restarts']} of {job['max_restarts']},"
            f" preempted {job['preemptions']} times"
        )
    if job["state"] in OVER and job["gpu_seconds"]:
        lines.append(f"used {job['gpu_seconds'] / 3600:.2f} GPU hours")
    return [line for line in lines if line]


def indented(text: str) -> list[str]:
    """Its lines, as they stand under what they belong to."""
    first, *rest = text.splitlines() or [""]
    return [first, *(f"    {line}".rstrip() for line in rest)]


class Text:
    """Lines for people: the first one is the heading."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = list(lines)

    def __repr__(self) -> str:
        return "\n".join(self.lines)

    def _repr_html_(self) -> str:
        return html_lines(self.lines)


def html_lines(lines: Sequence[str], state: str = "") -> str:
    """The lines as HTML, the heading in the colour of ``state``."""
    colour = f"; color: {_COLOURS[state]}" if state in _COLOURS else ""
    first, *rest = lines or [""]
    return f'<div style="font-weight: 600{colour}">{escape(first)}</div>' + "".join(
        f'<div style="{_MUTED}">{escape(line)}</div>' for line in rest
    )


def html_log(heading: str, text: str) -> str:
    """The end of one log as HTML."""
    return f'<div style="{_MUTED}">{escape(heading)}</div><pre style="{_PRE}">{escape(text)}</pre>'


def clock(seconds: float) -> str:
    """A time of the local clock, with the day if that is not today."""
    then, today = time.localtime(seconds), time.localtime()
    same_day = then[:3] == today[:3]
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", then)


def duration(seconds: float) -> str:
    """``40 s``, ``12 min``, ``3 h 5 min``, ``2 d 4 h``."""
    whole = max(0, round(seconds))
    if whole < 90:
        return f"{whole} s"
    days, rest = divmod(whole, 86400)
    hours, rest = divmod(rest, 3600)
    parts = [f"{n} {unit}" for n, unit in ((days, "d"), (hours, "h"), (rest // 60, "min")) if n]
    return " ".join(parts[:2])


def _first_line(text: str) -> str:
    first, *rest = text.splitlines() or [""]
    return f"{first} …" if rest else first


def _until(row: dict[str, Any]) -> str:
    until = (row.get("why") or {}).get("until")
    return clock(until) if until else ""


def _cell(tag: str, text: str) -> str:
    return f'<{tag} style="text-align: left">{escape(text)}</{tag}>'
