// Calls of the server's API, and its errors in one shape.

const BUSY = new Set([429, 503]);
const TRIES = 6;

/** What the server, or the way to it, has refused. `status` is 0 when there was no answer. */
export class ApiError extends Error {
  constructor(status, code, message, { loc = [], retryAfterS = null } = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.loc = loc;
    this.retryAfterS = retryAfterS;
  }
}

export class Api {
  /** `key` has the API key as `value`; `refused` is called when the server wants another one. */
  constructor(key, refused) {
    this.key = key;
    this.refused = refused;
    this.limited = false; // the key's calls are counted: whoever only watches asks less often
  }

  /** The response of a call that went well. Raises ApiError, or the signal's AbortError. */
  async call(method, path, { json = null, body = null, headers = {}, signal = null } = {}) {
    const sent = { ...headers };
    if (this.key.value) sent.authorization = `Bearer ${this.key.value}`;
    if (json !== null) sent["content-type"] = "application/json";
    let response;
    try {
      const content = json === null ? body : JSON.stringify(json);
      response = await fetch(path, { method, headers: sent, body: content, signal, credentials: "omit" });
    } catch (error) {
      if (signal?.aborted) throw error;
      throw new ApiError(0, "offline", "The server does not answer");
    }
    this.limited = response.headers.get("ratelimit-policy")?.includes('"requests"') ?? this.limited;
    if (response.ok) return response;
    const error = await refusal(response);
    if (error.status === 401) this.refused(error);
    throw error;
  }

  /** The JSON of a call. */
  async json(method, path, options = {}) {
    return (await this.call(method, path, options)).json();
  }

  /** As `call`, but a busy server is asked again when it says; `waiting` is told for how many seconds. */
  async patiently(method, path, options = {}, waiting = () => {}) {
    for (let tried = 1; ; tried += 1) {
      try {
        return await this.call(method, path, options);
      } catch (error) {
        if (!(error instanceof ApiError) || !BUSY.has(error.status) || tried === TRIES) throw error;
        const seconds = error.retryAfterS ?? 2;
        waiting(seconds);
        await pause(seconds * 1000, options.signal);
      }
    }
  }
}

/** Resolves after a while. Raises the signal's reason. */
export function pause(ms, signal = null) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal?.addEventListener("abort", () => (clearTimeout(timer), reject(signal.reason)), { once: true });
  });
}

/** Native routes answer with problem documents, the other shapes each with its own body. */
async function refusal(response) {
  const text = await response.text();
  const ms = Number(response.headers.get("retry-after-ms"));
  const retryAfterS = ms > 0 ? ms / 1000 : Number(response.headers.get("retry-after")) || null;
  let body = null;
  try {
    body = JSON.parse(text);
  } catch {
    return new ApiError(response.status, "http", `${response.status} ${response.statusText}`, { retryAfterS });
  }
  const shaped = body.error ?? (typeof body.detail === "object" && body.detail !== null ? body.detail : body);
  const message = shaped.message ?? shaped.detail ?? `${response.status} ${response.statusText}`;
  return new ApiError(response.status, shaped.code ?? body.code ?? "http", String(message), {
    loc: body.loc ?? [],
    retryAfterS,
  });
}
