# SPDX-License-Identifier: BSD-3-Clause
"""Parking by NVIDIA's driver (``cuCheckpointProcess*``): GPU memory goes to host memory.

``course`` says which step comes next, ``helper`` is the process that takes it and may hang,
``driver`` is the library, ``state`` its words.
"""
