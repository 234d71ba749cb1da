# SPDX-License-Identifier: BSD-3-Clause
"""Everything a ``jupyterhub_config.py`` needs, in one call, and a look at a running Hub.

::

    from jupyter_gpubroker.hub import configure
    configure(c, state_dir="/var/lib/jupyter-gpubroker", spawner="local")

Call it last: it adds to roles and services that are there, and never replaces them.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

import httpx
from jupyterhub.roles import get_default_roles
from traitlets.config.loader import LazyConfigValue

from .client import Address, BrokerError, Client, Refusal
from .wire.endpoints import ADMIN, SERVICE, USE

USERS_SCOPE = "read:users:name"
"""Without it nobody learns that a user was removed."""
SERVICE_SCOPES = ("read:hub", "list:services", "read:services", USERS_SCOPE)
"""What the broker's own token may read of the Hub; ``check`` needs it."""

SPAWNERS = {
    "local": "jupyter_gpubroker.spawner.GPUBrokerSpawner",
    "simple": "jupyter_gpubroker.spawner.SimpleGPUBrokerSpawner",
}
ANY_WAIT_S = 366 * 86400
"""``start_timeout``: the wait in the queue counts, so it is no limit at all."""
SERVICE_TIMEOUT_S = 120
"""How long the Hub waits at its start for the broker to answer."""
TOKEN_FILE = "hub-token"  # noqa: S105 - the name of a file
ENV_FILE = "service.env"
FACTS_FILE = "hub.json"
HUB_TIMEOUT_S = 10.0
UNITS = ("jupyterhub.service", "jupyter-gpubroker.service")


@dataclass(frozen=True, slots=True)
class Settings:
    """What ``configure`` can be told."""

    state_dir: str | Path
    """Folder (0700) of the token, and of all that a managed broker keeps."""
    spawner: str | type = "local"
    """``local``, ``simple``, a class of ``gpu_spawner``, or such a class's full name."""
    devices: str = "auto"
    """``auto``, ``nvml`` or ``simulated:NODESxGPUS``."""
    policy_file: str | Path | None = None
    """Imported at the first start."""
    run_as: Literal["user", "self"] | None = None
    """Account of jobs; default ``user`` where the broker is root."""
    url: str = "http://127.0.0.1:8077"
    """Where the broker listens; the Hub, its proxy and all servers must reach it."""
    managed: bool = True
    """The Hub starts the broker; else something else does, for example systemd."""
    admins: Sequence[str] = ()
    """Users whose tokens may carry the admin scope."""
    gpu_wait: Literal["attach", "start"] = "attach"
    binding: Literal["kernel", "server"] = "kernel"
    config_file: str | Path | None = None
    """More configuration of a managed broker, for example a database URL."""

    @property
    def folder(self) -> Path:
        """The state folder, absolute."""
        return Path(self.state_dir).absolute()


@dataclass(frozen=True, slots=True)
class Facts:
    """What a running Hub must look like; written by ``configure``, compared by ``check``."""

    api_url: str
    broker_url: str
    service_url: str
    prefix: str
    spawner: str
    managed: bool


def configure(c: Any, **options: Any) -> Facts:
    """Write everything into a Hub's configuration; ``options`` are the fields of ``Settings``.

    ValueError if it cannot work, for example if it was called before."""
    settings = Settings(**options)
    facts = _facts(c, settings)
    _check_configuration(c, settings)
    token = _token(settings.folder)
    _service(c, settings, facts, token)
    _roles(c, settings)
    _spawner(c, settings, facts)
    _write_private(settings.folder / FACTS_FILE, json.dumps(asdict(facts), indent=1))
    if not settings.managed:
        _write_private(settings.folder / ENV_FILE, _environment(facts, token))
    return facts


def _check_configuration(c: Any, settings: Settings) -> None:
    if c.JupyterHub.get("internal_ssl"):
        raise ValueError(
            "JupyterHub.internal_ssl is not supported: it is refused until a test with a real "
            "internal_ssl Hub is green. Let the broker listen on the loopback interface instead"
        )
    if any(service.get("name") == SERVICE for service in _plain(c, "services", [])):
        raise ValueError(f"JupyterHub.services has {SERVICE} already: call configure once")
    if settings.binding == "server" and settings.gpu_wait != "start":
        raise ValueError(
            "binding='server' needs gpu_wait='start': the server is started with its GPUs"
        )
    parts = urlsplit(settings.url)
    if parts.scheme != "http" or not parts.hostname or parts.port is None or parts.path.strip("/"):
        raise ValueError(f"url: {settings.url!r} must be http://HOST:PORT")


