# SPDX-License-Identifier: BSD-3-Clause
"""``hub.configure``: it adds and never replaces, and what it writes a Hub accepts."""

from __future__ import annotations

import stat
from configparser import RawConfigParser
from pathlib import Path
from typing import Any

import pytest
from jupyterhub.app import JupyterHub
from traitlets.config import Config

from jupyter_gpubroker import hub as ours
from jupyter_gpubroker.app.serve import ServeApp
from jupyter_gpubroker.hub import configure
from jupyter_gpubroker.policy import DEFAULT_DOCUMENT
from jupyter_gpubroker.spawner import (
    GPUBrokerMixin,
    GPUBrokerSpawner,
    SimpleGPUBrokerSpawner,
    gpu_spawner,
)
from jupyter_gpubroker.wire.endpoints import ADMIN, USE
from tests.conftest import ROOT

HUB_CONFIG = ROOT / "hub_config"


def written(folder: Path, c: Config | None = None, **options: Any) -> Any:
    """The Hub's section after ``configure``; a Hub accepts all of it."""
    c = Config() if c is None else c
    configure(c, state_dir=folder / "state", **options)
    JupyterHub(config=c)
    return c.JupyterHub


def role(section: Any, name: str) -> dict[str, Any]:
    """One of the roles to load."""
    return next(dict(item) for item in section.load_roles if item["name"] == name)


def mode(path: Path) -> int:
    """Its permission bits."""
    return stat.S_IMODE(path.stat().st_mode)


def test_a_bare_hub_gets_everything(tmp_path: Path) -> None:
    c = Config()
    section = written(tmp_path, c, admins=["boss"], devices="simulated:1x2", run_as="self")
    (service,) = section.services
    assert service["name"] == "gpubroker"
    assert {"--managed", "--devices=simulated:1x2", "--run-as=self"} <= set(service["command"])
    assert section.extra_user_scopes == {USE}
    assert role(section, "server")["scopes"] == [
        "users:activity!user",
        "access:servers!server",
        USE,
    ]
    assert role(section, "gpubroker")["services"] == ["gpubroker"]
    assert role(section, "gpubroker-admin") == {
        "name": "gpubroker-admin",
        "scopes": [ADMIN, USE],
        "users": ["boss"],
    }
    assert ADMIN in section.custom_scopes
    assert section.cleanup_servers is False
    assert section.concurrent_spawn_limit == 0
    assert section.spawner_class.endswith(".GPUBrokerSpawner")
    assert c.GPUBrokerMixin.start_timeout > 30 * 86400
    assert c.GPUBrokerMixin.broker_url == "http://127.0.0.1:8077/services/gpubroker"
    assert c.GPUBrokerMixin.broker_token_file == str(tmp_path / "state/hub-token")


def test_the_token_is_drawn_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    first = written(tmp_path).services[0]["api_token"]
    assert written(tmp_path).services[0]["api_token"] == first
    assert len(first) >= 32
    assert mode(tmp_path / "state") == 0o700
    assert mode(tmp_path / "state/hub-token") == 0o600
    assert (tmp_path / "state/hub-token").read_text().strip() == first
    (tmp_path / "state/hub-token").chmod(0o644)
    with pytest.raises(ValueError, match="read by others"):
        written(tmp_path)


