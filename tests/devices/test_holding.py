# SPDX-License-Identifier: BSD-3-Clause
"""What a kernel can do with simulated GPUs, and how it loses them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys

import pytest

from jupyter_gpubroker.devices import processes
from jupyter_gpubroker.devices.simulated import HoldRefused, hold

from ..until import until
from .conftest import GIB, MEMORY, Lab
from .talk import ROOT


def test_a_lease_lets_a_process_hold_memory_on_each_of_its_devices(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one, two)
    assert holder.ask("hold", GIB) == ["ok", [one.device, two.device]]
    uses = lab.devices.usage()
    assert sorted(use.device for use in uses) == sorted([one.device, two.device])
    assert {(use.memory_mib, use.owner, use.parked) for use in uses} == {(GIB, "nb1/", False)}
    assert {use.process for use in uses} == {processes.process_of(holder.pid)}


def test_one_device_of_several_can_be_named(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one, two)
    assert holder.ask("hold", GIB, two.device) == ["ok", [two.device]]
    assert lab.used() == [(two.device, GIB, False)]


def test_holdings_of_one_process_add_up_and_go_one_by_one(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", 100)
    holder.ask("hold", 20)
    assert lab.used() == [(share.device, 120, False)]
    assert holder.ask("release", 0) == ["ok", None]
    assert lab.used() == [(share.device, 20, False)]
    assert holder.ask("release", 0) == ["ok", None]
    assert holder.ask("touch", 0)[0] == "HoldLost"
    assert holder.ask("touch", 1) == ["ok", [share.device]]


@pytest.mark.parametrize(
    "line",
    ["", "[", "\xff", "{}", "[1]", "1", "[1, true, 1, 'a', 5]", "[" * 9000, "[9e9, 1, 1, 1]"],
)
def test_what_is_no_allocation_blinds_nobody(lab: Lab, line: str) -> None:
    """Any account may write into the folders of the devices."""
    share = lab.share()
    lab.holder("nb1/", share).ask("hold", GIB)
    path = lab.root / "devices" / share.device / "odd"
    path.write_text(line, encoding="latin-1")
    with open(path) as odd:
        fcntl.flock(odd, fcntl.LOCK_EX)
        os.mkfifo(path.with_name("pipe"))
        assert lab.used() == [(share.device, GIB, False)]


def test_the_name_of_a_kernel_is_text_whatever_its_environment_says(lab: Lab) -> None:
    share = lab.share()
    lab.holder("nb1/", share, kernel="k\udcff1").ask("hold", GIB)
    (kept,) = lab.devices.park("nb1/")
    assert kept.kernel == "k?1"


def test_without_a_grant_nothing_is_held(lab: Lab) -> None:
    share = lab.share()
    word, text = lab.holder("nb1/", share, grant=False).ask("hold", GIB)
    assert word == "HoldRefused"
    assert "nb1/ has no lease" in text
    assert not lab.used()


def test_a_grant_is_for_its_devices_only(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one)
    holder.ask("see", f"{one.device},{two.device}")
    word, text = holder.ask("hold", GIB)
    assert word == "HoldRefused"
    assert two.device in text
    assert not lab.used(), "taken on all devices or on none"


def test_a_later_grant_replaces_the_earlier_one(lab: Lab) -> None:
    one, two = lab.share(0), lab.share(1)
    holder = lab.holder("nb1/", one)
    lab.devices.grant("nb1/", [two])
    assert holder.ask("hold", GIB)[0] == "HoldRefused"
    holder.ask("see", two.device)
    assert holder.ask("hold", GIB) == ["ok", [two.device]]


def test_a_revoked_owner_keeps_what_it_holds_and_gets_no_more(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", GIB)
    lab.devices.revoke("nb1/")
    lab.devices.revoke("nb1/")
    assert holder.ask("hold", GIB)[0] == "HoldRefused"
    assert holder.ask("touch", 0) == ["ok", [share.device]]
    assert lab.used() == [(share.device, GIB, False)]


def test_a_device_outside_the_environment_is_refused(lab: Lab) -> None:
    holder = lab.holder("nb1/", lab.share(0))
    word, text = holder.ask("hold", GIB, lab.share(1).device)
    assert word == "HoldRefused"
    assert "CUDA_VISIBLE_DEVICES" in text


def test_an_empty_environment_says_that_there_is_no_gpu(lab: Lab) -> None:
    word, text = lab.holder("nb1/").ask("hold", GIB)
    assert word == "HoldRefused"
    assert "no GPU" in text


def test_more_than_is_free_is_refused_with_both_figures(lab: Lab) -> None:
    share = lab.share()
    lab.holder("nb1/", share).ask("hold", MEMORY - 100)
    word, text = lab.holder("nb2/", share).ask("hold", 101)
    assert word == "HoldRefused"
    assert "asked for 101 MiB" in text
    assert "100 MiB" in text
    assert lab.holder("nb3/", share).ask("hold", 100) == ["ok", [share.device]]


@pytest.mark.parametrize("mib", [0, 6 * GIB], ids=["by milli", "by memory"])
def test_a_share_is_kept_to_its_part_of_the_memory(lab: Lab, mib: int) -> None:
    holder = lab.holder("nb1/", lab.share(milli=250, mib=mib))
    assert holder.ask("hold", 6 * GIB - 1)[0] == "ok"
    word, text = holder.ask("hold", 2)
    assert word == "HoldRefused"
    assert "1 MiB" in text
    assert holder.ask("hold", 1)[0] == "ok"


def test_what_others_hold_is_not_counted_against_a_share(lab: Lab) -> None:
    lab.holder("nb1/", lab.share(milli=500)).ask("hold", 12 * GIB)
    assert lab.holder("nb2/", lab.share(milli=500)).ask("hold", 12 * GIB)[0] == "ok"


@pytest.mark.parametrize("mib", [0, -1])
def test_an_amount_that_is_not_positive_is_a_value_error(mib: int) -> None:
    with pytest.raises(ValueError, match="positive"):
        hold(mib)


def test_a_process_outside_any_simulated_world_is_told_so(
    monkeypatch: pytest.MonkeyPatch, lab: Lab
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", lab.share().device)
    with pytest.raises(HoldRefused, match="GPUBROKER_SIMULATED is not set"):
        hold(1)
    monkeypatch.setenv("GPUBROKER_SIMULATED", str(lab.root / "elsewhere"))
    with pytest.raises(HoldRefused, match="no simulated world"):
        hold(1)


def test_the_memory_of_a_killed_process_is_free_before_it_is_reaped(lab: Lab) -> None:
    share = lab.share()
    holder = lab.holder("nb1/", share)
    holder.ask("hold", MEMORY)
    other = lab.holder("nb2/", share)
    assert other.ask("hold", MEMORY)[0] == "HoldRefused"
    holder.kill()
    until(lambda: not lab.devices.usage(), what="the memory of the killed process")
    assert other.ask("hold", MEMORY)[0] == "ok"


def test_a_forked_child_has_none_of_its_parents_memory(lab: Lab) -> None:
    holder = lab.holder("nb1/", lab.share())
    holder.ask("hold", GIB)
    word, child = holder.ask("fork")
    try:
        assert word == "lost"
        assert [use.process.pid for use in lab.devices.usage()] == [holder.pid]
        assert holder.ask("touch", 0)[0] == "ok", "the parent keeps it"
        holder.kill()
        until(lambda: not lab.devices.usage(), what="the memory of the killed parent")
        assert processes.process_of(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_that_inherited_every_descriptor_does_not_keep_the_memory(lab: Lab) -> None:
    holder = lab.holder("nb1/", lab.share())
    holder.ask("hold", GIB)
    _, child = holder.ask("rawfork")
    try:
        assert lab.used()
        holder.kill()
        until(lambda: not lab.devices.usage(), what="the memory of the killed parent")
        assert processes.process_of(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_racing_processes_never_exceed_the_memory_of_a_device(lab: Lab) -> None:
    share = lab.share()
    holders = [lab.holder(f"nb{n}/", share) for n in range(4)]
    for holder in holders:
        holder.tell("race", 20, MEMORY)
    assert [holder.answer() for holder in holders] == [["ok", MEMORY]] * 4
    assert not lab.used()


def test_a_child_forked_during_a_look_does_not_block_the_world(lab: Lab) -> None:
    holder = lab.holder("nb1/", lab.share())
    _, child = holder.ask("lockfork")
    try:
        with (lab.root / "lock").open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert processes.process_of(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_kernel_imports_nothing_but_the_standard_library() -> None:
    code = (
        "import sys; before = set(sys.modules); import jupyter_gpubroker.devices.simulated;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(*sorted(new - sys.stdlib_module_names))"
    )
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run(
        [sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True
    )
    assert told.stdout.split() == ["jupyter_gpubroker"]
