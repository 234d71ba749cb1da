# SPDX-License-Identifier: BSD-3-Clause
"""The wall: the tree obeys the rules of tests/house/, and every rule can fire.

What the rules are for is told in docs/architecture.md.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Sequence

import pytest

from .house import layers, purity, sets, shape, text
from .house.tree import PACKAGE, ROOT, Source, files, python, sources

INJECT = f"{PACKAGE}/inject"
CORE = f"{PACKAGE}/core"
OURS = (PACKAGE, "hub_config")
BROWSER = "labextension/src"

# What may stand at the top of the checkout, beside files that begin with a dot.
TOP = {
    "binder", "docs", "hub_config", "labextension", "requirements", "tests", PACKAGE,
    "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md", "pyproject.toml",
}  # fmt: skip

Rule = Callable[[Sequence[Source]], list[str]]


def _code() -> tuple[Source, ...]:
    return tuple(filter(text.is_code, sources()))


def _typescript() -> tuple[Source, ...]:
    return tuple(s for s in sources() if s.inside(BROWSER) and s.path.endswith((".ts", ".tsx")))


def _dead_links(every: Sequence[Source]) -> list[str]:
    return text.dead_links(every, files())


RULES: dict[str, tuple[Rule, Callable[[], Sequence[Source]]]] = {
    "every file can be parsed": (shape.unparsable, python),
    "an import only goes down": (layers.layers, lambda: python(PACKAGE)),
    "the package imports itself relatively": (layers.absolute, lambda: python(PACKAGE)),
    "a file fits in a reader's mind": (shape.long_files, _code),
    "a function fits on a screen": (shape.long_functions, python),
    "a function has few parameters": (shape.many_parameters, lambda: python(*OURS)),
    "every public name is documented": (shape.undocumented, lambda: python(*OURS)),
    "everything is annotated": (shape.unannotated, lambda: python(*OURS)),
    "the core imports only pure modules": (purity.impure_imports, lambda: python(CORE)),
    "the core touches nothing": (purity.impure_calls, lambda: python(CORE)),
    "the core iterates over no set": (sets.set_iteration, lambda: python(CORE)),
    "only devices/ asks what is simulated": (
        purity.simulated_conditions,
        lambda: python(PACKAGE),
    ),
    "the browser does not ask what is simulated": (text.simulated_in_the_browser, _typescript),
    "inject imports what every kernel has": (purity.inject_imports, lambda: python(INJECT)),
    "inject is Python 3.9": (purity.newer_python, lambda: python(INJECT)),
    "the licence is the first line": (text.without_license, sources),
    "nothing is put off in a comment": (text.put_off, _code),
    "no folder of one machine is named": (text.machine_paths, sources),
    "no package registry is named": (text.registry_hosts, sources),
    "no cancel is lost": (text.lost_cancels, lambda: python(PACKAGE)),
    "tests do not sleep": (text.sleeps, lambda: python("tests")),
    "tests have no mocks": (text.doubles, lambda: python("tests")),
    "a skip says what would enable it": (text.skips, lambda: python("tests")),
    "links in Markdown lead somewhere": (_dead_links, sources),
}


@pytest.mark.parametrize("name", RULES)
def test_the_tree_obeys(name: str) -> None:
    rule, where = RULES[name]
    looked_at = where()
    assert looked_at, "the rule looks at no file at all"
    findings = rule(looked_at)
    assert not findings, "\n" + "\n".join(findings)


def test_most_functions_are_short() -> None:
    median = shape.median_lines(python(PACKAGE))
    assert median <= shape.FUNCTION_LINES_MEDIAN, f"the median function has {median} lines"


def test_the_top_of_the_checkout_is_the_house() -> None:
    tops = {path.split("/")[0] for path in files()}
    assert {top for top in tops if not top.startswith(".")} <= TOP


def test_no_source_file_is_empty() -> None:
    empty = [s.path for s in _code() if not s.text.strip() and not s.path.endswith("__init__.py")]
    assert not empty


def test_the_documented_states_are_those_of_the_code() -> None:
    from jupyter_gpubroker.core.lifecycle import states_markdown

    assert (ROOT / "docs/states.md").read_text("utf-8") == states_markdown(), "run: make docs"


def test_the_changelog_has_a_place_for_what_is_new() -> None:
    assert re.search(r"^## \[Unreleased\]$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)


def test_there_is_one_version() -> None:
    from jupyter_gpubroker import __version__

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    browser = json.loads((ROOT / "labextension/package.json").read_text("utf-8"))
    assert project["version"] == __version__ == browser["version"]
    assert project["name"] == browser["name"] == "jupyter-gpubroker"