def test_what_was_there_stays(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.services = [{"name": "culler", "api_token": "x" * 32}]
    c.JupyterHub.load_roles = [
        {"name": "server", "scopes": ["users:activity!user", "read:metrics"]},
        {"name": "culler", "services": ["culler"], "scopes": ["list:users"]},
    ]
    c.JupyterHub.custom_scopes = {"custom:theirs:read": {"description": "theirs"}}
    c.JupyterHub.extra_user_scopes = {"shares!user"}
    section = written(tmp_path, c)
    assert [service["name"] for service in section.services] == ["culler", "gpubroker"]
    assert role(section, "server")["scopes"] == ["users:activity!user", "read:metrics", USE]
    assert role(section, "culler")["scopes"] == ["list:users"]
    assert set(section.custom_scopes) == {"custom:theirs:read", ADMIN}
    assert section.extra_user_scopes == {"shares!user", USE}


def test_what_was_only_added_to_stays_too(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.services.append({"name": "culler", "api_token": "x" * 32})
    c.JupyterHub.load_roles.extend([{"name": "culler", "scopes": ["list:users"]}])
    c.JupyterHub.extra_user_scopes.update({"shares!user"})
    section = written(tmp_path, c)
    assert [service["name"] for service in section.services] == ["culler", "gpubroker"]
    assert role(section, "culler")
    assert section.extra_user_scopes == {"shares!user", USE}


def test_a_replaced_user_role_is_added_to_for_extra_scopes_would_be_ignored(
    tmp_path: Path,
) -> None:
    c = Config()
    c.JupyterHub.load_roles = [{"name": "user", "scopes": ["self"]}]
    section = written(tmp_path, c)
    assert role(section, "user")["scopes"] == ["self", USE]
    assert not section.get("extra_user_scopes")


@pytest.mark.parametrize(
    ("name", "value"),
    [("base_url", "/jupyter/"), ("base_url", "jupyter"), ("bind_url", "http://:80/jupyter/")],
)
def test_the_prefix_follows_the_base_url(tmp_path: Path, name: str, value: str) -> None:
    c = Config()
    setattr(c.JupyterHub, name, value)
    facts = configure(c, state_dir=tmp_path, url="http://127.0.0.1:9000/")
    assert facts.prefix == "/jupyter/services/gpubroker/"
    assert facts.broker_url == "http://127.0.0.1:9000/jupyter/services/gpubroker"
    assert facts.api_url == "http://127.0.0.1:8081/jupyter/hub/api"


def test_a_broker_of_its_own_finds_its_environment_in_a_file(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.hub_bind_url = "http://127.0.0.1:9091"
    section = written(tmp_path, c, managed=False)
    assert "command" not in section.services[0]
    path = tmp_path / "state/service.env"
    assert mode(path) == 0o600
    given = dict(line.split("=", 1) for line in path.read_text().split())
    assert given["JUPYTERHUB_API_URL"] == "http://127.0.0.1:9091/hub/api"
    assert given["JUPYTERHUB_API_TOKEN"] == section.services[0]["api_token"]
    assert given["JUPYTERHUB_SERVICE_PREFIX"] == "/services/gpubroker/"
    assert given["JUPYTERHUB_SERVICE_URL"] == "http://127.0.0.1:8077"


def test_spawners_are_named_or_given(tmp_path: Path) -> None:
    assert written(tmp_path, spawner="simple").spawner_class.endswith("SimpleGPUBrokerSpawner")
    made = gpu_spawner("simple")
    assert written(tmp_path, spawner=made).spawner_class is made
    assert issubclass(made, GPUBrokerMixin)


def test_servers_are_bound_by_kernel_unless_their_start_waits(tmp_path: Path) -> None:
    c = Config()
    written(tmp_path, c)
    assert SimpleGPUBrokerSpawner(config=c).binding == "kernel"
    written(tmp_path, whole := Config(), gpu_wait="start", binding="server")
    assert SimpleGPUBrokerSpawner(config=whole).binding == "server"
    with pytest.raises(ValueError, match="gpu_wait='start'"):
        configure(Config(), state_dir=tmp_path / "other", binding="server")
    assert not (tmp_path / "other").exists(), "nothing was written"


def test_internal_ssl_is_refused(tmp_path: Path) -> None:
    c = Config()
    c.JupyterHub.internal_ssl = True
    with pytest.raises(ValueError, match="internal_ssl"):
        configure(c, state_dir=tmp_path / "state")
    assert not (tmp_path / "state").exists(), "nothing was written"


def test_a_second_call_is_refused(tmp_path: Path) -> None:
    c = Config()
    configure(c, state_dir=tmp_path)
    with pytest.raises(ValueError, match="once"):
        configure(c, state_dir=tmp_path)


@pytest.mark.parametrize("url", ["", "8077", "https://h:1", "http://h", "http://h:1/x", "unix:/s"])
def test_an_address_that_cannot_be_listened_on_is_refused(tmp_path: Path, url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        configure(Config(), state_dir=tmp_path, url=url)


def test_an_option_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="spawnr"):
        configure(Config(), state_dir=tmp_path, spawnr="simple")


def test_the_short_names_are_those_of_our_spawners() -> None:
    assert ours.SPAWNERS["simple"].endswith(SimpleGPUBrokerSpawner.__qualname__)


def test_the_command_is_one_that_the_broker_understands(tmp_path: Path) -> None:
    section = written(tmp_path, policy_file="p.yaml", run_as="user", devices="nvml")
    _understood(section.services[0]["command"][4:])


def _understood(arguments: list[str]) -> ServeApp:
    app = ServeApp()
    app.parse_command_line(arguments)
    unknown = set(app.cli_config) - {"ServeApp", "JupyterApp", "Application"}
    assert not unknown
    assert not app.extra_args
    return app


def test_a_broker_with_a_unit_takes_its_database_from_the_file_of_the_page(tmp_path: Path) -> None:
    page = (ROOT / "docs/how-to/hub.md").read_text().partition("## Another database")[2]
    file = tmp_path / "gpubroker_config.py"
    file.write_text(page.partition("```python\n")[2].partition("```")[0])
    unit = (HUB_CONFIG / "systemd/jupyter-gpubroker.service").read_text()
    (start,) = (line for line in unit.splitlines() if line.startswith("ExecStart="))
    app = ServeApp()
    app.initialize([*start.split()[2:], f"--config={file}"])
    assert app.store == "postgresql+psycopg://gpubroker:PASSWORD@db.example/gpubroker"
    assert app.state_dir == "/var/lib/jupyter-gpubroker", "the command line goes on to count"


# --- hub_config/ ------------------------------------------------------------------------


def test_the_shipped_policy_is_the_default_one() -> None:
    assert (HUB_CONFIG / "policy.yaml").read_text() == DEFAULT_DOCUMENT


def test_the_production_configuration_is_one_that_a_hub_accepts(tmp_path: Path) -> None:
    text = (HUB_CONFIG / "production/jupyterhub_config.py").read_text()
    text = text.replace("/var/lib/jupyter-gpubroker", str(tmp_path / "state"))
    c = Config()
    exec(compile(text, "jupyterhub_config.py", "exec"), {"get_config": lambda: c})
    made = JupyterHub(config=c)
    assert made.spawner_class is GPUBrokerSpawner
    assert (tmp_path / "state/service.env").exists()


@pytest.mark.parametrize("name", ["jupyterhub", "jupyter-gpubroker"])
def test_a_restart_of_a_unit_ends_nothing_but_its_main_process(name: str) -> None:
    unit = RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment]
    unit.read(HUB_CONFIG / f"systemd/{name}.service")
    service = unit["Service"]
    assert service["KillMode"] == "process"
    assert service["StateDirectoryMode"] == "0700"
    program, *arguments = service["ExecStart"].split()
    assert program.endswith(name)
    if name == "jupyter-gpubroker":
        assert service["EnvironmentFile"].endswith(ours.ENV_FILE)
        assert arguments[0] == "serve"
        app = _understood(arguments[1:])
        assert service["EnvironmentFile"].startswith(app.state_dir)
