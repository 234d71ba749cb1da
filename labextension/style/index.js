// SPDX-License-Identifier: BSD-3-Clause
import './base.css';
import './panels.css';
