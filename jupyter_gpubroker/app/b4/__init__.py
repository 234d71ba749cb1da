# SPDX-License-Identifier: BSD-3-Clause
"""B4: Kueue's performance workload, in real time through the real service.

The broker's shell, its store in a SQLite file, and the API on a unix socket run in this
process; the jobs are submitted and followed through ``client`` by a second one. Only the
engine is played: its machines are pools of GPUs, and a job is a timer.
"""

from .measure import run

__all__ = ["run"]
