# SPDX-License-Identifier: BSD-3-Clause
"""The story of the demo, step by step; every promise is checked and fails the demo."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hub import Hub
from notebooks import Cell, Notebook, Person, until

from jupyter_gpubroker.client import AsyncClient

TRAIN = (Path(__file__).resolve().parent / "train.py").read_text(encoding="utf-8")
SCRIPT = TRAIN.partition("\n")[2]  # a cell needs no licence line

# account -> (GPUs asked for, MiB to hold on each)
NOTEBOOKS = {
    "nb1": ("0.5", 1024),
    "nb2": ("2", 2048),
    "nb3": ("1", 2048),
    "nb4": ("3", 2048),
    "nb5": ("1", 2048),
}
EXPECTED_NODES = {"nb1": "node1", "nb2": "node1", "nb3": "node1", "nb4": "node2", "nb5": "node2"}
VICTIMS = ("nb1", "nb2", "nb4")

OPENING = (
    "two simulated machines with four GPUs each; nb1 … nb5 are researchers with notebooks, "
    "trainer has a job that needs six GPUs"
)

HOLD = """
import os
from jupyter_gpubroker.devices.simulated import hold
held = hold({mib})
story = "the variable of {name}"
print(os.environ["CUDA_VISIBLE_DEVICES"], os.getpid())
"""
WAIT = HOLD + "\nimport threading\nthreading.Event().wait()\n"
AGAIN = "held.touch()\nprint(story, os.getpid())"


class Broken(Exception):
    """A promise of the story did not hold."""


def promise(holds: object, words: str) -> None:
    """Broken with these words unless it holds."""
    if not holds:
        raise Broken(words)


@dataclass
class Actor:
    """One account of the story."""

    person: Person
    broker: AsyncClient
    notebook: Notebook | None = None
    pid: int = 0
    devices: str = ""


@dataclass
class Story:
    """Plays the story on a running Hub; ``timeline`` is what demo-report.json holds."""

    hub: Hub
    begun: float = field(default_factory=time.monotonic)
    timeline: list[dict[str, Any]] = field(default_factory=list)
    actors: dict[str, Actor] = field(default_factory=dict)

    def say(self, words: str, **facts: Any) -> None:
        """Print a step with its time, and keep it."""
        at = time.monotonic() - self.begun
        self.timeline.append({"at": round(at, 2), "step": words, **facts})
        print(f"[{at:6.1f} s] {words}", flush=True)

    async def play(self) -> None:
        """All five steps; Broken, TimeoutError or RuntimeError if one fails."""
        self.say(OPENING)
        await self._first_notebook()
        await self._more_notebooks()
        job, cell = await self._submit()
        await self._train(job, cell)
        await self._resume()
        for name, actor in self.actors.items():
            assert actor.notebook is not None
            await actor.notebook.save(*([AGAIN] if name in ("nb2", "nb4") else []))

    async def close(self) -> None:
        """Close pages and connections; servers and kernels live on."""
        for actor in self.actors.values():
            if actor.notebook is not None:
                actor.notebook.close()
            await actor.broker.close()
            await actor.person.web.aclose()

    # --- step 1 -------------------------------------------------------------------------

    async def _first_notebook(self) -> None:
        self.say("step 1: nb1 asks for half a GPU for 2 h in the spawn form")
        actor = await self._spawn("nb1", gpus="0.5", time="2h")
        self.say("nb1: JupyterLab is up")
        actor.notebook = await actor.person.notebook()
        await self._granted(actor, "0.5 GPU")
        await self._hold(actor, HOLD)

    async def _spawn(self, name: str, **choices: str) -> Actor:
        person = Person(name, self.hub.url, self.hub.password)
        await person.log_in()
        actor = Actor(person, AsyncClient(self.hub.broker_url, person.token))
        self.actors[name] = actor
        await person.spawn(**choices)
        return actor

    async def _granted(self, actor: Actor, words: str) -> None:
        session = await until(lambda: self._session(actor, "running"), f"{words} for its kernel")
        nodes = sorted({share.node for share in session.lease.shares})
        name = actor.person.name
        self.say(f"{name}: {words} granted on {', '.join(nodes)}", guarantees=_sentence(session))
        promise(nodes == [EXPECTED_NODES[name]], f"{name} is on {nodes}, not best fit")

    async def _session(self, actor: Actor, *states: str) -> Any:
        sessions = await actor.broker.sessions()
        return next((found for found in sessions if found.state in states), None)

    async def _hold(self, actor: Actor, code: str) -> None:
        """Run the first cell; a waiting one has printed before it waits."""
        name = actor.person.name
        assert actor.notebook is not None
        cell = await actor.notebook.start(code.format(name=name, mib=NOTEBOOKS[name][1]))
        found = await until(lambda: _printed(cell), f"the first cell of {name}")
        actor.devices, actor.pid = found.group(1), int(found.group(2))
        session = await self._session(actor, "running")
        leased = {share.device for share in session.lease.shares}
        promise(set(actor.devices.split(",")) == leased, f"{name}'s kernel sees other GPUs")
        words = f"{name}: its kernel (pid {actor.pid}) holds memory of {await _gpus(actor)}"
        self.say(words, devices=actor.devices.split(","))

    # --- step 2 -------------------------------------------------------------------------

    async def _more_notebooks(self) -> None:
        self.say("step 2: nb2 to nb5 start one after another, and trainer without a GPU")
        for name in ("nb2", "nb3", "nb4", "nb5"):
            gpus = NOTEBOOKS[name][0]
            actor = await self._spawn(name, gpus=gpus, time="2h")
            await self._granted(actor, f"{gpus} GPUs" if gpus != "1" else "1 GPU")
            actor.notebook = await actor.person.notebook()
            await self._hold(actor, WAIT if name == "nb5" else HOLD)
        trainer = await self._spawn("trainer", gpus="none")
        trainer.notebook = await trainer.person.notebook()
        promise(not await trainer.broker.sessions(), "trainer has a session")
        for name in ("nb1", "nb2", "nb3", "nb4"):
            await until(lambda n=name: self._idle(n), f"the broker to call {name} idle")
        busy = await self._session(self.actors["nb5"], "running")
        promise(busy and not busy.idle.idle, "nb5 is called idle while its cell runs")
        self.say("the broker calls nb1, nb2, nb3 and nb4 idle; nb5 is busy")

    async def _idle(self, name: str) -> bool:
        session = await self._session(self.actors[name], "running")
        return bool(session and session.idle and session.idle.idle)

    # --- step 3 -------------------------------------------------------------------------

    async def _submit(self) -> tuple[str, Cell]:
        self.say("step 3: trainer submits 2 nodes × 3 GPUs with %%gpu_submit")
        trainer = self.actors["trainer"]
        assert trainer.notebook is not None
        magic = f"%%gpu_submit --nodes 2 --gpus 3 --time 10m --name train\n{SCRIPT}"
        cell = await trainer.notebook.start(magic)
        job = await until(lambda: self._submitted(trainer), "the job to be in the queue")
        promise(job.state == "queued", f"it fits at once ({job.state})")
        why = await until(lambda: self._why(trainer, job.id), "the queue to say whom it waits for")
        users = ", ".join(sorted(why.waits_for_users))
        promise(sorted(why.waits_for_users) == sorted(VICTIMS), f"it waits for {users}")
        promise(why.until, "the queue does not say until when")
        self.say(
            f"train waits for {users} until {_clock(why.until)}: they are idle, and have "
            f"{why.until - time.time():.0f} s to say that they are not",
            job=job.id,
            why=why.text,
            waits_for=list(why.waits_for_users),
            until=why.until,
        )
        await cell.done.wait()
        promise(not cell.errors, "\n".join(cell.errors))
        queue = await trainer.notebook.run("%gpu_queue")
        promise(job.id in queue, f"%gpu_queue does not show {job.id}:\n{queue}")
        promise(all(name in queue for name in VICTIMS), f"%gpu_queue names nobody:\n{queue}")
        return job.id, cell

    async def _submitted(self, trainer: Actor) -> Any:
        return next(iter(await trainer.broker.jobs()), None)

    async def _why(self, trainer: Actor, job: str) -> Any:
        found = await trainer.broker.show(job)
        promise(found.state == "queued", f"{job} is {found.state} before anybody left")
        return found.why if found.why and found.why.waits_for else None

    # --- step 4 -------------------------------------------------------------------------

    async def _train(self, job: str, cell: Cell) -> None:
        self.say("step 4: the idle ones leave, then both agents start together")
        trainer = self.actors["trainer"]
        await until(lambda: self._state(trainer, job, "running"), "the gang to start")
        self.say("train: both torchrun agents run")
        done = await until(
            lambda: self._state(trainer, job, "completed", "failed"), "the training to end", 150.0
        )
        promise(done.state == "completed", f"the training {done.state}: {done.outcome}")
        promise(done.attempt == 1, f"the training took {done.attempt} attempts")
        promise(done.gpu_seconds > 0, "no GPU-seconds were accounted")
        seconds = round(done.gpu_seconds, 1)
        self.say(f"train: completed; it used {seconds:.0f} GPU-seconds", gpu_seconds=seconds)
        await self._check_notices(job)
        await self._check_logs(trainer, job, cell)

    async def _state(self, actor: Actor, job: str, *states: str) -> Any:
        found = await actor.broker.show(job)
        return found if found.state in states else None

    async def _check_notices(self, job: str) -> None:
        """Exactly three notices, and no agent before the last GPU was proven free."""
        trainer = self.actors["trainer"]
        story = (await trainer.broker.explain(job)).story
        placed = next(event for event in story if event.event == "job.placed")
        for name in NOTEBOOKS:
            actor = self.actors[name]
            session = (await actor.broker.sessions())[0]
            events = (await actor.broker.explain(session.id)).story
            noticed = [event for event in events if event.event == "job.noticed"]
            if name not in VICTIMS:
                promise(not noticed, f"{name} got a notice")
                promise(session.state == "running", f"{name} is {session.state}")
                continue
            promise(len(noticed) == 1, f"{name} got {len(noticed)} notices")
            freed = [event for event in events if event.event == "job.freed"]
            promise(freed, f"{name}'s GPUs were never proven free")
            promise(freed[0].seq < placed.seq, f"the gang was placed before {name} had left")
            promise(freed[0].facts.get("kept") == "gpu_state", f"{name} kept {freed[0].facts}")
            promise(session.state == "parked", f"{name} is {session.state}")
        self.say("exactly three notices (nb1, nb2, nb4); nb3 and nb5 were never touched")

    async def _check_logs(self, trainer: Actor, job: str, cell: Cell) -> None:
        ranks = (await trainer.broker.logs(job)).ranks
        promise(ranks == tuple(range(6)), f"there are logs of ranks {ranks}")
        for rank in ranks:
            text = (await trainer.broker.logs(job, rank=rank)).text
            promise(f"rank {rank} of 6 holds all of GPU-" in text, f"rank {rank}:\n{text}")
        losses = [float(x) for x in re.findall(r"loss ([\d.]+)", text)]
        promise(losses and losses[-1] < losses[0], f"the loss did not go down: {losses}")
        try:
            await until(lambda: "completed" in cell.shown, "the end", 30.0)
        except TimeoutError:
            raise Broken(f"the notebook does not show the end:\n{cell.shown}") from None
        promise("loss" in cell.shown, f"the notebook shows no log:\n{cell.shown}")
        self.say(f"6 ranks; loss {losses[0]} → {losses[-1]}; the logs are in the notebook")

    # --- step 5 -------------------------------------------------------------------------

    async def _resume(self) -> None:
        self.say("step 5: nb1 runs a cell; its session resumes by itself")
        actor = self.actors["nb1"]
        assert actor.notebook is not None
        text = await actor.notebook.run(AGAIN)
        promise("the variable of nb1 " in text, f"nb1's variable is gone:\n{text}")
        promise(f" {actor.pid}\n" in text, f"nb1's kernel is another process:\n{text}")
        session = await self._session(actor, "running", "starting")
        promise(session, "nb1's session does not run")
        self.say(f"nb1: the variable is there, in the same process (pid {actor.pid})")


def _printed(cell: Cell) -> re.Match[str] | None:
    if cell.errors:
        raise RuntimeError("\n".join(cell.errors))
    return re.search(r"(GPU-[\w,-]+) (\d+)", cell.text)


async def _gpus(actor: Actor) -> str:
    """The devices of an actor by the numbers that people know."""
    words = []
    for node in await actor.broker.nodes():
        mine = [str(d.index) for d in node.devices if d.uuid in actor.devices.split(",")]
        if mine:
            words.append(f"GPU{'s' * (len(mine) > 1)} {', '.join(mine)} on {node.name}")
    return ", ".join(words)


def _clock(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def _sentence(session: Any) -> str:
    return str(session.lease.guarantees.sentence)
