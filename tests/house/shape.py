# SPDX-License-Identifier: BSD-3-Clause
"""Sizes, docstrings, annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from statistics import median

from .tree import Function, Source, functions, public

FILE_LINES = 500
FUNCTION_LINES = 60
FUNCTION_LINES_MEDIAN = 10
PARAMETERS = 6


def unparsable(sources: Sequence[Source]) -> list[str]:
    """Files that are not Python; the other rules see nothing in them."""
    return [source.broken for source in sources if source.broken]


def long_files(sources: Sequence[Source]) -> list[str]:
    """Files with more lines than a reader keeps in mind."""
    return [
        source.at(1, f"{lines} lines, at most {FILE_LINES}")
        for source in sources
        if (lines := len(source.text.splitlines())) > FILE_LINES
    ]


def lines_of(node: Function) -> int:
    """Lines of a function, docstring included."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def long_functions(sources: Sequence[Source]) -> list[str]:
    """Functions that do not fit on a screen."""
    return [
        source.at(node, f"{node.name} has {lines_of(node)} lines, at most {FUNCTION_LINES}")
        for source in sources
        for node in functions(source)
        if lines_of(node) > FUNCTION_LINES
    ]


def median_lines(sources: Sequence[Source]) -> float:
    """The median length of all functions."""
    return median(lines_of(node) for source in sources for node in functions(source))


def many_parameters(sources: Sequence[Source]) -> list[str]:
    """Functions that want a dataclass."""
    return [
        source.at(node, f"{node.name} has {count} parameters, at most {PARAMETERS}")
        for source in sources
        for node in functions(source)
        if (count := len(_parameters(node))) > PARAMETERS
    ]


def _parameters(node: Function) -> list[ast.arg]:
    every = [*node.args.posonlyargs, *node.args.args]
    if every and every[0].arg in {"self", "cls", "mcs"}:
        every = every[1:]
    return [*every, *node.args.kwonlyargs]


def undocumented(sources: Sequence[Source]) -> list[str]:
    """Public modules, classes and functions without a docstring."""
    return [finding for source in sources for finding in _undocumented(source)]


def _undocumented(source: Source) -> Iterator[str]:
    if source.text.strip() and not source.broken and not ast.get_docstring(source.tree):
        yield source.at(1, "the module has no docstring")
    for node in public(source.tree.body):
        if not ast.get_docstring(node) and not _is_setter_or_overload(node):
            yield source.at(node, f"{node.name} has no docstring")


def _is_setter_or_overload(node: Function | ast.ClassDef) -> bool:
    names = {ast.unparse(decorator).split(".")[-1] for decorator in node.decorator_list}
    return bool(names & {"setter", "deleter", "overload"})


def unannotated(sources: Sequence[Source]) -> list[str]:
    """Functions with a parameter or a result that says no type."""
    return [
        source.at(node, f"{node.name} does not annotate {', '.join(missing)}")
        for source in sources
        for node in functions(source)
        if (missing := _unannotated(node))
    ]


def _unannotated(node: Function) -> list[str]:
    spread = [arg for arg in (node.args.vararg, node.args.kwarg) if arg]
    missing = [arg.arg for arg in [*_parameters(node), *spread] if arg.annotation is None]
    return missing if node.returns else [*missing, "its result"]
