# SPDX-License-Identifier: BSD-3-Clause
"""``make demo``: a JupyterHub with the broker on simulated GPUs, and the story on it.

``DEMO_EXIT=1`` ends after the story (exit code 0, or 1 if a promise broke);
``DEMO_DEVICES=nvml`` offers this machine's GPUs without the story.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import traceback
from pathlib import Path

from hub import Hub
from story import Broken, Story

INVITATION = """
    {hub.url}    password {hub.password}

{people}
The GPU icon on the left shows and hides who has what and who waits for whom.
Ctrl-C ends the demo and removes everything it made.
"""
PEOPLE = """\
Log in as
    nb1         its GPU is back: demo.ipynb goes on in the same process
    nb2         parked: run the last cell of demo.ipynb, and its GPUs come back
    trainer     the job "train" and its log
    a new name  to ask for GPUs yourself"""
ANY = "Log in with any name."

REPORT = Path(__file__).resolve().parents[2] / "demo-report.json"


async def main() -> int:
    """Start, play, keep serving; the exit code."""
    real = os.environ.get("DEMO_DEVICES", "") == "nvml"
    leave = os.environ.get("DEMO_EXIT", "") not in ("", "0")
    hub = Hub("nvml" if real else "simulated:2x4")
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, ended.set)
    failed = ""
    try:
        print("starting JupyterHub and the broker …", flush=True)
        await hub.start()
        if not real:
            failed = await _play(hub, ended)
        if not leave and not ended.is_set():
            print(INVITATION.format(hub=hub, people=ANY if real or failed else PEOPLE), flush=True)
            await ended.wait()
    except RuntimeError as error:
        failed = str(error)
    finally:
        print("ending …", flush=True)
        await asyncio.to_thread(hub.stop)
    print(f"demo: {failed or 'ok'}", flush=True)
    return 1 if failed else 0


async def _play(hub: Hub, ended: asyncio.Event) -> str:
    """Play the story unless the demo is ended before; what failed, or nothing."""
    story = Story(hub)
    failed = ""
    playing = asyncio.create_task(story.play())
    stopping = asyncio.create_task(ended.wait())
    await asyncio.wait((playing, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not playing.done():
        playing.cancel()
        failed = "ended before the story was over"
    elif (error := playing.exception()) is not None:
        failed = str(error) or type(error).__name__
        if not isinstance(error, Broken):
            traceback.print_exception(error)
        print(f"--- {hub.log}\n{hub.tail()}\n\nthe story broke: {failed}", flush=True)
    await story.close()
    report = {"result": failed or "ok", "timeline": story.timeline}
    REPORT.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"what happened when is in {REPORT.name}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
