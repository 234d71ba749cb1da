# SPDX-License-Identifier: BSD-3-Clause
"""What the docs tell people to type works, and shows what they say it shows.

Every page is played from its first block to its last on a laptop of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .. import needs
from ..house.tree import ROOT
from ..until import until
from .laptop import PATIENCE_S, Laptop
from .pages import AGAIN, Block, blocks, matches

DOCS = ROOT / "docs"
PAGES = {path.relative_to(DOCS).as_posix(): blocks(path) for path in sorted(DOCS.rglob("*.md"))}
PLAYED = [name for name, found in PAGES.items() if any(block.runs for block in found)]


@pytest.fixture
def laptop(short_tmp: Path) -> Iterator[Laptop]:
    made = Laptop(short_tmp)
    yield made
    made.close()


@pytest.mark.torch
@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PLAYED)
def test_a_page_can_be_followed(page: str, laptop: Laptop) -> None:
    needs.module("torch")
    for block in PAGES[page]:
        if block.runs:
            play(laptop, block)


def play(laptop: Laptop, block: Block) -> None:
    """Do what the block says; AssertionError where it shows something else."""
    if block.language == "python":
        _cell(laptop, block)
    elif block.words not in ("", AGAIN):
        laptop.serve(block.words, block.code)
    elif block.words == AGAIN:
        assert block.shown is not None, f"{block}\nshows nothing that could be waited for"
        seen: list[str] = []
        until(
            lambda: _shows(block, seen, laptop.run(block.code)),
            timeout=PATIENCE_S,
            what=f"{block}\nto show\n{block.shown}",
        )
    else:
        _same(block, laptop.run(block.code))


def _cell(laptop: Laptop, block: Block) -> None:
    """What a cell shows may go on changing: it has to become what the page shows."""
    cell = laptop.cell(block.words, block.code)

    def shown() -> bool:
        laptop.look()
        return block.shown is None or matches(block.shown, cell.text)

    try:
        until(shown, timeout=PATIENCE_S)
    except AssertionError:
        _same(block, cell.text)


def _shows(block: Block, seen: list[str], text: str) -> bool:
    seen.append(text)
    return matches(block.shown or "", text)


def _same(block: Block, text: str) -> None:
    if block.shown is not None and not matches(block.shown, text):
        pytest.fail(f"{block}\nshows\n{text}\nbut the page says\n{block.shown}", pytrace=False)


def test_the_tutorial_is_played() -> None:
    assert "tutorial/index.md" in PLAYED


@pytest.mark.parametrize(
    ("shown", "real", "same"),
    [
        ("a\nb", "a \nb\n\n", True),
        ("job b-… is queued", "job b-x7 is queued", True),
        ("first\n…\nlast", "first\n2\n3\nlast", True),
        ("first\n…\nlast", "first\nlast", True),
        ("a.c", "abc", False),
        ("a\nb", "a", False),
        ("a", "a\nb", False),
    ],
)
def test_an_output_is_the_shown_one(shown: str, real: str, same: bool) -> None:
    assert matches(shown, real) is same


def test_a_block_has_the_output_that_follows_it(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```bash again\nls\n```\nwords\n```text\na…\n```\n```sh\nnot run\n```\n")
    (ls, other) = blocks(page)
    assert (ls.line, ls.words, ls.code, ls.shown, ls.runs) == (1, "again", "ls\n", "a…\n", True)
    assert (other.code, other.shown, other.runs) == ("not run\n", None, False)
