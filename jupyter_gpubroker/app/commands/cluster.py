# SPDX-License-Identifier: BSD-3-Clause
"""``nodes`` and ``policy``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ... import policy as policies
from ...core.model import Policy
from ...documents import Difference
from ...inject.gpubroker import views
from ...wire import NodeOut, PolicyOut, Refusal
from .command import FAILED, OK, USAGE, Command, Verbs


class NodesApp(Command):
    """The machines and their GPUs: what is free, and who holds what."""

    word = "nodes"

    def run(self) -> int:
        """See the class."""
        with self.client() as client:
            answer = client.nodes()
        self.show(answer, node_rows(answer))
        return OK


def node_rows(nodes: Sequence[NodeOut]) -> views.Rows:
    """One line for each device, or for a node without one; islands where any node has two."""
    islands = any(
        device.island != node.devices[0].island for node in nodes for device in node.devices
    )
    island = ("island",) if islands else ()
    columns = [
        (name, lambda row, name=name: str(row[name]))
        for name in ("node", "gpu", *island, "flavor", "memory", "free", "users", "note")
    ]
    return views.Rows(_lines(nodes), columns, "No machine is known yet.")


def _lines(nodes: Sequence[NodeOut]) -> Iterator[dict[str, Any]]:
    for node in nodes:
        for device in node.devices:
            holders = " ".join(device.users)
            slice_ = ("MIG slice",) if device.mig else ()
            leaving = [kind for kind in device.kinds if kind not in ("session", "batch")]
            yield {
                "node": node.name,
                "gpu": device.index,
                "island": device.island,
                "flavor": device.flavor,
                "memory": f"{device.memory_mib / 1024:.0f} GiB",
                "free": f"{device.free_milli / 1000:g}",
                "users": holders,
                "note": ", ".join(filter(None, (*slice_, node.note, device.note, *leaving))),
            }
        if not node.devices:
            empty = dict.fromkeys(("gpu", "island", "flavor", "memory", "free", "users"), "")
            yield {"node": node.name, **empty, "note": node.note or "no GPU"}


class PolicyApp(Command):
    """The policy: show it, check a file, compare it, or put it in force (admins)."""

    word = "policy"

    @classmethod
    def arguments(cls, parser: argparse.ArgumentParser) -> None:
        """See ``Command.arguments``."""
        verbs = Verbs(parser, "show|check|diff|apply", required=True)
        verbs.add("show", "the policy in force")
        for verb, words in (
            ("check", "is a file right? needs no broker"),
            ("diff", "what applying a file would change; the exit code is 1 if anything"),
            ("apply", "use it"),
        ):
            verbs.add(verb, words).add_argument("file", help="policy.yaml; - = standard input")

    def run(self) -> int:
        """See the class. A file that is no policy: exit code 2, and nothing is done."""
        try:
            return self._verb()
        except Refusal as refusal:
            return self._failed(USAGE, "wrong input", str(refusal), field=refusal.field)

    def _verb(self) -> int:
        if self.args.verb == "check":
            policy = parse(self.args.file)
            names = {"classes": list(policy.classes), "queues": list(policy.queues)}
            words = ", ".join(f"{key} {' '.join(items)}" for key, items in names.items())
            self.show({"ok": True, **names}, f"{self.args.file} is right: {words}")
            return OK
        with self.client() as client:
            if self.args.verb == "show":
                answer = client.policy()
                self.show(answer, policy_text(answer))
            elif self.args.verb == "diff":
                return self._diff(client.policy())
            else:
                answer = client.apply_policy(read(self.args.file))
                self.show(answer, f"revision {answer.revision} is in force")
        return OK

    def _diff(self, stored: PolicyOut) -> int:
        text = read(self.args.file)
        _parse(self.args.file, text)
        found = policies.differences(stored.document, text)
        lines = [{"key": each.key, "old": each.old, "new": each.new} for each in found]
        self.show({"revision": stored.revision, "differences": lines}, _told(found))
        return FAILED if found else OK


def _told(found: Sequence[Difference]) -> str:
    return "\n".join(map(str, found)) or "nothing would change"


def parse(name: str) -> Policy:
    """The policy of a file; Refusal naming the file besides what is wrong in it."""
    return _parse(name, read(name))


def _parse(name: str, text: str) -> Policy:
    try:
        return policies.parse(text)
    except Refusal as refusal:
        head, *rest = refusal.message.splitlines()
        file = "standard input" if name == "-" else name
        where = "\n".join([f"{head} in {file}", *rest])
        raise Refusal(refusal.field, where, refusal.remedy) from None


def policy_text(policy: PolicyOut) -> str:
    """The document with a heading that is a comment in it."""
    since = views.clock(policy.time) if policy.time else "the beginning"
    heading = f"# revision {policy.revision} by {policy.author}, since {since}"
    drift = f"\n# {policy.drift}" if policy.drift else ""
    return f"{heading}{drift}\n{policy.document.rstrip()}"


def read(name: str) -> str:
    """A text file; Refusal if it cannot be read."""
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text("utf-8")
    except OSError as error:
        raise Refusal("file", f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Refusal("file", f"{name} is not UTF-8 text") from None
