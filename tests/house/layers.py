# SPDX-License-Identifier: BSD-3-Clause
"""Who may import whom: an import may only go down."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from .tree import PACKAGE, Source

# Each part may import what stands behind it, and what those may import in turn.
ARROWS: dict[str, tuple[str, ...]] = {
    "app": ("service", "sim", "store", "engines", "policy", "client", "hub"),
    "hub": ("client", "inject"),
    "service": ("broker", "wire", "policy"),
    "sim": ("broker", "store", "policy"),
    "client": ("wire",),
    "engines": ("devices", "inject"),
    "broker": ("store/", "engines/"),
    "store": ("core",),
    "store/": ("core",),
    "engines/": ("core",),
    "policy": ("documents",),
    "documents": ("core",),
    "wire": ("core",),
    "devices": ("core",),
    "core": (),
    "inject": (),
}
# "store/" is the seam alone: the Protocol and its nouns in the __init__, no implementation.

# The frontends know these parts and nothing below them.
_KNOWN = frozenset({"client", "wire", "inject"})
FRONTENDS = {
    "spawner": _KNOWN,
    "provisioner": _KNOWN,
    "extension": _KNOWN | {"provisioner"},  # which it makes the default, and tells the lease
}
# The root names the server extension, inside the hook that Jupyter calls.
ROOT_MAY = frozenset({"extension"})

# Engines are alternatives; what they share lies beside them under another name.
ENGINES = ("local", "slurm", "ray", "kubernetes")


def reach(part: str) -> frozenset[str]:
    """Everything that a part may import."""
    if part == "":
        return ROOT_MAY
    if part in FRONTENDS:
        return FRONTENDS[part]
    below = ARROWS[part]
    return frozenset(below).union(*(reach(name) for name in below))


def imports(source: Source, known: frozenset[tuple[str, ...]]) -> Iterator[tuple[int, str]]:
    """(line, dotted module) of every import; the package's own begin with its name."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from _imports_from(source, node, known)
        elif isinstance(node, ast.Call) and _called(node) in {"import_module", "__import__"}:
            yield from ((node.lineno, name) for name in _constants(source, node))


def _imports_from(
    source: Source, node: ast.ImportFrom, known: frozenset[tuple[str, ...]]
) -> Iterator[tuple[int, str]]:
    base = _resolve(source, "." * node.level + (node.module or ""))
    for alias in node.names:
        full = (*base, alias.name)
        yield node.lineno, ".".join(full if full[1:] in known else base)


def _called(node: ast.Call) -> str:
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def _constants(source: Source, node: ast.Call) -> Iterator[str]:
    name = node.args[0] if node.args else None
    if isinstance(name, ast.Constant) and isinstance(name.value, str):
        yield ".".join(_resolve(source, name.value))


def _resolve(source: Source, name: str) -> tuple[str, ...]:
    """The parts of a module's full name; ``name`` may begin with dots."""
    bare = name.lstrip(".")
    level = len(name) - len(bare)
    above = (PACKAGE, *source.package[: len(source.package) + 1 - level]) if level else ()
    return (*above, *bare.split(".")) if bare else above


def layers(package: Sequence[Source]) -> list[str]:
    """Imports of the package that do not go down."""
    known = frozenset(source.module for source in package)
    return [
        source.at(line, text)
        for source in package
        for line, name in imports(source, known)
        if name.split(".")[0] == PACKAGE and (text := _wrong(source, tuple(name.split(".")[1:])))
    ]


def _wrong(source: Source, target: tuple[str, ...]) -> str:
    """Why this import is wrong; empty if it is right."""
    here = source.module[0] if source.module else ""
    if not target:
        return "imports the package root"
    if here and here not in ARROWS and here not in FRONTENDS:
        return f"{here} has no place in the layers (tests/house/layers.py)"
    if here == target[0]:
        return _between_engines(source.module, target)
    allowed = reach(here)
    if target[0] in allowed or (len(target) == 1 and f"{target[0]}/" in allowed):
        return ""
    return f"{here or 'the root'} may not import {'.'.join(target)}"


def _between_engines(module: tuple[str, ...], target: tuple[str, ...]) -> str:
    if module[0] != "engines" or len(module) == 1 or len(target) == 1:
        return ""
    pair = {name for name in ENGINES for part in (module[1], target[1]) if _of(part, name)}
    return "an engine imports another engine" if len(pair) > 1 else ""


def _of(part: str, engine: str) -> bool:
    return part == engine or part.startswith(f"{engine}_")


def absolute(package: Sequence[Source]) -> list[str]:
    """Imports of the package by its full name: inside, imports are relative."""
    return [
        source.at(node, "imports the package by its name; use a relative import")
        for source in package
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in _absolute_names(node)
        if name.split(".")[0] == PACKAGE
    ]


def _absolute_names(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module] if node.module and not node.level else []
