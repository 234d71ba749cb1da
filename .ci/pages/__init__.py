# SPDX-License-Identifier: BSD-3-Clause
"""The pages of docs/ that the code knows best; one module writes one page."""
