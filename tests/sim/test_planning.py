# SPDX-License-Identifier: BSD-3-Clause
"""A world as a literal -> the Plan, or an error that says where, what and how else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from jupyter_gpubroker.app.commands.simulation import PlanApp
from jupyter_gpubroker.core.model import Refusal, State
from jupyter_gpubroker.sim.planning import plan, read

from ..house.tree import ROOT

WORLD = """\
now: 100000
nodes:
  - {name: n1, gpus: 4}
  - {name: n2, gpus: 4}
jobs:
  - {id: s-1, kind: session, state: running, user: ana, gpus: 1, placement: [n1/0],
     granted: 95000, expires: 200000, idle: {since: 99000, memory_mib: 100}}
  - {id: b-1, state: running, gpus: 4, time_limit: 6h, granted: 90000,
     placement: [n2/0, n2/1, n2/2, n2/3]}
  - {id: b-2, user: bo, gpus: 4, time_limit: 1h}
"""


def placed(made: dict[str, Any]) -> dict[str, list[str]]:
    return {item["job"]: [share["device"] for share in item["placement"]] for item in made["place"]}


def test_who_fits_starts_and_who_does_not_is_told_why() -> None:
    made = plan(
        "nodes: [{name: n1, gpus: 2}]\n"
        "jobs: [{id: a, gpus: 1, submitted: 1}, {id: b, gpus: 2, submitted: 2}]\n"
    )
    assert placed(made) == {"a": ["n1/0"]}
    why = made["why"]["b"]
    assert (why["position"], why["code"]) == (1, "capacity")
    assert why["text"]
    assert why["waits_for"] == ["a"]


def test_gpus_of_one_island_go_together() -> None:
    node = "{name: n1, gpus: 4, islands: [[0, 2], [1, 3]]}"
    assert placed(plan(f"nodes: [{node}]\njobs: [{{id: a, gpus: 2}}]"))["a"] == ["n1/0", "n1/2"]


@pytest.mark.parametrize(
    ("islands", "told"),
    [("[[0, 1, 2, 3]]", ["s0", "s1"]), ("[[0, 2], [1, 3]]", ["s0", "s2"])],
)
def test_victims_that_lose_the_same_are_of_one_island(islands: str, told: list[str]) -> None:
    jobs = "".join(
        f"  - {{id: s{i}, kind: session, state: running, gpus: 1, placement: [n1/{i}],\n"
        f"     granted: 95000, expires: 200000, idle: {{since: {99000 + i}, memory_mib: 100}}}}\n"
        for i in range(4)
    )
    node = f"{{name: n1, gpus: 4, islands: {islands}}}"
    made = plan(f"now: 100000\nnodes: [{node}]\njobs:\n{jobs}  - {{id: b, gpus: 2}}\n")
    assert [notice["job"] for notice in made["notices"]] == told


@pytest.mark.parametrize("islands", ["[[0, 1]]", "[[0, 1, 2], [2]]", "[[0, 1, 2, 3]]"])
def test_each_gpu_is_in_one_island(islands: str) -> None:
    with pytest.raises(Refusal, match=r"nodes\[0\].*name each GPU, 0 to 2, in one of its islands"):
        plan(f"nodes: [{{name: n1, gpus: 3, islands: {islands}}}]")


def test_an_idle_session_is_told_for_whom_it_leaves() -> None:
    made = plan(WORLD)
    assert made["notices"] == [{"job": "s-1", "reason": "idle", "deadline": 100120.0, "for": "b-2"}]
    assert [item["job"] for item in made["reservations"]] == ["b-2"]
    assert made["why"]["b-2"]["waits_for"] == ["s-1"]


def test_a_notice_that_nobody_needs_is_taken_back() -> None:
    made = plan(
        "now: 1000\n"
        "nodes: [{name: n1, gpus: 1}]\n"
        "jobs:\n"
        "  - {id: s, kind: session, state: draining, gpus: 1, placement: [n1/0],\n"
        "     notice: {reason: idle, deadline: 1100, for: gone}}\n"
    )
    assert made["reprieves"] == ["s"]


def test_the_policy_and_the_usage_of_the_world_decide() -> None:
    shipped = read(WORLD)[1]
    assert sorted(shipped.classes) == ["batch", "interactive"]
    text = (
        "nodes: [{name: n1, gpus: 1}]\n"
        "policy:\n"
        "  default_queue: all\n"
        "  queues: {all: {}}\n"
        "  classes:\n"
        "    any: {kinds: [batch, session], time: {default: 1h, max: 2h}}\n"
        "    high: {kinds: [batch], priority: 5, time: {default: 1h, max: 2h}}\n"
        "jobs:\n"
        "  - {id: a, gpus: 1, user: ana, submitted: 1}\n"
        "  - {id: b, gpus: 1, user: bo, submitted: 2}\n"
    )
    assert placed(plan(text)) == {"a": ["n1/0"]}
    used = "usage: [{user: ana, gpu_seconds: 1e6}]\n"
    assert placed(plan(text + used)) == {"b": ["n1/0"]}
    high = "  - {id: c, gpus: 1, user: ana, submitted: 3, class: high}\n"
    assert placed(plan(text + high)) == {"c": ["n1/0"]}


def test_every_state_can_be_written_down() -> None:
    text = """\
