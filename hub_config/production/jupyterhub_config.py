# SPDX-License-Identifier: BSD-3-Clause
"""A JupyterHub with GPUs for people who have accounts on this machine.

Copy it to /etc/jupyterhub/ and edit it; ../systemd/ has the units that run it.
"""

from jupyter_gpubroker.hub import configure

c = get_config()  # type: ignore[name-defined]  # noqa: F821 - given by JupyterHub

# Where people come in. Put TLS in front of it: a reverse proxy, or JupyterHub.ssl_cert.
c.JupyterHub.bind_url = "http://127.0.0.1:8000"

# Who may come in. PAM knows the accounts of this machine; any authenticator will do whose
# names are those of accounts, for jobs and servers run as their users.
c.JupyterHub.authenticator_class = "pam"
c.PAMAuthenticator.open_sessions = False
c.Authenticator.allowed_groups = {"gpu-users"}  # groups of this machine
c.Authenticator.admin_users = {"alice"}

# The Hub's own state (database, cookie secret, pid of the proxy) lies in the folder where it
# is started: WorkingDirectory of its unit.

# Several servers for one person are several sessions, each with its own GPUs.
c.JupyterHub.allow_named_servers = True
c.JupyterHub.named_server_limit_per_user = 3
c.Spawner.default_url = "/lab"

# Slow machines: how long a server may take to start, and then to answer. The wait for a GPU
# counts in neither (do not set start_timeout: that one counts everything).
c.GPUBrokerMixin.server_start_timeout = 120
c.Spawner.http_timeout = 120

# Last, for it adds to roles and services: everything that the broker needs.
configure(
    c,
    # Token, database and records; 0700, on a local disk.
    state_dir="/var/lib/jupyter-gpubroker",
    # Over LocalProcessSpawner: servers are processes of their users' accounts.
    spawner="local",
    # jupyter-gpubroker.service runs it, so that a restart of the Hub is none of the broker.
    managed=False,
    # Where that unit listens.
    url="http://127.0.0.1:8077",
    # Who may ask for tokens that change policy and handle everybody's jobs.
    admins=["alice"],
    # "start" lets a start wait in the queue instead of attaching the GPU later.
    gpu_wait="attach",
)
