# SPDX-License-Identifier: BSD-3-Clause
"""The commands of ``jupyter gpubroker`` that talk to a broker."""
