// SPDX-License-Identifier: BSD-3-Clause
/** The kernels of this server: which use the GPU, which need a restart to get it. */
import * as React from 'react';

import type { IKernel } from '../tokens';
import { Act, IRunner } from '../ui';

interface IKernelsProps {
  kernels: readonly IKernel[];
  runner: IRunner;
  restart: (kernel: IKernel) => Promise<void>;
}

export function Kernels({ kernels, runner, restart }: IKernelsProps): JSX.Element {
  if (kernels.length === 0) {
    return <p className="gpub-note">The next kernel you start gets the GPU.</p>;
  }
  return (
    <div className="gpub-kernels">
      <h4 className="gpub-subhead">Kernels</h4>
      <ul>
        {kernels.map(kernel => (
          <li key={kernel.id} className="gpub-kernel">
            <span className="gpub-name" title={kernel.path || kernel.name}>
              {basename(kernel.path) || kernel.name}
            </span>
            {kernel.needs_restart ? (
              <Act
                runner={runner}
                label="Restart to use"
                title="It touched CUDA before it had the GPU"
                action={() => restart(kernel)}
              />
            ) : (
              <span className="gpub-muted" title={explain(kernel)}>
                {word(kernel)}
              </span>
            )}
          </li>
        ))}
      </ul>
    </div>
  );
}

function word(kernel: IKernel): string {
  if (!kernel.managed) {
    return 'not managed';
  }
  return kernel.bound ? 'has the GPU' : 'no GPU yet';
}

function explain(kernel: IKernel): string {
  return kernel.managed ? '' : 'Its kernelspec has a provisioner of its own';
}

function basename(path: string): string {
  return path.slice(path.lastIndexOf('/') + 1);
}