now: 500
nodes: [{name: n1, devices: [{uuid: big, memory_mib: 1000}, {uuid: off, usable: false}]},
        {name: n2, gpus: 8, cpu_milli: 4000}]
jobs:
  - {id: held, state: held, gpus: 1}
  - {id: starts, state: starting, gpu_milli: 500, placement: ["big:500"]}
  - {id: runs, state: running, memory_mib: 250, placement: ["big:250"]}
  - {id: gang, state: running, nodes: 1, gpus: 2, placement: [n2/0, n2/1]}
  - {id: drains, kind: session, state: draining, gpus: 1, placement: [n2/2],
     notice: {reason: holder, deadline: 900}}
  - {id: stops, state: stopping, gpus: 1, placement: [n2/3],
     notice: {reason: cancel, deadline: 500}}
  - {id: parked, kind: session, state: parked, gpus: 1, parked_on: {node: n2, devices: [n2/4]}}
  - {id: resumes, kind: session, gpus: 1, parked_on: {node: n2, devices: [n2/5]}}
  - {id: absent, kind: session, gpus: 1, server_up: false}
  - {id: promised, gpus: 2, reserved: {placement: [n2/3, n2/6], start: 530, promised: true}}
quarantined: [{placement: [n2/7]}]
"""
    snapshot, _ = read(text)
    assert {job.state for job in snapshot.jobs.values()} == {
        State(name)
        for name in ("held", "starting", "running", "draining", "stopping", "parked", "queued")
    }
    made = plan(text)
    assert placed(made)["resumes"] == ["n2/5"]
    assert made["why"]["held"]["code"] == "held"
    assert made["why"]["absent"]["code"] == "server"


# --- what a world can say must count: the same world with and without it gives two Plans ---

RULES = """\
now: 100000
nodes: [{name: n1, gpus: 1}, {name: n2, gpus: 1}]
policy:
  default_queue: fair
  queues:
    fair: {}
    poor: {budget: {gpu_hours: 2, per: 1-00:00:00}}
    attained: {order: attained}
    shortest: {order: shortest}
  classes:
    low: {kinds: [batch, session], time: {default: 1h, max: 2h}, yields_to: [high]}
    high: {kinds: [batch], priority: 5, time: {default: 1h, max: 2h}}
  levels: {first: 30m, factor: 2, aging: 0}
"""
WAIT = """\
jobs:
  - {id: a, nodes: 2, gpus: 1, queue: Q, submitted: 1 A}
  - {id: b, nodes: 2, gpus: 1, queue: Q, submitted: 2 B}
"""
RUN = """\
jobs:
  - {id: a, gpus: 1, state: running, placement: [n1/0], granted: 99000 A}
  - {id: b, gpus: 1, state: running, placement: [n2/0], granted: 99000 B}
  - {id: c, gpus: 1, class: high C}
