// Batches: begin one of an archive and the questions of the form, see how far each is, and which rows have failed.

import { ApiError } from "./api.js";
import { BatchCard } from "./batch.js";
import { el, fill, labelled, say } from "./dom.js";

const EVERY_MS = 2000;
const LIMITED_MS = 20000;

export class Batches {
  /** `body` gives what is asked of each picture: a body of /v1/jobs without pictures; null while it is not complete. */
  constructor(api, node, body) {
    this.api = api;
    this.body = body;
    this.cards = new Map();
    this.timer = null;
    this.seen = false;
    this.file = el("input", { type: "file", accept: ".zip,.tar,.tgz,.gz,.jsonl", required: true });
    this.error = el("p", { class: "error", role: "alert" });
    this.begin = el("button", { class: "primary" }, "Begin");
    this.list = el("div", { class: "cards" });
    this.none = el("p", { class: "hint" }, "No batch yet.");
    const hint = "A zip or tar of pictures is asked the questions of the Ask view, one row a picture. A JSONL file brings its own.";
    fill(
      node,
      el("div", { class: "section-head" }, el("h1", { id: "batches-title" }, "Batches")),
      el("form", { class: "begin", "aria-label": "A new batch", novalidate: true, on: { submit: (event) => (event.preventDefault(), this.submit()) } }, labelled("File", this.file, { hint }), this.begin, this.error),
      this.none,
      this.list,
    );
  }

  async submit() {
    this.error.textContent = "";
    const [file] = this.file.files;
    if (!file) {
      this.error.textContent = "Choose a file first.";
      this.file.focus();
      return;
    }
    const rows = /\.jsonl$/i.test(file.name);
    const request = rows ? null : this.body();
    if (!rows && !request) {
      this.error.textContent = "The questions in the Ask view are not complete.";
      return;
    }
    this.begin.disabled = true;
    try {
      const form = new FormData();
      form.append("purpose", "batch");
      form.append("file", file);
      const stored = await (await this.api.patiently("POST", "/v1/files", { body: form })).json();
      const endpoint = rows ? await endpointOf(file) : "/v1/jobs";
      const asked = { input_file_id: stored.id, endpoint, completion_window: "24h", metadata: { console: file.name.slice(0, 200) }, ...(request ? { request } : {}) };
      await this.api.patiently("POST", "/v1/batches", { json: asked });
      this.file.value = "";
      say(`Batch of ${file.name} begun`);
      await this.load();
    } catch (error) {
      this.error.textContent = error.message;
    }
    this.begin.disabled = false;
  }

  /** While the view is seen. */
  watch(seen) {
    this.seen = seen;
    clearTimeout(this.timer);
    if (seen) this.load();
  }

  async load() {
    clearTimeout(this.timer);
    try {
      const page = await this.api.json("GET", "/v1/batches?limit=20");
      this.show(page.data);
      const running = page.data.some((batch) => !BatchCard.ended(batch));
      if (this.seen && running) this.timer = setTimeout(() => this.load(), this.api.limited ? LIMITED_MS : EVERY_MS);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.error.textContent = error.message;
    }
  }

  show(batches) {
    this.none.hidden = batches.length > 0;
    const known = this.cards;
    this.cards = new Map(batches.map((batch) => [batch.id, known.get(batch.id) ?? new BatchCard(this.api, () => this.load())]));
    const nodes = batches.map((batch) => this.cards.get(batch.id).show(batch));
    if (nodes.some((node, i) => this.list.children[i] !== node) || this.list.children.length !== nodes.length) fill(this.list, nodes);
  }
}

/** A JSONL batch is of one endpoint; its first line names it. */
async function endpointOf(file) {
  const [line] = (await file.slice(0, 1 << 16).text()).split("\n");
  return /"url"\s*:\s*"([^"]+)"/.exec(line)?.[1] ?? "/v1/systemone";
}
