# SPDX-License-Identifier: BSD-3-Clause
"""A child process that answers one JSON line per line it is told."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from ..until import until

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Talk:
    """Runs a script of this folder; ends it, killed if need be, when the block is left."""

    def __init__(self, script: str, environ: Mapping[str, str]) -> None:
        self._child = subprocess.Popen(
            [sys.executable, str(HERE / script)],
            env={**os.environ, "PYTHONPATH": str(ROOT), **environ},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = self._child.pid
        self._answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, *words: object) -> None:
        """Send a line and do not wait for its answer."""
        assert self._child.stdin
        self._child.stdin.write(" ".join(map(str, words)) + "\n")
        self._child.stdin.flush()

    def answer(self) -> Any:
        """The next answer."""
        return self._answers.get(timeout=120)

    def ask(self, *words: object) -> Any:
        """Send a line and wait for its answer."""
        self.tell(*words)
        return self.answer()

    def quiet(self) -> bool:
        """True while there is no answer to read."""
        return self._answers.empty()

    def waits(self) -> bool:
        """True once it goes to sleep again and again, False as soon as it answers."""
        before = self._sleeps()
        until(lambda: not self.quiet() or self._sleeps() > before + 20, what="waiting")
        return self.quiet()

    def interrupt(self) -> Any:
        """Interrupt what it does, as a kernel is interrupted, until it answers."""

        def answered() -> bool:
            self._child.send_signal(signal.SIGINT)
            return not self.quiet()

        until(answered, what="an answer after an interrupt")
        return self.answer()

    def kill(self) -> None:
        """Kill it with -9 and leave it unreaped, as a busy parent would."""
        self._child.kill()

    def stop(self) -> None:
        """End it for good."""
        self._child.kill()
        self._child.wait()
        if self._child.stdin:
            self._child.stdin.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def _sleeps(self) -> int:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])

    def _read(self) -> None:
        assert self._child.stdout
        with self._child.stdout as lines:
            for line in lines:
                self._answers.put(json.loads(line))
