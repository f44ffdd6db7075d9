// Asking: one request, from its pictures to the end of its job. Knows nothing of how any of it is shown.

import { ApiError } from "./api.js";
import { serverEvents } from "./sse.js";

export const ENDED = new Set(["succeeded", "failed", "cancelled", "expired"]);
const WAIT_S = 20;

export class Asking {
  /**
   * `make` gives the body for the hashes of the pictures. `tell` hears ("waiting", seconds), ("sending"), ("job", job),
   * ("stage", name), ("text", question, text so far) and ("prepared", pictures).
   */
  constructor(api, pictures, make, tell) {
    this.api = api;
    this.pictures = pictures;
    this.make = make;
    this.tell = tell;
    this.job = null;
    this.stopped = new AbortController();
  }

  /** The job, once it has ended. Raises ApiError for a request that was not taken. */
  async run() {
    try {
      return await this.once();
    } catch (error) {
      if (error.code !== "image_expired") throw error;
      for (const picture of this.pictures) picture.forgotten(); // the server has let go of one: it is sent again, once
      return this.once();
    }
  }

  async once() {
    const waiting = (seconds) => this.tell("waiting", seconds);
    this.tell("sending");
    const hashes = await Promise.all(this.pictures.map((picture) => picture.upload(this.api, waiting)));
    const headers = { "idempotency-key": fresh() }; // a try that was lost on the way is not asked twice
    const options = { json: this.make(hashes), headers, signal: this.stopped.signal };
    const response = await this.api.patiently("POST", "/v1/jobs", options, waiting);
    this.job = await response.json();
    this.tell("job", this.job);
    return follow(this.api, this.job, this.tell);
  }

  /** Whether the job was told to end, or what was not a job yet is given up. */
  async cancel() {
    if (this.job) await this.api.call("POST", `/v1/jobs/${this.job.id}/cancel`);
    else this.stopped.abort(new ApiError(0, "cancelled", "Cancelled before it was asked"));
  }
}

/** A job until it has ended: by its events as long as they come, else by asking. */
export async function follow(api, job, tell) {
  let found = job;
  if (!ENDED.has(job.status)) {
    try {
      const response = await api.call("GET", job.urls.events, { headers: { accept: "text/event-stream" } });
      const texts = {};
      for await (const { event, data } of serverEvents(response)) {
        if (event === "status" && data.execution_state === "busy") tell("stage", data.stage);
        else if (event === "prepared") tell("prepared", data.images);
        else if (event === "stream") {
          texts[data.question] = (texts[data.question] ?? "").slice(0, data.offset) + data.text;
          tell("text", data.question, texts[data.question]);
        }
      }
    } catch (error) {
      if (error instanceof ApiError && error.status >= 400 && error.status < 500) throw error;
    }
  }
  for (;;) {
    found = await (await api.patiently("GET", job.urls.self, { headers: { prefer: `wait=${WAIT_S}` } })).json();
    if (ENDED.has(found.status)) return found;
  }
}

function fresh() {
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
}
