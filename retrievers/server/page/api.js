// Requests to the server. The API key lives in this tab's session storage, and nowhere else.

const KEY = "idx.key";
const LONGEST_WAIT_S = 300; // while an index is being opened

/** What went wrong, in words that can be shown. */
export class ServerError extends Error {
  constructor(message, { status = 0, type = "", retryAfter = null } = {}) {
    super(message);
    Object.assign(this, { status, type, retryAfter });
  }
}

export function useKey(key) {
  sessionStorage.setItem(KEY, key);
}

export function hasKey() {
  return sessionStorage.getItem(KEY) !== null;
}

/** Return what is served. */
export function indexes(signal, onWait) {
  return patiently(() => request("v1/indexes", null, signal), signal, onWait);
}

/** Return the ranking of one group of queries, and how long that took: {passages, ms}. */
export async function search(asked, signal, onWait) {
  let started;
  const ask = () => {
    started = performance.now();
    return request("v1/search", asked, signal);
  };
  const answer = await patiently(ask, signal, onWait);
  return { passages: answer.rankings[0], ms: performance.now() - started };
}

/** Ask again as long as the server says that it is still opening what is asked for. */
async function patiently(ask, signal, onWait) {
  const end = performance.now() + 1000 * LONGEST_WAIT_S;
  for (;;) {
    try {
      return await ask();
    } catch (error) {
      if (error.type !== "NotReady" || error.retryAfter === null || performance.now() > end) throw error;
      onWait?.(error.message);
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.retryAfter));
      signal?.throwIfAborted();
    }
  }
}

async function request(path, body, signal) {
  const headers = body === null ? {} : { "content-type": "application/json" };
  const key = sessionStorage.getItem(KEY);
  if (key !== null) headers.authorization = `Bearer ${key}`;
  const sent = body === null ? { headers, signal } : { headers, signal, method: "POST", body: JSON.stringify(body) };
  let response;
  let answer = null;
  try {
    response = await fetch(path, sent);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    if (!(error instanceof SyntaxError)) throw new ServerError("The server does not answer. Is it still running?");
  }
  if (response.ok && answer !== null) return answer;
  const wait = Number.parseFloat(response.headers.get("retry-after"));
  throw new ServerError(answer?.error ?? `The server answered with status ${response.status} and no reason.`, {
    status: response.status,
    type: answer?.error_type ?? "",
    retryAfter: Number.isNaN(wait) ? null : wait,
  });
}
