# SPDX-License-Identifier: BSD-3-Clause
"""What is shipped: the wheel, and the image of binder/."""
