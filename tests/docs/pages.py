# SPDX-License-Identifier: BSD-3-Clause
"""The fenced blocks of a page, and whether an output is the one that the page shows.

===================  ==================================================================
`` ```bash ``        runs in a terminal, to its end
`` ```bash again ``  the same, until it shows what the page shows
`` ```bash NAME ``   starts the server NAME, which stays
`` ```python NAME `` a cell in the notebook of the server NAME
`` ```text ``        what the block before it shows; ``…`` stands for anything, and a line
                     that is nothing else for any lines
`` ```sh ``          and every other language: not run
===================  ==================================================================
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^```(\w*) ?([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
AGAIN = "again"
ANYTHING = "…"


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    line: int
    language: str
    words: str
    """What follows the language: a server's name, or ``again``."""
    code: str
    shown: str | None = None
    """What the page shows as its output; ``None`` = the page shows nothing."""

    @property
    def runs(self) -> bool:
        """Whether the test runs it."""
        return self.language == "bash" or (self.language == "python" and bool(self.words))

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.code.strip()}"


def blocks(path: Path) -> list[Block]:
    """The blocks of a page, each with the output that is shown under it."""
    return list(_with_outputs(_fences(path.name, path.read_text("utf-8"))))


def _fences(page: str, text: str) -> Iterator[Block]:
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, words, code = match.groups()
        yield Block(page, line, language, words.strip(), code)


def _with_outputs(found: Iterator[Block]) -> Iterator[Block]:
    before: Block | None = None
    for block in found:
        if block.language == "text" and before is not None:
            yield Block(**{**vars(before), "shown": block.code})
            before = None
            continue
        if before is not None:
            yield before
        before = block
    if before is not None:
        yield before


def matches(shown: str, real: str) -> bool:
    """Whether the real output is the shown one; blanks at the ends of lines do not count."""
    lines = [line.rstrip() for line in shown.strip().splitlines()]
    pattern = "".join(_line(line) for line in lines)
    text = "".join(f"{line.rstrip()}\n" for line in real.strip().splitlines())
    return re.fullmatch(pattern, text) is not None


def _line(line: str) -> str:
    if line == ANYTHING:
        return "(?:.*\n)*"
    return ".*".join(re.escape(part) for part in line.split(ANYTHING)) + "\n"
