# SPDX-License-Identifier: BSD-3-Clause
"""Every rule of the wall fires on what it forbids, and lets pass what it allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from .house import layers, purity, sets, shape, text
from .house.tree import PACKAGE, Source

Rule = Callable[[Sequence[Source]], list[str]]

SPDX = "# SPDX-License-Identifier: BSD-3-Clause\n"
SLEEP = "sle" + "ep(1)"
LATER = "TO" + "DO"
HOST = "pypi" + ".org"
FOLDER = "/ro" + "ot/x"

# The tree that the samples are put into.
AROUND = tuple(
    Source(f"{PACKAGE}/{path}.py", "")
    for path in (
        "__init__", "app", "broker", "client", "core/__init__", "core/model/__init__", "hub",
        "devices/__init__", "devices/nvml", "engines/__init__", "engines/local", "engines/shim",
        "engines/slurm", "extension/__init__", "inject/__init__", "inject/gpubroker/__init__",
        "policy", "service/__init__", "spawner", "store/__init__", "store/sql", "wire",
    )
)  # fmt: skip


def findings(rule: Rule, path: str, code: str) -> list[str]:
    others = tuple(source for source in AROUND if source.path != path)
    return [found for found in rule((*others, Source(path, code))) if found.startswith(path)]


def module(name: str) -> str:
    return f"{PACKAGE}/{name}.py"


GOES_UP = [
    ("core/quota", "from ..store import Entry"),
    ("core/quota", "from .. import store"),
    ("core/model/job", "from ...wire import JobView"),
    ("store/sql", "from ..engines import Launch"),
    ("store/sql", "def f():\n    from ..broker import Broker"),
    ("policy", "from .wire import JobView"),
    ("wire", "from . import client"),
    ("client", "from .policy import parse"),
    ("spawner", "from .core.model import Job"),
    ("spawner", "from . import broker"),
    ("extension/app", "from ..service import app"),
    ("extension/app", "import importlib\nimportlib.import_module('..service', __package__)"),
    ("provisioner", "if TYPE_CHECKING:\n    from .extension import Extension"),
    ("hub", "from .broker import Broker"),
    ("service/jobs", "from ..engines.local import LocalEngine"),
    ("service/jobs", "from ..store.sql import SqlStore"),
    ("broker", "from .store.sql import SqlStore"),
    ("broker", "from .devices import Devices"),
    ("engines/local", "from ..store import Entry"),
    ("engines/local", "from .slurm import SlurmEngine"),
    ("engines/local_paths", "from . import slurm"),
    ("devices/nvml", "from ..engines import Launch"),
    ("inject/gpubroker/magics", "from ...client import Client"),
    ("elsewhere", "from .core.model import Job"),
    ("__init__", "from .core.model import Job"),
    ("core/quota", "from .. import __version__"),
    ("wire", "from . import __version__"),
    ("app", f"import {PACKAGE}"),
]
GOES_DOWN = [
    ("core/quota", "from .model import Job\nimport math"),
    ("store/sql", "from . import Entry\nfrom ..core.model import Job"),
    ("broker", "from .store import Writes\nfrom .engines import Report\nfrom .core import events"),
    ("engines/local", "from . import Launch\nfrom .shim import run\nfrom ..devices import Devices"),
    ("spawner", "from .client import AsyncClient\nfrom .wire import JobView\nfrom . import inject"),
    ("service/jobs", "from ..broker import Broker\nfrom ..store import Entry\nfrom .. import wire"),
    ("app", "from .store.sql import SqlStore\nfrom .engines.local import LocalEngine"),
    ("app", "from .client import Client\nfrom .devices import nvml\nfrom .core.model import Job"),
    ("__init__", "def hook():\n    from .extension import Extension"),
    ("client", "import httpx"),
]


@pytest.mark.parametrize(("name", "code"), GOES_UP)
def test_an_import_that_goes_up_is_found(name: str, code: str) -> None:
    assert findings(layers.layers, module(name), code)


@pytest.mark.parametrize(("name", "code"), GOES_DOWN)
def test_an_import_that_goes_down_is_allowed(name: str, code: str) -> None:
    assert not findings(layers.layers, module(name), code)


ITERATED = [
    "for x in {1, 2}:\n    pass",
    "for x in set(jobs):\n    pass",
    "[x for x in frozenset(jobs)]",
    "{x: 1 for x in {y for y in jobs}}",
    "list({1, 2})",
    "tuple(a.keys() & b.keys())",
    "LIVE = frozenset(states)\nfor state in LIVE:\n    pass",
    "def f():\n    mine = set()\n    other = mine | yours\n    return [x for x in other]",
    "def f(names: frozenset[str]):\n    yield from names",
    "class A:\n    names: set[str]\n\ndef f(a: A):\n    for name in a.names:\n        pass",
    "class A:\n    def names(self) -> frozenset[str]: ...\n\nx = [n for n in a.names]",
    "', '.join({1, 2})",
    "[*{1, 2}]",
    "print(*{1, 2})",
    "enumerate(seen.union(more))",
    "seen = {1}\nseen.pop()",
    "min({1, 2}, key=cost)",
    "sorted({1, 2}, key=cost)",
    "sum(x for x in {1.0, 2.0})",
    "from .model import LIVE_ELSEWHERE\nfor state in LIVE_ELSEWHERE:\n    pass",
]
NOT_ITERATED = [
    "for x in sorted({1, 2}):\n    pass",
    "any(x for x in {1, 2})",
    "x in {1, 2}",
    "seen = {1}\nseen.add(2)\nlen(seen)",
    "{x for x in {1, 2}}",
    "sorted(x for x in frozenset(jobs))",
    "min({1, 2})",
    "for x in [1, 2]:\n    pass",
    "flags = a | b\nlist(flags)",
    "jobs = {}\nfor job in jobs:\n    pass",
    "rest = total - used\nrange(rest)",
]


@pytest.mark.parametrize("code", ITERATED)
def test_a_set_that_is_walked_through_is_found(code: str) -> None:
    elsewhere = Source(module("core/model/elsewhere"), "LIVE_ELSEWHERE = frozenset({1})")
    assert sets.set_iteration([elsewhere, Source(module("core/quota"), code)])


@pytest.mark.parametrize("code", NOT_ITERATED)
def test_a_set_whose_order_cannot_show_is_allowed(code: str) -> None:
    assert not sets.set_iteration([Source(module("core/quota"), code)])


CORE, INJECT, TEST = module("core/quota"), module("inject/gpubroker/x"), "tests/test_x.py"
FUTURE = "from __future__ import annotations\n"
DOC = '"""What."""\n'

BAD: list[tuple[Rule, str, str]] = [
    (layers.absolute, module("client"), f"from {PACKAGE}.wire import JobView"),
    (layers.absolute, module("client"), f"import {PACKAGE}.wire"),
    (shape.unparsable, CORE, "def f("),
    (shape.long_files, "labextension/src/a.ts", "x\n" * 501),
    (shape.long_functions, CORE, "def f():\n" + "    x\n" * 60),
    (shape.long_functions, CORE, "class A:\n  async def f(self):\n" + "    x\n" * 60),
    (shape.many_parameters, CORE, "def f(a, b, c, d, e, f, g): ..."),
    (shape.many_parameters, CORE, "def f(a, b, c, /, d, *, e, f, g): ..."),
    (shape.undocumented, CORE, "x = 1"),
    (shape.undocumented, CORE, DOC + "def f(): ..."),
    (shape.undocumented, CORE, DOC + "class A: ..."),
    (shape.undocumented, CORE, DOC + f"class A:\n    {DOC}    def f(self): ..."),
    (shape.undocumented, CORE, DOC + "if x:\n    def f(): ..."),
    (shape.unannotated, CORE, "def f(a) -> None: ..."),
    (shape.unannotated, CORE, "def f(a: int): ..."),
    (shape.unannotated, CORE, "class A:\n    def _f(self, *args) -> None: ..."),
    (shape.unannotated, CORE, "def f() -> None:\n    def g(x) -> None: ..."),
    *((purity.impure_imports, CORE, f"import {name}") for name in purity.IMPURE),
    (purity.impure_imports, CORE, "from time import monotonic"),
    (purity.impure_imports, CORE, "def f():\n    import asyncio"),
    (purity.impure_imports, CORE, "import pydantic"),
    (purity.impure_calls, CORE, "hash('a')"),
    (purity.impure_calls, CORE, "async def f(): ..."),
    (purity.simulated_conditions, module("app"), "if simulated: ..."),
    (purity.simulated_conditions, module("app"), "x = 1 if kind == 'simulated' else 2"),
    (purity.simulated_conditions, module("app"), "same = node.flavor == 'simulated'"),
    (purity.simulated_conditions, module("app"), "f(not config.Simulated)"),
    (purity.simulated_conditions, module("app"), "match kind:\n    case 'simulated': ..."),
    (purity.simulated_conditions, module("app"), "match kind:\n    case _ if simulated: ..."),
    (purity.simulated_conditions, module("app"), "[x for x in xs if x.simulated]"),
    (purity.simulated_conditions, module("app"), "while is_simulated(): ..."),
    (purity.inject_imports, INJECT, "import requests"),
    (purity.inject_imports, INJECT, "import tomllib"),
    (purity.inject_imports, INJECT, f"import {PACKAGE}"),
    (purity.inject_imports, INJECT, "from ... import client"),
    (purity.newer_python, INJECT, FUTURE + "match x:\n    case 1: ..."),
    (purity.newer_python, INJECT, FUTURE + "try: ...\nexcept* OSError: ..."),
    (purity.newer_python, INJECT, FUTURE + "@dataclass(slots=True)\nclass A: ..."),
    (purity.newer_python, INJECT, FUTURE + "zip(a, b, strict=True)"),
    (purity.newer_python, INJECT, FUTURE + "from enum import StrEnum"),
    (purity.newer_python, INJECT, "def f(x: int | None) -> None: ..."),
    (text.without_license, "a.py", "import os\n"),
    (text.without_license, "a.py", DOC + SPDX),
    (text.without_license, "a.ts", "export {};\n"),
    (text.without_license, "a.ts", "// SPDX-License-Identifier: MIT\n"),
    (text.without_license, ".ci/run", "#!/usr/bin/env bash\nset -e\n"),
    (text.put_off, "a.py", f"# {LATER}: more"),
    (text.machine_paths, "docs/a.md", f"see {FOLDER}"),
    (text.registry_hosts, "README.md", f"https://{HOST}/project"),
    (text.lost_cancels, TEST, "await asyncio." + "wait_for(queue.get(), 1)"),
    (text.sleeps, TEST, f"time.{SLEEP}"),
    (text.sleeps, TEST, f"await asyncio.{SLEEP}"),
    (text.sleeps, TEST, f"script = 'import time; time.{SLEEP}'"),
    (text.sleeps, TEST, "page.wait_for_time" + "out(100)"),
    (text.doubles, TEST, "from unittest import mock"),
    (text.doubles, TEST, "import unittest.mock"),
    (text.doubles, TEST, "from unittest.mock import patch"),
    (text.doubles, TEST, "MagicMock()"),
    (text.doubles, TEST, "x.AsyncMock()"),
    (text.doubles, TEST, "monkeypatch.setattr(a, 'b', c)"),
    (text.doubles, TEST, "with patch('a.b'): ..."),
    (text.skips, TEST, "pytest.skip('no')"),
    (text.skips, TEST, "@pytest.mark.skipif(x, reason='no')\ndef test_x(): ..."),
    (text.skips, TEST, "torch = pytest.importorskip('torch')"),
    (text.simulated_in_the_browser, "labextension/src/a.ts", "if (node.simulated) {"),
    (text.simulated_in_the_browser, "labextension/src/a.tsx", "x = isSimulated ? 1 : 2"),
]

GOOD: list[tuple[Rule, str, str]] = [
    (layers.absolute, module("client"), "from .wire import JobView"),
    (shape.long_files, "labextension/src/a.ts", "x\n" * 500),
    (shape.long_functions, CORE, "def f():\n" + "    x\n" * 59),
    (shape.many_parameters, CORE, "class A:\n    def f(self, a, b, c, d, e, f): ..."),
    (shape.undocumented, CORE, DOC + "def _f(): ...\nclass _A:\n    def f(self): ..."),
    (shape.undocumented, CORE, ""),
    (shape.unannotated, CORE, "class A:\n    def f(self, a: int, *b: int) -> None: ..."),
    (purity.impure_imports, CORE, "import math\nfrom collections.abc import Mapping"),
    (purity.impure_calls, CORE, "hashed(1)\nself.hash(2)"),
    (purity.simulated_conditions, module("devices/choose"), "if simulated: ..."),
    (purity.simulated_conditions, module("app"), "from .devices import simulated"),
    (
        purity.inject_imports,
        INJECT,
        "import json\nfrom IPython import get_ipython\nfrom . import y",
    ),
    (purity.newer_python, INJECT, FUTURE + "def f(x: int | None) -> None: ..."),
    (text.without_license, "a.py", SPDX + DOC),
    (text.without_license, ".ci/run", "#!/usr/bin/env bash\n" + SPDX),
    (text.without_license, "a.css", "/* SPDX-License-Identifier: BSD-3-Clause */\n"),
    (text.without_license, "tests/__init__.py", ""),
    (text.without_license, "policy.yaml", "a: 1\n"),
    (text.put_off, "a.py", "# a list of things to do"),
    (text.machine_paths, "docs/a.md", f"~{FOLDER} and a{FOLDER}"),
    (text.registry_hosts, "README.md", "https://jupyter.org"),
    (text.lost_cancels, TEST, "async with asyncio.timeout(1): await queue.get()"),
    (text.sleeps, TEST, "Popen(['sleep', '100'])"),
    (text.doubles, TEST, "monkeypatch.setenv('A', 'b')\nmonkeypatch.chdir(x)\nclient.patch(y)"),
    (text.skips, TEST, "needs.program('gcc', enable='apt-get install gcc')"),
    (text.skips, "tests/needs.py", "pytest.skip('why')"),
    (text.simulated_in_the_browser, "labextension/src/a.ts", "const title = 'Simulated GPUs';"),
]


@pytest.mark.parametrize(("rule", "path", "code"), BAD)
def test_what_a_rule_forbids_is_found(rule: Rule, path: str, code: str) -> None:
    assert findings(rule, path, code)


@pytest.mark.parametrize(("rule", "path", "code"), GOOD)
def test_what_a_rule_allows_is_not_found(rule: Rule, path: str, code: str) -> None:
    assert not findings(rule, path, code)


def test_the_median_length_of_functions_is_measured() -> None:
    code = "def a():\n    x\n\ndef b():\n    x\n    x\n\nasync def c():\n" + "    x\n" * 9
    assert shape.median_lines([Source(CORE, code)]) == 3


def test_links_are_followed_from_where_they_stand() -> None:
    there = ["docs/index.md", "docs/how-to/run.md", "README.md"]
    page = (
        "[a](run.md) [b](../index.md#top) [c](../../README.md) [d](https://x.y) [e](#here) [f](..)"
    )
    assert not text.dead_links([Source("docs/how-to/run.md", page)], there)
    lost = Source("docs/how-to/run.md", "see\n[a](index.md) and [b](../run.md 'title')")
    assert [found.split(":")[1] for found in text.dead_links([lost], there)] == ["2", "2"]
