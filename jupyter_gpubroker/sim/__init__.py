# SPDX-License-Identifier: BSD-3-Clause
"""The production broker in virtual time: its real store in memory, machines and people that
are played, and no clock. Everything follows from the input and a seed.

``agenda`` is time, ``stage`` the shell around the broker, ``engine`` the machines, ``servers``
the Jupyter servers; ``chaos`` plays people and faults on them, ``safety`` watches.
"""
