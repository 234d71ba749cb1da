# SPDX-License-Identifier: BSD-3-Clause
"""What every command shares: arguments, the way to the broker, exit codes, output."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from jupyter_core.application import JupyterApp
from pydantic import BaseModel
from traitlets import Unicode

from ...client import (
    Address,
    BrokerError,
    Client,
    Conflict,
    Refusal,
    Unauthenticated,
    Unavailable,
    Unknown,
)
from ..tuning import tune

OK = 0
FAILED = 1
"""Refused, or what was asked about has failed."""
USAGE = 2
"""The command line itself is wrong; argparse exits with the same."""
UNREACHABLE = 3
INTERRUPTED = 130
NO_TOKEN = "set JUPYTERHUB_API_TOKEN to a token of yours, from the Hub's page Token"  # noqa: S105
_REMEDIES: Mapping[type[Exception], str] = {
    Unauthenticated: f" ({NO_TOKEN})",
    Unknown: " (see `jupyter gpubroker jobs`)",
}


class Command(JupyterApp):
    """One command: ``arguments`` declares what it takes, ``run`` does it."""

    word: ClassVar[str] = ""
    """What people type after ``jupyter gpubroker``."""
    usage: ClassVar[str | None] = None

    config_file_name = Unicode("jupyter_gpubroker_config", help="Name of the config file.")
    url = Unicode(
        help="Address of the broker, http://… or unix:/path; default: GPUBROKER_URL, then the "
        "machine's or your own broker."
    ).tag(config=True)

    args: argparse.Namespace

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Declare what the command takes."""

    def run(self) -> int:
        """Do it; the exit code."""
        raise NotImplementedError

    @classmethod
    def parser(cls) -> argparse.ArgumentParser:
        """Everything that the command takes."""
        parser = argparse.ArgumentParser(
            prog=f"jupyter gpubroker {cls.word}",
            usage=cls.usage,
            description=cls.__doc__,
            allow_abbrev=False,
        )
        parser.add_argument("--json", action="store_true", help="print JSON for programs")
        parser.add_argument("--url", default="", help="address of the broker")
        parser.add_argument("--config", default="", help="full path of a config file")
        cls.arguments(parser)
        return parser

    def initialize(self, argv: Any = None) -> None:
        """Read the command line, then the configuration where it says nothing."""
        self.args = self.parser().parse_args(argv)
        if self.args.config:
            self.config_file = self.args.config
        self.load_config_file()
        self.url = self.args.url or self.url

    def start(self) -> None:
        """Run it and leave with its exit code."""
        raise SystemExit(self._run())

    def _run(self) -> int:
        try:
            code = self.run()
            sys.stdout.flush()
            return code
        except Refusal as refusal:
            return self._failed(FAILED, "refused", str(refusal), field=refusal.field)
        except Unavailable as error:
            return self._failed(UNREACHABLE, "unreachable", str(error))
        except (BrokerError, Conflict) as error:
            remedy = _REMEDIES.get(type(error), "")
            return self._failed(FAILED, type(error).__name__.lower(), f"{error}{remedy}")
        except BrokenPipeError:
            # The reader has enough; Python would complain once more at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return OK
        except KeyboardInterrupt:
            return INTERRUPTED

    def _failed(self, code: int, word: str, message: str, **more: str) -> int:
        if self.args.json:
            print(json.dumps({"error": word, "message": message, **more}), file=sys.stderr)
        else:
            print(f"jupyter gpubroker: {message}", file=sys.stderr)
        return code

    def client(self) -> Client:
        """The broker; Unavailable if none is to be found."""
        if not self.url:
            return Client(Address.find())
        given = "--url" if self.args.url else f"c.{type(self).__name__}.url"
        return Client(Address.parse(self.url, _token(), given))

    def show(self, answer: Answer, people: object) -> None:
        """Print an answer: as JSON where that was asked for, else what people read."""
        print(json.dumps(plain(answer), indent=1) if self.args.json else people)


class Offline(Command):
    """A command that needs no broker; what it is given is wrong: exit code 2."""

    def run(self) -> int:
        """Compute, and show it; nothing is done with input that is wrong in any place."""
        tune()
        try:
            self.show(*self.compute())
        except Refusal as refusal:
            return self._failed(USAGE, "wrong input", str(refusal), field=refusal.field)
        return OK

    def compute(self) -> tuple[dict[str, Any], str]:
        """The result as JSON values and as people read it; Refusal."""
        raise NotImplementedError


class Verbs:
    """Words behind a command that have arguments of their own; what every command takes may
    follow them too."""

    def __init__(self, parser: argparse.ArgumentParser, words: str, *, required: bool) -> None:
        self._verbs = parser.add_subparsers(dest="verb", required=required, metavar=words)

    def add(self, word: str, does: str) -> argparse.ArgumentParser:
        """One more word; its parser."""
        parser = self._verbs.add_parser(word, help=does, description=does, allow_abbrev=False)
        unsaid: dict[str, Any] = {"default": argparse.SUPPRESS, "help": argparse.SUPPRESS}
        parser.add_argument("--json", action="store_true", **unsaid)
        for option in ("--url", "--config"):
            parser.add_argument(option, **unsaid)
        return parser


Answer = BaseModel | Sequence[BaseModel] | dict[str, Any]


def plain(answer: Answer) -> Any:
    """An answer as JSON values."""
    if isinstance(answer, BaseModel):
        return answer.model_dump(mode="json", by_alias=True)
    return answer if isinstance(answer, dict) else [plain(item) for item in answer]


def rows(answer: Sequence[BaseModel]) -> list[dict[str, Any]]:
    """Answers as the views of ``inject`` take them."""
    return [item.model_dump(mode="json", by_alias=True) for item in answer]


def _token() -> str:
    return os.environ.get("JUPYTERHUB_API_TOKEN", "")
