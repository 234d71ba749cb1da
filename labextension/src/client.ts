// SPDX-License-Identifier: BSD-3-Clause
/** Calls to our server extension; the broker's token never leaves the server. */
import type { IJob, ILog, ISessionIn, IState } from './tokens';

/** Performs one request below `gpubroker/`; rejects only when nothing answered. */
export type Fetch = (path: string, init?: RequestInit) => Promise<Response>;

/** A call that failed, in words for people. `status` 0: nothing answered. */
export class Problem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly remedy = '',
    readonly field = ''
  ) {
    super(message);
    this.name = 'Problem';
  }
}

/** How a person says that a Session should change. */
export type SessionVerb = 'release' | 'park' | 'resume' | 'keep' | 'cancel';

export class Client {
  constructor(private readonly _fetch: Fetch) {}

  /** The whole state, and how far the server's clock is ahead of ours in seconds. */
  async state(): Promise<{ state: IState; skew: number }> {
    // The flag keeps our polling from counting as activity of the server.
    const response = await this._send('state?no_track_activity=1');
    const date = Date.parse(response.headers.get('Date') ?? '');
    const skew = Number.isNaN(date) ? 0 : (date - Date.now()) / 1000;
    return { state: (await json(response)) as IState, skew };
  }

  async request(session: ISessionIn): Promise<IJob> {
    return this._post('sessions', session);
  }

  async session(id: string, verb: SessionVerb): Promise<IJob> {
    return this._post(`sessions/${encodeURIComponent(id)}/${verb}`);
  }

  async extend(id: string, seconds: number): Promise<IJob> {
    return this._post(`sessions/${encodeURIComponent(id)}/extend`, { time: seconds });
  }

  async cancelJob(id: string): Promise<IJob> {
    return this._post(`jobs/${encodeURIComponent(id)}/cancel`);
  }

  /** Part of a rank's log, from byte `offset`. */
  async logs(id: string, rank: number, offset: number, limit: number): Promise<ILog> {
    const query = `rank=${rank}&offset=${offset}&limit=${limit}&no_track_activity=1`;
    return (await json(
      await this._send(`api/jobs/${encodeURIComponent(id)}/logs?${query}`)
    )) as ILog;
  }

  private async _post(path: string, body: object = {}): Promise<IJob> {
    const response = await this._send(`api/${path}`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify(body)
    });
    return (await json(response)) as IJob;
  }

  private async _send(path: string, init?: RequestInit): Promise<Response> {
    let response: Response;
    try {
      response = await this._fetch(path, init);
    } catch {
      throw new Problem(0, 'The Jupyter server does not answer.');
    }
    if (!response.ok) {
      throw await problemOf(response);
    }
    return response;
  }
}

async function json(response: Response): Promise<unknown> {
  try {
    return await response.json();
  } catch {
    throw new Problem(response.status, 'The answer of the server extension is not JSON.');
  }
}

/** The ErrorOut of an answer; other bodies (a proxy's page) become a plain sentence. */
async function problemOf(response: Response): Promise<Problem> {
  const said = (await response.json().catch(() => ({}))) as Record<string, unknown>;
  const word = (key: string): string => (typeof said[key] === 'string' ? said[key] : '');
  const message = word('message') || `The server answered ${response.status}.`;
  const field = word('field');
  return new Problem(
    response.status,
    field && !message.startsWith(field) ? `${field}: ${message}` : message,
    word('remedy'),
    field
  );
}
