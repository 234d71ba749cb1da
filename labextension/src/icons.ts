// SPDX-License-Identifier: BSD-3-Clause
import { LabIcon } from '@jupyterlab/ui-components';

import gpuSvg from '../style/icons/gpu.svg';

/** The sidebar's tab. */
export const gpuIcon = new LabIcon({ name: 'jupyter-gpubroker:gpu', svgstr: gpuSvg });
