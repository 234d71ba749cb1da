# SPDX-License-Identifier: BSD-3-Clause
"""What runs in the interpreter of a user: real kernels, one of them with nothing but ipykernel."""
