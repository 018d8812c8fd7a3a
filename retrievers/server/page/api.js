// Requests to the server. The API key is kept only in this tab's session storage.

const KEY = "idx.key";
const LONGEST_WAIT_S = 300; // while an index is being opened

/** An error with a message to show. */
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

/** Return the served corpora, limits and rules. */
export function indexes(signal, onWait) {
  return retryUntilReady(() => request("v1/indexes", null, signal), signal, onWait);
}

/** Return the ranking of one group of queries, and its duration: {passages, ms}. */
export async function search(body, signal, onWait) {
  let started;
  const ask = () => {
    started = performance.now();
    return request("v1/search", body, signal);
  };
  const answer = await retryUntilReady(ask, signal, onWait);
  return { passages: answer.rankings[0], ms: performance.now() - started };
}

/** Repeat a request as long as the server is still opening the index. */
export async function retryUntilReady(send, signal, onWait) {
  const end = performance.now() + 1000 * LONGEST_WAIT_S;
  for (;;) {
    try {
      return await send();
    } catch (error) {
      if (error.type !== "NotReady" || error.retryAfter === null || performance.now() > end) throw error;
      onWait?.(error.message);
      await new Promise((resolve) => setTimeout(resolve, 1000 * error.retryAfter));
      signal?.throwIfAborted();
    }
  }
}

/** Return the parsed answer to a request; body null: GET. */
export async function request(path, body, signal) {
  const response = await send(path, body, signal);
  try {
    return await response.json();
  } catch (error) {
    throw error instanceof SyntaxError ? new ServerError("The server's answer is no JSON.") : unreachable(error);
  }
}

/** Yield the values of an answer of lines of JSON as they come. */
export async function* events(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => Promise.reject(unreachable(error)));
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    yield* lines.map((line) => JSON.parse(line));
  }
}

function unreachable(error) {
  return error.name === "AbortError" ? error : new ServerError("The server does not answer. Is it still running?");
}

async function send(path, body, signal) {
  // Without a wait on the server's side, the page can say what is being opened.
  const headers = body === null ? {} : { "content-type": "application/json", prefer: "wait=0" };
  const key = sessionStorage.getItem(KEY);
  if (key !== null) headers.authorization = `Bearer ${key}`;
  const options = body === null ? { headers, signal } : { headers, signal, method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, options).catch((error) => Promise.reject(unreachable(error)));
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  const retryAfter = Number.parseFloat(response.headers.get("retry-after"));
  throw new ServerError(answer?.error ?? `The server answered with status ${response.status} and no reason.`, {
    status: response.status,
    type: answer?.error_type ?? "",
    retryAfter: Number.isNaN(retryAfter) ? null : retryAfter,
  });
}
