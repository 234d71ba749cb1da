# SPDX-License-Identifier: BSD-3-Clause
"""Parking by NVIDIA's driver."""
