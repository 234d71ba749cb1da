// SPDX-License-Identifier: BSD-3-Clause
/** The end of a rank's log, followed while it is looked at. */
import { Poll } from '@lumino/polling';
import * as React from 'react';

import type { IActions } from '../actions';
import { plainLog } from '../format';
import type { IJob, ILog } from '../tokens';

/** Bytes that are asked for at once and kept in view. */
const TAIL = 64 * 1024;
/** Lines in view. */
const LINES = 400;

interface ILogTailProps {
  job: IJob;
  logs: IActions['logs'];
}

export function LogTail({ job, logs }: ILogTailProps): JSX.Element {
  const [rank, setRank] = React.useState(0);
  const { log, problem } = useTail(job, rank, logs);
  const box = React.useRef<HTMLPreElement>(null);
  const text = log === null ? '' : lastLines(plainLog(log.text));
  useStickToEnd(box, text);
  const ranks = log?.ranks.length ? log.ranks : [0];
  return (
    <div className="gpub-log">
      <div className="gpub-logHead">
        <span className="gpub-subhead">Log</span>
        {ranks.length > 1 && (
          <label>
            <span>Rank</span>
            <select value={rank} onChange={event => setRank(Number(event.target.value))}>
              {ranks.map(item => (
                <option key={item} value={item}>
                  {item}
                </option>
              ))}
            </select>
          </label>
        )}
      </div>
      <pre ref={box} tabIndex={0} aria-label={`Log of rank ${rank}`}>
        {problem || text || (log === null ? 'Loading…' : 'Nothing written yet.')}
      </pre>
    </div>
  );
}

/** Follows one rank of one attempt: the tail first, then what is new, until its end. */
function useTail(
  job: IJob,
  rank: number,
  logs: IActions['logs']
): { log: ILog | null; problem: string } {
  const [log, setLog] = React.useState<ILog | null>(null);
  const [problem, setProblem] = React.useState('');
  React.useEffect(() => {
    setLog(null);
    setProblem('');
    let known: ILog | null = null;
    const poll = new Poll({
      name: `jupyter-gpubroker:log:${job.id}:${rank}`,
      frequency: { interval: 1500, backoff: true, max: 30_000 },
      standby: 'when-hidden',
      factory: async () => {
        try {
          known = await more(known, (offset, limit) => logs(job.id, rank, offset, limit));
        } catch (error) {
          if (!poll.isDisposed) {
            setProblem(error instanceof Error ? error.message : String(error));
          }
          throw error;
        }
        if (poll.isDisposed) {
          return;
        }
        setProblem('');
        setLog(known);
        if (known.ended && known.next_offset >= known.size) {
          void poll.stop();
        }
      }
    });
    return () => poll.dispose();
  }, [job.id, job.attempt, rank, logs]);
  return { log, problem };
}

type Read = (offset: number, limit: number) => Promise<ILog>;

/** The next part of a log; at first its tail, so that a huge log opens at once. */
export async function more(known: ILog | null, read: Read): Promise<ILog> {
  if (known !== null) {
    const next = await read(known.next_offset, TAIL);
    const text = next.next_offset < known.next_offset ? next.text : known.text + next.text;
    return { ...next, text: text.slice(-TAIL) };
  }
  const first = await read(0, TAIL);
  return first.next_offset < first.size ? read(first.size - TAIL, TAIL) : first;
}

function lastLines(text: string): string {
  return text.split('\n').slice(-LINES).join('\n').trimEnd();
}

/** Keeps the end in view unless the person scrolled up. */
function useStickToEnd(box: React.RefObject<HTMLElement>, text: string): void {
  const end = React.useRef(true);
  React.useEffect(() => {
    const node = box.current;
    const onScroll = (): void => {
      end.current = node !== null && node.scrollTop + node.clientHeight >= node.scrollHeight - 8;
    };
    node?.addEventListener('scroll', onScroll);
    return () => node?.removeEventListener('scroll', onScroll);
  }, [box]);
  React.useLayoutEffect(() => {
    if (end.current && box.current !== null) {
      box.current.scrollTop = box.current.scrollHeight;
    }
  }, [box, text]);
}
