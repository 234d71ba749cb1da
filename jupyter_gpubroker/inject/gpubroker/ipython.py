# SPDX-License-Identifier: BSD-3-Clause
"""What we use of IPython, with the types that it does not declare."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

from IPython import display as _display
from IPython import get_ipython as _get_ipython
from IPython.core import magic as _magic
from IPython.core import magic_arguments as _arguments

_Function = TypeVar("_Function", bound=Callable[..., Any])


class Decorator(Protocol):
    """Gives back what it decorates, as far as types can tell."""

    def __call__(self, function: _Function, /) -> _Function:
        """Decorate."""
        ...


line_magic = cast("Decorator", _magic.line_magic)
line_cell_magic = cast("Decorator", _magic.line_cell_magic)
magics_class = cast("Decorator", _magic.magics_class)
magic_arguments = cast("Callable[[], Decorator]", _arguments.magic_arguments)
argument = cast("Callable[..., Decorator]", _arguments.argument)
_parse = cast("Callable[[Any, str], argparse.Namespace]", _arguments.parse_argstring)
get_ipython = cast("Callable[[], Any]", _get_ipython)


def parse(magic: Any, line: str) -> argparse.Namespace:
    """Arguments of this magic from its line; UsageError for wrong ones, and abbreviated ones."""
    magic.parser.allow_abbrev = False
    return _parse(magic, line)


def cell_number() -> int:
    """The number of the cell that runs now; 0 outside IPython."""
    shell = get_ipython()
    return 0 if shell is None else int(shell.execution_count)


def show(thing: object) -> Any:
    """Display it in the current cell; a handle to ``update`` it, or None."""
    display: Callable[..., Any] = _display.display
    return display(thing, display_id=True)
