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
        _invite(hub)
        if not real:
            failed = await _play(hub, ended)
        if not leave:
            _invite(hub)
            print("Ctrl-C ends the demo and removes everything it made.", flush=True)
            await ended.wait()
    except RuntimeError as error:
        failed = str(error)
    finally:
        await asyncio.to_thread(hub.stop)
    print(f"demo: {failed or 'ok'}", flush=True)
    return 1 if failed else 0


def _invite(hub: Hub) -> None:
    print(f"\n    {hub.url}    any name, password {hub.password}\n", flush=True)


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
        print(f"--- {hub.log}\n{hub.tail()}", flush=True)
    await story.close()
    report = {"result": failed or "ok", "timeline": story.timeline}
    REPORT.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