"""
SESSIONS = RUN.replace("gpus: 1, state", "kind: session, gpus: 1, state")


def decided(text: str, said: dict[str, str]) -> str:
    for mark in "ABC":
        text = text.replace(f" {mark}}}", said.get(mark, "") + "}")
    return json.dumps(plan(RULES + text))


@pytest.mark.parametrize(
    ("text", "mark", "word", "only_with_it"),
    [
        ("jobs: [{id: a, gpus: 1 A}]", "A", ", avoid: {n1: 100300}", '"node": "n2"'),
        ("jobs: [{id: a, gpus: 1 A}]", "A", ", barred: not now", '"text": "not now"'),
        (WAIT.replace("Q", "attained"), "A", ", gpu_seconds: 7200", '"place": [{"job": "b"'),
        (WAIT.replace("Q", "shortest"), "B", ", served: 30m", '"place": [{"job": "b"'),
        (WAIT.replace("Q", "shortest"), "A", ", extended: 1h", '"place": [{"job": "b"'),
        (RUN, "A", ", saved: 99990", '"notices": [{"job": "b"'),
        (RUN, "C", ", left_for: [a]", '"notices": [{"job": "b"'),
        (SESSIONS, "A", ", used_mib: 1000", '"notices": [{"job": "b"'),
    ],
)
def test_what_a_job_says_counts(text: str, mark: str, word: str, only_with_it: str) -> None:
    assert only_with_it in decided(text, {mark: word})
    assert only_with_it not in decided(text, {})


@pytest.mark.parametrize(
    ("word", "code"),
    [
        ("spent: [{user: user, queue: poor, gpu_seconds: 5000}]", "limit"),
        ("spent: [{user: other, queue: poor, gpu_seconds: 5000}]", "limit"),
        ("spent: [{user: user, queue: poor, gpu_seconds: 5000, granted: 80000}]", None),
        ("spent: [{user: user, queue: attained, gpu_seconds: 5000}]", None),
        ("reserve: [{gpus: 1}]", "reserve"),
        ("reserve: [{gpu_milli: 500}, {sessions: 2, gpu_milli: 250}]", "reserve"),
        ("", None),
    ],
)
def test_budgets_and_room_for_sessions_are_told(word: str, code: str | None) -> None:
    runs = "{id: r, gpus: 1, state: running, placement: [n2/0], queue: fair}"
    made = plan(f"{RULES}{word}\njobs: [{runs}, {{id: a, gpus: 1, queue: poor}}]")
    assert made["why"].get("a", {}).get("code") == code


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("now:", "then:", "then: unknown key at line 1 (known keys: jobs, nodes, now, policy"),
        ("gpus: 4, time_limit: 1h", "gpuz: 4", "jobs[2].gpuz: unknown key at line 10 (known keys:"),
        ("id: b-2", "id: b-1", "jobs[2].id: b-1 is there twice at line 10"),
        ("user: bo, gpus: 4", "user: bo", "jobs[2].gpus: must be at least 1"),
        ("user: bo, gpus: 4", "gpus: true", "jobs[2].gpus: must not be true or false at line 10"),
        ("now: 100000", "now: true", "now: must not be true or false at line 1"),
        ("user: bo, gpus: 4", "user: bo, cpu_milli: 1000", "jobs[2].gpus: must be at least 1"),
        ("1h}", "1 hour}", "jobs[2].time_limit: '1 hour' is not a duration (for example 90s"),
        ("[n1/0]", "[n1/9]", "jobs[0].placement[0]: 'n1/9' is not a GPU of this world at line 6"),
        ("[n1/0]", "[n2/0]", "jobs[1].placement[0]: 2000 thousandths of n2/0 are held"),
        ("[n1/0]", "['n1/0:0']", "jobs[0].placement[0]: '0' is no share at line 6"),
        ("[n1/0]", "[n1/0, n1/1]", "jobs[0].placement: has 2 GPUs on n1, it wants 1 GPU"),
        (", n2/3]", ", n1/3]", "jobs[1].placement: is on 2 nodes, it wants 1"),
        ("user: bo,", "queue: x,", "jobs[2].queue: 'x' is not a queue at line 10 (one of: default"),
        (
            "user: bo,",
            "class: interactive,",
            "jobs[2].class: 'interactive' is not a class for a ba",
        ),
        ("user: bo,", "state: running,", "jobs[2].placement: a job that is running must say pla"),
        ("user: bo,", "state: parked,", "jobs[2].state: a batch job is never parked"),
        ("user: bo,", "state: failed,", "jobs[2].state: b-2 has ended at line 10 (leave it out)"),
        ("user: bo,", "idle: {since: 1},", "jobs[2].idle: only a running session is judged idle"),
        ("user: bo,", "left_for: [x], kind: session,", "jobs[2].left_for: only a batch job reme"),
        ("user: bo,", "saved: 5,", "jobs[2].saved: only a batch job that has GPUs saves"),
        ("user: bo,", "used_mib: 5,", "jobs[2].used_mib: only a session that has GPUs parks"),
        ("s-1, kind", "s-1, used_mib: 5, kind", "jobs[0].used_mib: say it in idle at line 6"),
        ("state: running, user: ana", "barred: x, state: running", "jobs[0].barred: only who wa"),
        ("user: bo,", "avoid: {n3: 5},", "jobs[2].avoid.n3: n3 is not a node at line 10 (one of"),
        ("jobs:", "reserve: [{sessions: 2}]\njobs:", "reserve[0].gpus: must be at least 1"),
        ("jobs:", "spent: [{user: a, gpu_seconds: -1}]\njobs:", "spent[0].gpu_seconds: "),
        ("name: n2, gpus: 4", "name: n2", "nodes[1]: give its GPUs either as gpus: N or as dev"),
        ("name: n2", "name: n1", "nodes[1].name: n1 is there twice at line 4"),
        ("jobs:", "jobs: [", "world: not YAML at line"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_remedy(old: str, new: str, said: str) -> None:
    assert old in WORLD
    with pytest.raises(Refusal) as caught:
        plan(WORLD.replace(old, new, 1))
    assert str(caught.value).startswith(said) or said in str(caught.value), str(caught.value)


def test_json_is_read_as_well_and_the_schema_knows_it() -> None:
    world = YAML(typ="safe").load(WORLD)
    assert plan(json.dumps(world)) == plan(WORLD)
    schema = json.loads((ROOT / "docs/reference/world.schema.json").read_text("utf-8"))
    jsonschema.validate(world, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(world | {"jobs": [{"id": "a", "gpuz": 1}]}, schema)


def test_the_example_of_the_reference_is_a_world() -> None:
    page = (ROOT / "docs/reference/world.md").read_text("utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    assert plan(example)["notices"]


def run(*argv: str) -> int:
    app = PlanApp()
    app.initialize(list(argv))
    with pytest.raises(SystemExit) as left:
        app.start()
    assert isinstance(left.value.code, int)
    return left.value.code


def test_the_command_prints_json_and_leaves_with_2_where_the_world_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "world.yaml"
    file.write_text(WORLD)
    assert run("--world", str(file)) == 0
    assert json.loads(capsys.readouterr().out)["notices"]
    file.write_text(WORLD.replace("now:", "then:"))
    assert run("--world", str(file)) == 2
    said = capsys.readouterr()
    assert (said.out, "line 1" in said.err) == ("", True)
    assert run("--json", "--world", str(file)) == 2
    assert json.loads(capsys.readouterr().err)["field"] == "then"
    assert run("--world", str(tmp_path / "none.yaml")) == 2


def test_what_is_parked_takes_host_memory_and_another_session_is_asked() -> None:
    text = """
