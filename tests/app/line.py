# SPDX-License-Identifier: BSD-3-Clause
"""Commands against a service, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from jupyter_gpubroker.app.cli import GPUBrokerApp
from tests.service.thread import Thread


@dataclass
class Result:
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Line:
    """A command line: the user ana, at a terminal."""

    def __init__(self, thread: Thread, capsys: pytest.CaptureFixture[str]) -> None:
        self.thread, self.desk = thread, thread.house.desk
        self._capsys = capsys

    def __call__(self, *argv: str) -> Result:
        self._capsys.readouterr()
        app = GPUBrokerApp()
        try:
            app.initialize(list(argv))
            app.start()
        except SystemExit as end:
            code = end.code
        finally:
            if app.subapp is not None:
                type(app.subapp).clear_instance()
        out, err = self._capsys.readouterr()
        assert isinstance(code, int)
        return Result(code, out, err)

    def do(self, work: Callable[[], Any]) -> Any:
        """Change something behind the service."""
        return self.thread.call(work)
