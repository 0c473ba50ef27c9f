/** The state of a running application, requested as long as the drawing is visible. */

const EVERY_MS = 2000;
const LIMIT_MS = 5000;

/** What `/status` has that the drawing shows. */
export interface Status {
  readonly application: string;
  readonly condition: string;
  readonly instances: readonly unknown[];
}

export type Answer = {readonly status: Status} | {readonly problem: string};

export type Fetch = (url: string, options: RequestInit) => Promise<Response>;

/** Return the base of an address: `8080`, `HOST:PORT` or a URL. */
export function baseOf(address: string): string {
  const text = /^\d+$/.test(address) ? `127.0.0.1:${address}` : address;
  return (/^https?:\/\//.test(text) ? text : `http://${text}`).replace(/\/+$/, "");
}

/** Request the state once. */
export async function requestStatus(address: string, token: string | undefined, fetchFrom: Fetch): Promise<Answer> {
  try {
    const headers: Record<string, string> = token ? {Authorization: `Bearer ${token}`} : {};
    // A redirect would send the token to another address.
    const response = await fetchFrom(`${baseOf(address)}/status`, {headers, redirect: "error", signal: AbortSignal.timeout(LIMIT_MS)});
    if (response.status === 401) return {problem: `${address} needs a token: run the command "streamkit: Set the Token of the Running Application"`};
    if (!response.ok) return {problem: `${address} answers with status ${response.status}`};
    return {status: (await response.json()) as Status};
  } catch (error) {
    const cause = error instanceof Error ? error.cause ?? error : error;
    return {problem: `${address} does not answer: ${cause instanceof Error ? cause.message : String(cause)}`};
  }
}

/** Requests the state every two seconds between `start` and `stop`; a request begins only after the last one has ended. */
export class Poll {
  private running = 0;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly ask: () => Promise<Answer>, private readonly take: (answer: Answer) => void, private readonly everyMs = EVERY_MS) {}

  start(): void {
    this.stop();
    void this.round(this.running);
  }

  stop(): void {
    this.running += 1;
    clearTimeout(this.timer);
  }

  private async round(run: number): Promise<void> {
    const answer = await this.ask();
    if (run !== this.running) return;
    this.take(answer);
    this.timer = setTimeout(() => void this.round(run), this.everyMs);
  }
}
