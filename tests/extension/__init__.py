# SPDX-License-Identifier: BSD-3-Clause
"""The server extension and its provisioner, in a real Jupyter server with real kernels."""
