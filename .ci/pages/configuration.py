# SPDX-License-Identifier: BSD-3-Clause
"""The reference of what can be configured where: Hub, spawner, server, broker, commands."""

from __future__ import annotations

import ast
import dataclasses
import inspect
from collections.abc import Iterator, Mapping

from traitlets import HasTraits

from jupyter_gpubroker import hub
from jupyter_gpubroker.app.commands.command import Command
from jupyter_gpubroker.app.serve import ServeApp
from jupyter_gpubroker.extension import GPUBrokerExtension
from jupyter_gpubroker.spawner import GPUBrokerMixin, wish

PLACES: Mapping[type[HasTraits], str] = {
    GPUBrokerMixin: "The spawner, in `jupyterhub_config.py`; `configure` sets the first three.",
    GPUBrokerExtension: "A Jupyter server, in `jupyter_server_config.py`.",
    ServeApp: "The broker, in `jupyter_gpubroker_config.py` or the file of `--config`.",
    Command: "Every other command, in the same file. `<Command>` is for example `QueueApp`.",
}


def page() -> str:
    """The arguments of ``configure``, the options of a start, and every trait."""
    lines = [
        "# Configuration",
        "",
        "Generated from the code by `make docs`; do not edit.",
        "",
        "## configure(c, …)",
        "",
        "`from jupyter_gpubroker.hub import configure`, at the end of a `jupyterhub_config.py`.",
        "",
        "| argument | if it is left out | |",
        "|---|---|---|",
        *_settings(),
        "",
        "## Options of a start",
        "",
        "What the spawn form sets, and what `user_options` of the Hub's REST API may hold.",
        "",
        *_options(),
    ]
    for owner, where in PLACES.items():
        lines += ["", f"## {owner.__name__}", "", where, "", "| trait | if it is left out | |"]
        lines += ["|---|---|---|", *_traits(owner)]
    return "\n".join([*lines, ""])


def _settings() -> Iterator[str]:
    about = attribute_docstrings(hub.Settings)
    for field in dataclasses.fields(hub.Settings):
        must = field.default is dataclasses.MISSING
        default = "must be given" if must else f"`{field.default!r}`"
        text = about.get(field.name) or _help(GPUBrokerMixin, field.name)
        yield f"| `{field.name}` | {default} | {text} |"


def attribute_docstrings(owner: type) -> dict[str, str]:
    """Name -> the docstring below it in the source of a class."""
    (tree,) = ast.parse(inspect.cleandoc(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    found = {}
    for item, below in zip(tree.body, tree.body[1:], strict=False):
        if isinstance(item, ast.AnnAssign) and isinstance(below, ast.Expr):
            assert isinstance(item.target, ast.Name)
            text = ast.literal_eval(below.value)
            found[item.target.id] = " ".join(text.split()).replace("``", "`")
    return found


def _options() -> Iterator[str]:
    """The table of the module's docstring."""
    for line in (wish.__doc__ or "").splitlines():
        if line.startswith("|"):
            yield line


def _help(owner: type[HasTraits], name: str) -> str:
    return " ".join((owner.class_traits()[name].help or "").split())


def _traits(owner: type[HasTraits]) -> Iterator[str]:
    for name, trait in owner.class_own_traits(config=True).items():
        known = trait.default_value if isinstance(trait.default_value, str | int | float) else ""
        default = f"`{known!r}`" if known != "" else ""
        text = _help(owner, name)
        shown = "<Command>" if owner is Command else owner.__name__
        if text:
            yield f"| `c.{shown}.{name}` | {default} | {text} |"
