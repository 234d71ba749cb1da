# SPDX-License-Identifier: BSD-3-Clause
"""Real browsers on real JupyterLabs and a real JupyterHub."""
