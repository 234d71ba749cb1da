# SPDX-License-Identifier: BSD-3-Clause
"""What any file must and must not say. Patterns are put together, so that this file passes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from .tree import Source

SPDX = re.compile(r"(#|//|/\*) SPDX-License-Identifier: BSD-3-Clause( \*/)?")
CODE = (".py", ".ts", ".tsx", ".js", ".mjs", ".cjs", ".css", ".c", ".sh")


def _any_of(words: Iterable[str]) -> str:
    return f"(?:{'|'.join(words)})"


HOSTS = re.compile(
    r"\b"
    + _any_of(
        f"{site}[.]{top}"
        for site, top in {
            "pypi": "org",
            "pythonhosted": "org",
            "npmjs": "(?:org|com)",
            "yarnpkg": "com",
            "(?:deb|security|ftp)[.]debian": "org",
            "download[.]pytorch": "org",
        }.items()
    )
    + r"\b"
)
FOLDERS = re.compile(r"(?<![\w.~/-])/" + _any_of(["work", "root"]) + "/")
LATER = re.compile(r"\b" + _any_of(["TO" + "DO", "FIX" + "ME", "XX" + "X"]) + r"\b")
LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?[^)]*\)")
SLEEP = re.compile(r"\b(?:sleep|wait_for_timeout|waitForTimeout)\(")
WAIT_FOR = re.compile(r"\basyncio[.]wait_for\(")
DOUBLES = frozenset({"MagicMock", "AsyncMock", "Mock", "create_autospec"})
CONDITION = re.compile(r"\bif\b|\bcase\b|\?|===?|!==?|&&|\|\|")


def is_code(source: Source) -> bool:
    """Whether a file is source text: by its name, or by its first line."""
    return source.path.endswith(CODE) or source.text.startswith("#!")


def without_license(sources: Sequence[Source]) -> list[str]:
    """Source files whose first line (after ``#!``) is not the licence."""
    return [
        source.at(1, "the first line is not the SPDX line")
        for source in sources
        if is_code(source) and source.text and not SPDX.fullmatch(_first_line(source.text))
    ]


def _first_line(text: str) -> str:
    lines = [line for line in text.splitlines()[:2] if not line.startswith("#!")]
    return lines[0] if lines else ""


def put_off(sources: Sequence[Source]) -> list[str]:
    """Work that a comment leaves to others."""
    return _lines(filter(is_code, sources), LATER, "work left undone belongs in an issue")


def machine_paths(sources: Sequence[Source]) -> list[str]:
    """Folders of one machine."""
    return _lines(sources, FOLDERS, "names a folder of one machine")


def registry_hosts(sources: Sequence[Source]) -> list[str]:
    """Host names of package registries: where packages come from is the machine's affair."""
    return _lines(sources, HOSTS, "names a package registry")


def sleeps(tests: Sequence[Source]) -> list[str]:
    """Tests that wait for time to pass instead of for what they need."""
    return _lines(tests, SLEEP, "sleeps; wait with tests/until.py")


def lost_cancels(sources: Sequence[Source]) -> list[str]:
    """``asyncio.wait_for``: before Python 3.12 it drops a cancel that comes with the result."""
    return _lines(sources, WAIT_FOR, "may lose a cancel; use asyncio.timeout")


def simulated_in_the_browser(typescript: Sequence[Source]) -> list[str]:
    """Conditions on simulated devices in TypeScript."""
    return [
        source.at(number, "a condition on simulated devices; it belongs in devices/")
        for source in typescript
        for number, line in enumerate(source.text.splitlines(), 1)
        if "simulated" in line.lower() and CONDITION.search(line)
    ]


def _lines(sources: Iterable[Source], pattern: re.Pattern[str], text: str) -> list[str]:
    return [
        source.at(number, f"{text}: {line.strip()[:80]}")
        for source in sources
        for number, line in enumerate(source.text.splitlines(), 1)
        if pattern.search(line)
    ]


def doubles(tests: Sequence[Source]) -> list[str]:
    """Mocks and patched attributes: the seams have real fakes."""
    return [
        source.at(node, f"{ast.unparse(node)[:60]}: use a fake behind a seam")
        for source in tests
        for node in ast.walk(source.tree)
        if _is_double(node)
    ]


def _is_double(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name in {"mock", "unittest.mock"} for alias in names)
        case ast.ImportFrom(module=module, names=names):
            words = {alias.name for alias in names}
            return module in {"mock", "unittest.mock"} or (module == "unittest" and "mock" in words)
        case ast.Name(id=name):
            return name in DOUBLES
        case ast.Attribute(value=value, attr=name):
            owner = getattr(value, "id", getattr(value, "attr", ""))
            patches = owner in {"monkeypatch", "mp"} and name in {"setattr", "delattr"}
            return name in DOUBLES or patches or (owner == "mock" and name.startswith("patch"))
        case ast.Call(func=ast.Name(id=name)):
            return name == "patch"
    return False


def skips(tests: Sequence[Source]) -> list[str]:
    """Skips that do not say which line would enable the test: tests/needs.py does."""
    words = {"skip", "skipif", "importorskip", "skipUnless", "skipIf", "SkipTest"}
    return [
        source.at(node, "skips; say what it needs with tests/needs.py")
        for source in tests
        if source.path != "tests/needs.py"
        for node in ast.walk(source.tree)
        if isinstance(node, ast.Attribute | ast.Name)
        and getattr(node, "attr", getattr(node, "id", "")) in words
    ]


def dead_links(sources: Sequence[Source], paths: Sequence[str]) -> list[str]:
    """Links in Markdown to files that are not there."""
    there = {*paths, *(str(parent) for path in paths for parent in PurePosixPath(path).parents)}
    return [
        source.at(number, f"no such file: {target}")
        for source in sources
        if source.path.endswith(".md")
        for number, line in enumerate(source.text.splitlines(), 1)
        for target in LINK.findall(line)
        if not re.match(r"[a-z]+:|#", target) and _resolve(source.path, target) not in there
    ]


def _resolve(path: str, target: str) -> str:
    """A link's file, relative to the checkout."""
    parts: list[str] = []
    for part in (PurePosixPath(path).parent / target.partition("#")[0]).parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts) or "."
