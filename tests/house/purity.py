# SPDX-License-Identifier: BSD-3-Clause
"""What the core, inject, and everything outside devices/ must not do."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence

from .tree import Source

# fmt: off
IMPURE = frozenset({
    "asyncio", "concurrent", "contextvars", "datetime", "logging", "multiprocessing", "os",
    "pathlib", "random", "secrets", "select", "selectors", "signal", "socket", "subprocess",
    "sys", "tempfile", "threading", "time", "urllib", "uuid",
})
# fmt: on

# Added to Python after 3.9, and not seen by the parser.
NEWER_MODULES = frozenset({"tomllib"})
NEWER_NAMES = frozenset({"StrEnum", "TaskGroup", "pairwise", "anext", "aiter", "UTC", "chdir"})
NEWER_KEYWORDS = {"dataclass": {"slots", "kw_only"}, "zip": {"strict"}, "field": {"kw_only"}}


def _imported(source: Source) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node, node.module.split(".")[0]


def impure_imports(core: Sequence[Source]) -> list[str]:
    """Imports of the core that bring in the world, or are no part of the standard library."""
    return [
        source.at(node, f"core imports {name}")
        for source in core
        for node, name in _imported(source)
        if name in IMPURE or name not in sys.stdlib_module_names
    ]


def impure_calls(core: Sequence[Source]) -> list[str]:
    """hash() is salted per process; open, input, print and coroutines touch the world."""
    banned = {"hash", "id", "open", "input", "print"}
    return [
        source.at(node, "core calls " + ast.unparse(node.func) + "()")
        for source in core
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in banned
    ] + [
        source.at(node, "core is not async")
        for source in core
        for node in ast.walk(source.tree)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith)
    ]


def simulated_conditions(package: Sequence[Source]) -> list[str]:
    """Tests of whether devices are simulated, outside devices/."""
    return [
        source.at(node, "a condition on simulated devices; it belongs in devices/")
        for source in package
        if source.module[:1] != ("devices",) and "simulated" in source.text.lower()
        for node in ast.walk(source.tree)
        if any("simulated" in ast.unparse(test).lower() for test in _tests(node))
    ]


def _tests(node: ast.AST) -> list[ast.AST]:
    match node:
        case ast.If() | ast.IfExp() | ast.While() | ast.Assert():
            return [node.test]
        case ast.comprehension():
            return [*node.ifs]
        case ast.Match():
            return [node.subject, *(case.pattern for case in node.cases), *_guards(node)]
        case ast.Compare() | ast.BoolOp():
            return [node]
        case ast.UnaryOp(op=ast.Not()):
            return [node.operand]
    return []


def _guards(node: ast.Match) -> list[ast.expr]:
    return [case.guard for case in node.cases if case.guard]


def inject_imports(inject: Sequence[Source]) -> list[str]:
    """Imports of inject that another person's environment may not have."""
    allowed = (sys.stdlib_module_names - NEWER_MODULES) | {"IPython", "ipykernel", "gpubroker"}
    outside = [
        source.at(node, f"inject imports {name}")
        for source in inject
        for node, name in _imported(source)
        if name not in allowed
    ]
    return outside + [
        source.at(node, "inject imports the package")
        for source in inject
        for node in ast.walk(source.tree)
        if isinstance(node, ast.ImportFrom) and node.level >= len(source.package)
    ]


def newer_python(inject: Sequence[Source]) -> list[str]:
    """What Python 3.9 cannot parse, or does not have."""
    return [finding for source in inject for finding in _newer(source)]


def _newer(source: Source) -> Iterator[str]:
    try:
        ast.parse(source.text, source.path, feature_version=(3, 9))
    except SyntaxError as error:
        yield source.at(error.lineno or 1, f"not Python 3.9: {error.msg}")
        return
    if "from __future__ import annotations" not in source.text and source.text.strip():
        yield source.at(1, "without `from __future__ import annotations` its types are evaluated")
    for node in ast.walk(source.tree):
        name = getattr(node, "id", getattr(node, "attr", getattr(node, "name", "")))
        if isinstance(node, ast.Name | ast.Attribute | ast.alias) and name in NEWER_NAMES:
            yield source.at(node, f"{name} is newer than Python 3.9")
        if isinstance(node, ast.Call):
            called = getattr(node.func, "id", getattr(node.func, "attr", ""))
            newer = NEWER_KEYWORDS.get(called, set()) & {keyword.arg for keyword in node.keywords}
            yield from (source.at(node, f"{called}({word}=) is newer than 3.9") for word in newer)