def _facts(c: Any, settings: Settings) -> Facts:
    hub = c.JupyterHub
    base = hub.get("base_url") or urlsplit(str(hub.get("bind_url") or "")).path or "/"
    base = f"/{str(base).strip('/')}/".replace("//", "/")
    port = hub.get("hub_port") or 8081
    host = hub.get("hub_connect_ip") or hub.get("hub_ip") or "127.0.0.1"
    bound = hub.get("hub_connect_url") or hub.get("hub_bind_url") or f"http://{host}:{port}"
    prefix = f"{base}services/{SERVICE}/"
    url = settings.url.rstrip("/")
    return Facts(
        api_url=f"{str(bound).rstrip('/')}{base}hub/api",
        broker_url=f"{url}{prefix}".rstrip("/"),
        service_url=url,
        prefix=prefix,
        spawner=_class_name(settings.spawner),
        managed=settings.managed,
    )


def _class_name(spawner: str | type) -> str:
    if isinstance(spawner, str):
        return SPAWNERS.get(spawner, spawner)
    return f"{spawner.__module__}.{spawner.__name__}"


# --- what is written --------------------------------------------------------------------


def _service(c: Any, settings: Settings, facts: Facts, token: str) -> None:
    service: dict[str, Any] = {
        "name": SERVICE,
        "url": facts.service_url,
        "api_token": token,
        "display": False,
    }
    if settings.managed:
        service |= {"command": _command(settings), "timeout": SERVICE_TIMEOUT_S}
    _plain(c, "services", []).append(service)


def _command(settings: Settings) -> list[str]:
    given = {
        "state-dir": settings.folder,
        "devices": settings.devices,
        "policy-file": settings.policy_file and Path(settings.policy_file).absolute(),
        "run-as": settings.run_as,
        "config": settings.config_file and Path(settings.config_file).absolute(),
    }
    options = [f"--{name}={value}" for name, value in given.items() if value]
    return [sys.executable, "-m", "jupyter_gpubroker.app", "serve", "--managed", *options]


def _roles(c: Any, settings: Settings) -> None:
    description = "administer the GPU broker: everybody's jobs, the policy"
    _plain(c, "custom_scopes", {}).setdefault(ADMIN, {"description": description})
    _add_role(c, "server", [USE])
    if any(role["name"] == "user" and "scopes" in role for role in _plain(c, "load_roles", [])):
        # The Hub ignores extra_user_scopes where the role is replaced.
        _add_role(c, "user", [USE])
    else:
        _plain(c, "extra_user_scopes", set()).add(USE)
    _add_role(c, SERVICE, SERVICE_SCOPES, services=[SERVICE])
    more = {"users": list(settings.admins)} if settings.admins else {}
    _add_role(c, f"{SERVICE}-admin", [ADMIN, USE], **more)


def _add_role(c: Any, name: str, scopes: Iterable[str], **members: list[str]) -> None:
    """Scopes and members of a role, beside those it has."""
    roles = _plain(c, "load_roles", [])
    usual = {role["name"]: role["scopes"] for role in get_default_roles()}
    role = next((role for role in roles if role["name"] == name), None)
    if role is None:
        role = {"name": name}
        roles.append(role)
    old = role.get("scopes", usual.get(name, []))
    role["scopes"] = list(dict.fromkeys([*old, *scopes]))
    for kind, names in members.items():
        role[kind] = list(dict.fromkeys([*role.get(kind, []), *names]))


def _spawner(c: Any, settings: Settings, facts: Facts) -> None:
    c.JupyterHub.spawner_class = SPAWNERS.get(str(settings.spawner), settings.spawner)
    # A wait in the queue counts as a start: no limit of starts may end it.
    c.JupyterHub.concurrent_spawn_limit = 0
    c.GPUBrokerMixin.start_timeout = ANY_WAIT_S
    # Servers outlive a restart of the Hub, and keep their GPUs.
    c.JupyterHub.cleanup_servers = False
    c.GPUBrokerMixin.broker_url = facts.broker_url
    c.GPUBrokerMixin.broker_token_file = str(settings.folder / TOKEN_FILE)
    c.GPUBrokerMixin.gpu_wait = settings.gpu_wait
    c.GPUBrokerMixin.binding = settings.binding


def _plain(c: Any, name: str, empty: Any) -> Any:
    """A container trait of the Hub as a plain value, with what was added to it so far."""
    value = c.JupyterHub.get(name)
    if isinstance(value, LazyConfigValue):
        value = value.get_value(empty)
    if value is None:
        value = empty
    c.JupyterHub[name] = value
    return value


# --- files ------------------------------------------------------------------------------


def _token(folder: Path) -> str:
    """The service's API token: drawn once, readable by its owner alone."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        raise ValueError(f"state_dir: {folder} belongs to another account; give an own folder")
    folder.chmod(0o700)
    path = folder / TOKEN_FILE
    if not path.exists():
        _write_private(path, secrets.token_hex(32))
    if path.stat().st_mode & 0o077:
        raise ValueError(
            f"{path} can be read by others: remove it and start again, a new one is drawn"
        )
    return path.read_text(encoding="ascii").strip()


def _write_private(path: Path, text: str) -> None:
    """All of it or nothing, 0600 from the first byte."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.unlink(missing_ok=True)
    with open(draft, "x", encoding="utf-8", opener=_private) as file:
        file.write(text + "\n")
    draft.replace(path)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, mode=0o600)