nodes:
  - {name: n1, gpus: 2, memory_mib: MEMORY}
  - {name: n2, gpus: 1, memory_mib: 200000}
jobs:
  - {id: first, kind: session, state: running, gpus: 1, placement: [n1/0],
     granted: -9000, expires: 9000, idle: {since: -5000, memory_mib: 40000}}
  - {id: second, kind: session, state: running, gpus: 1, placement: [n2/0],
     granted: -9000, expires: 9000, idle: {since: -5000, memory_mib: 50000}}
  - {id: parked, kind: session, state: parked, gpus: 1,
     parked_on: {node: n1, devices: [n1/1], memory_mib: 70000}}
  - {id: runs, kind: session, state: running, gpus: 1, placement: [n1/1],
     granted: -9000, expires: 9000, used_mib: 1}
  - {id: job, gpus: 1}
"""
    asked = {
        memory: [notice["job"] for notice in plan(text.replace("MEMORY", memory))["notices"]]
        for memory in ("0", "200000", "220000")
    }
    assert asked == {"0": ["first"], "200000": ["second"], "220000": ["first"]}


def test_a_session_that_starts_has_its_image_until_it_runs() -> None:
    text = """
nodes: [{name: n1, gpus: 2, memory_mib: 10000}]
jobs:
  - {id: back, kind: session, state: starting, gpus: 1, placement: [n1/0],
     parked_on: {node: n1, devices: [n1/0], memory_mib: 4000}}
  - {id: job, gpus: 1, host_memory_mib: NEED}
"""
    assert placed(plan(text.replace("NEED", "6000"))) == {"job": ["n1/1"]}
    assert placed(plan(text.replace("NEED", "6001"))) == {}
