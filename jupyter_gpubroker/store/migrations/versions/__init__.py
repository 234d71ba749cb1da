# SPDX-License-Identifier: BSD-3-Clause
"""One file per schema; a released one never changes and imports nothing of ours."""