def _environment(facts: Facts, token: str) -> str:
    """What the Hub would give a managed broker, as an EnvironmentFile of systemd."""
    base = facts.prefix.removesuffix(f"services/{SERVICE}/")
    given = {
        "JUPYTERHUB_SERVICE_NAME": SERVICE,
        "JUPYTERHUB_API_TOKEN": token,
        "JUPYTERHUB_API_URL": facts.api_url,
        "JUPYTERHUB_BASE_URL": base,
        "JUPYTERHUB_CLIENT_ID": f"service-{SERVICE}",
        "JUPYTERHUB_SERVICE_PREFIX": facts.prefix,
        "JUPYTERHUB_SERVICE_URL": facts.service_url,
    }
    return "\n".join(f"{name}={value}" for name, value in given.items())


# --- a running Hub ----------------------------------------------------------------------


def broker_of(state_dir: str | Path) -> Address:
    """The broker of the Hub whose ``configure`` had this ``state_dir``, with the Hub's own
    token; Refusal if that cannot be read."""
    facts, token = _configured(Path(state_dir))
    return Address.parse(facts.broker_url, token)


def _configured(folder: Path) -> tuple[Facts, str]:
    try:
        facts = Facts(**json.loads((folder / FACTS_FILE).read_text("utf-8")))
        return facts, (folder / TOKEN_FILE).read_text("ascii").strip()
    except PermissionError:
        why, remedy = (
            f"you may not read {folder}",
            "ask as the account of the Hub, for example root",
        )
    except (OSError, ValueError, TypeError) as error:
        why, remedy = (
            f"no Hub was configured with {folder}: {error}",
            "see configure(c, state_dir=)",
        )
    raise Refusal("state_dir", why, remedy)


def check(state_dir: str | Path) -> list[str]:
    """What is wrong with the running Hub whose ``configure`` had this ``state_dir``, in
    sentences; empty = all is as it was written. For ``jupyter gpubroker doctor``."""
    try:
        facts, token = _configured(Path(state_dir))
    except Refusal as refusal:
        return [str(refusal)]
    try:
        wrong = _check_hub(facts, token)
    except httpx.HTTPError as error:
        wrong = [f"the Hub does not answer at {facts.api_url}: {error or type(error).__name__}"]
    return [*wrong, *_check_broker(facts, token), *_check_units()]


def _check_hub(facts: Facts, token: str) -> list[str]:
    headers = {"Authorization": f"token {token}"}
    with httpx.Client(headers=headers, timeout=HUB_TIMEOUT_S, trust_env=False) as hub:
        me = hub.get(f"{facts.api_url}/user")
        if me.status_code in (401, 403):
            return ["the Hub does not know the token of the broker: restart the Hub"]
        info = hub.get(f"{facts.api_url}/info")
        service = hub.get(f"{facts.api_url}/services/{SERVICE}")
        for answer in (me, info, service):
            if not answer.is_success:
                return [f"{answer.request.url} answers {answer.status_code}: call configure last"]
    wrong = []
    used = info.json()["spawner"]["class"]
    if used != facts.spawner:
        wrong.append(f"JupyterHub.spawner_class is {used}, not {facts.spawner}")
    if service.json().get("url", "").rstrip("/") != facts.service_url:
        wrong.append(f"the Hub has the service at {service.json().get('url')!r}")
    missing = sorted({"read:hub", "list:services", USERS_SCOPE} - set(me.json()["scopes"]))
    if missing:
        wrong.append(f"the role {SERVICE} lacks {', '.join(missing)}: call configure last")
    return wrong


def _check_broker(facts: Facts, token: str) -> list[str]:
    try:
        with Client(facts.broker_url, token) as broker:
            problems = broker.health().problems
            if broker.me().kind != "hub":
                return ["the broker has another token than the Hub: restart both"]
    except (BrokerError, Refusal) as error:
        return [f"broker: {error}"]
    return [f"broker: {problem}" for problem in problems]


def _check_units() -> list[str]:
    """systemd's default KillMode ends every server and shim with the unit they began in."""
    wrong: list[str] = []
    for unit in UNITS:
        command = ["systemctl", "show", "--property=LoadState,KillMode", unit]
        try:
            shown = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        except (OSError, subprocess.TimeoutExpired):
            return wrong
        said = dict(line.partition("=")[::2] for line in shown.stdout.splitlines())
        if said.get("LoadState") == "loaded" and said.get("KillMode") == "control-group":
            wrong.append(
                f"{unit} has KillMode=control-group: a restart of it ends all servers, sessions "
                "and jobs that it started; set KillMode=process (hub_config/systemd)"
            )
    return wrong
