# SPDX-License-Identifier: BSD-3-Clause
"""The Jupyter Server extension of a user's server."""

from .app import GPUBrokerExtension

__all__ = ["GPUBrokerExtension"]
