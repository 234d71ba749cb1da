# SPDX-License-Identifier: BSD-3-Clause
"""What a start tells: to everybody who listens, the newest line always."""

from __future__ import annotations

import asyncio

import pytest

from jupyter_gpubroker.spawner.story import Story
from tests.until import until_async

pytestmark = pytest.mark.asyncio


async def heard(story: Story) -> list[str]:
    return [line["message"] async for line in story.follow()]


async def test_every_reader_hears_the_newest_line_and_the_end() -> None:
    story = Story()
    heard_by: list[list[str]] = [[], []]

    async def listen(lines: list[str]) -> None:
        async for line in story.follow():
            lines.append(line["message"])

    readers = [asyncio.create_task(listen(lines)) for lines in heard_by]
    said: list[str] = []
    for line in ("one", "two", "three"):
        story.say(10, line)
        story.say(10, line)
        said.append(line)
        await until_async(lambda: heard_by == [said, said], what=f"both to hear {line}")
    story.end()
    await asyncio.gather(*readers)
    assert heard_by == [said, said], "what is said again is no news"


async def test_who_comes_late_hears_the_last_line() -> None:
    story = Story()
    story.say(10, "one")
    story.say(40, "two")
    story.end()
    assert await heard(story) == ["two"]


async def test_the_first_end_holds() -> None:
    story = Story()
    story.end()
    story.end(failed=True)
    assert not story.failed
    broken = Story()
    broken.end(failed=True)
    assert broken.failed
