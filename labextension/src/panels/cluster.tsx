// SPDX-License-Identifier: BSD-3-Clause
/** The cluster: one cell per device, filled by what is in use. */
import * as React from 'react';

import { capacity, Colour, deviceColour, deviceWords, gpus } from '../format';
import type { IDevice, INode } from '../tokens';
import { Empty, IPanelProps, Unknown } from '../ui';

const LEGEND: [Colour, string][] = [
  ['session', 'Session'],
  ['batch', 'Job'],
  ['leaving', 'Leaving'],
  ['quarantined', 'Quarantined'],
  ['unusable', 'Not usable']
];

export function Cluster({ state }: IPanelProps): JSX.Element {
  const [picked, setPicked] = React.useState('');
  if (state.nodes.length === 0) {
    return state.broker.ok ? <Empty>The broker knows no machine yet.</Empty> : <Unknown />;
  }
  const pick = (uuid: string): void => setPicked(uuid);
  return (
    <>
      {state.nodes.map(node => (
        <Machine key={node.name} node={node} picked={picked} pick={pick} />
      ))}
      <Legend nodes={state.nodes} />
    </>
  );
}

interface IMachineProps {
  node: INode;
  picked: string;
  pick: (uuid: string) => void;
}

function Machine({ node, picked, pick }: IMachineProps): JSX.Element {
  const { free, total } = capacity([node]);
  const shown = node.devices.find(device => device.uuid === picked);
  return (
    <div className="gpub-machine">
      <div className="gpub-rowLine">
        <span className="gpub-name" title={node.name}>
          {node.name}
        </span>
        <span className="gpub-muted">
          {node.usable ? `${free / 1000} of ${gpus(total)} free` : 'not usable'}
        </span>
      </div>
      {node.note && <div className="gpub-note">{node.note}</div>}
      <div className="gpub-grid" role="group" aria-label={`GPUs of ${node.name}`}>
        {node.devices.map((device, index) => (
          <Cell
            key={device.uuid}
            device={device}
            node={node}
            reachable={shown === undefined ? index === 0 : device === shown}
            pressed={device === shown}
            pick={pick}
          />
        ))}
      </div>
      {shown !== undefined && (
        <p className="gpub-picked" role="status">
          {deviceWords(shown, node)}
        </p>
      )}
    </div>
  );
}

interface ICellProps {
  device: IDevice;
  node: INode;
  /** One cell of a machine is in the tab order; arrows move between them. */
  reachable: boolean;
  pressed: boolean;
  pick: (uuid: string) => void;
}

function Cell({ device, node, reachable, pressed, pick }: ICellProps): JSX.Element {
  const colour = deviceColour(device, node);
  const full = colour === 'quarantined' || colour === 'unusable';
  const used = full ? 1000 : 1000 - device.free_milli;
  const words = deviceWords(device, node);
  return (
    <button
      type="button"
      className={`gpub-cell gpub-colour-${colour}${device.mine ? ' gpub-mod-mine' : ''}`}
      title={words}
      aria-label={words}
      aria-pressed={pressed}
      tabIndex={reachable ? 0 : -1}
      onKeyDown={walk}
      onClick={() => pick(pressed ? '' : device.uuid)}
    >
      <span className="gpub-cellFill" style={{ height: `${used / 10}%` }} />
      <span className="gpub-cellIndex">{device.index}</span>
    </button>
  );
}

function walk(event: React.KeyboardEvent<HTMLButtonElement>): void {
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  const cells = [...(event.currentTarget.parentElement?.children ?? [])];
  const next = step === undefined ? null : cells[cells.indexOf(event.currentTarget) + step];
  if (next instanceof HTMLElement) {
    event.preventDefault();
    next.focus();
  }
}

/** Only the colours that are to be seen, and the outline. */
function Legend({ nodes }: { nodes: readonly INode[] }): JSX.Element | null {
  const devices = nodes.flatMap(node => node.devices.map(device => ({ device, node })));
  const seen = new Set(devices.map(({ device, node }) => deviceColour(device, node)));
  const mine = devices.some(({ device }) => device.mine);
  if (!mine && LEGEND.every(([colour]) => !seen.has(colour))) {
    return null;
  }
  return (
    <ul className="gpub-legend" aria-label="Colours">
      {LEGEND.filter(([colour]) => seen.has(colour)).map(([colour, words]) => (
        <li key={colour}>
          <span className={`gpub-swatch gpub-colour-${colour}`} />
          {words}
        </li>
      ))}
      {mine && (
        <li>
          <span className="gpub-swatch gpub-mod-mine" />
          Yours
        </li>
      )}
    </ul>
  );
}
