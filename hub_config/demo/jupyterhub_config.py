# SPDX-License-Identifier: BSD-3-Clause
"""The Hub of ``make demo``: loopback only, no accounts, one password, simulated GPUs.

Everything lies under ``DEMO_ROOT``; ``run.py`` picks the ports and sets the variables.
"""

import os
import shutil
import sys
from pathlib import Path
from typing import Any

from jupyter_gpubroker.hub import configure

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - given by JupyterHub

here = Path(__file__).resolve().parent
root = Path(os.environ["DEMO_ROOT"])
homes = root / "homes"
homes.mkdir(exist_ok=True)

c.JupyterHub.bind_url = f"http://127.0.0.1:{os.environ['DEMO_PORT']}"
c.JupyterHub.hub_bind_url = f"http://127.0.0.1:{os.environ['DEMO_HUB_PORT']}"
c.ConfigurableHTTPProxy.api_url = f"http://127.0.0.1:{os.environ['DEMO_PROXY_PORT']}"
c.ConfigurableHTTPProxy.command = [
    shutil.which("configurable-http-proxy") or "configurable-http-proxy"
]
c.ConfigurableHTTPProxy.pid_file = str(root / "proxy.pid")
c.JupyterHub.db_url = f"sqlite:///{root / 'jupyterhub.sqlite'}"
c.JupyterHub.cookie_secret_file = str(root / "cookie_secret")

# Any name may log in with the one password; a demo has no accounts.
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = os.environ["DEMO_PASSWORD"]
c.Authenticator.allow_all = True

c.SimpleLocalProcessSpawner.home_dir_template = str(homes / "{username}")
c.Spawner.cmd = [sys.executable, "-m", "jupyterhub.singleuser"]
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = 120


def furnish(spawner: Any) -> None:
    """A new home: a first notebook, and JupyterLab opens it with the GPU sidebar beside it."""
    home = Path(spawner.home_dir)
    if not home.exists():
        shutil.copytree(here / "home", home)


c.Spawner.pre_spawn_hook = furnish
if os.geteuid() == 0:
    c.Spawner.args = ["--allow-root"]

configure(
    c,
    state_dir=root / "gpubroker",
    spawner="simple",
    devices=os.environ["DEMO_DEVICES"],
    run_as="self",
    policy_file=here / "policy.yaml",
    url=f"http://127.0.0.1:{os.environ['DEMO_BROKER_PORT']}",
)
