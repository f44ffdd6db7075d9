// BatchCard: one batch: its bar, its counts, what has failed and why, and what can be done about it.

import { headline } from "./answer.js";
import { el, fill } from "./dom.js";
import { ago, duration, plain } from "./format.js";
import { answersOf } from "./result.js";

const ENDS = new Set(["completed", "failed", "expired", "cancelled"]);
const LINES = 20; // of a file that are shown

export class BatchCard {
  /** `changed` is called when something was done that the list should show. */
  constructor(api, changed) {
    this.api = api;
    this.changed = changed;
    this.title = el("h3");
    this.chip = el("span", { class: "chip" });
    this.when = el("small");
    this.done = el("span", { class: "fill good" });
    this.wrong = el("span", { class: "fill bad" });
    this.bar = el("div", { class: "progress", role: "progressbar", "aria-valuemin": 0 }, this.done, this.wrong);
    this.counts = el("p", { class: "counts" });
    this.errors = el("ul", { class: "failures" });
    this.lines = el("div", { class: "lines" });
    this.buttons = el("div", { class: "row" });
    this.node = el("article", { class: "card batch" }, el("header", {}, this.title, this.chip, this.when), this.bar, this.counts, this.errors, this.buttons, this.lines);
    this.drawn = "";
  }

  static ended(batch) {
    return ENDS.has(batch.status);
  }

  /** The batch as it stands now; gives the node. */
  show(batch) {
    const { total, completed, failed } = batch.request_counts;
    const name = batch.metadata?.console ?? batch.folder ?? batch.id;
    this.node.title = batch.id;
    this.title.textContent = name;
    this.chip.className = `chip ${batch.status}`;
    this.chip.textContent = batch.status.replaceAll("_", " ");
    this.when.textContent = ago(batch.created_at);
    const share = (count) => `${total ? (100 * count) / total : 0}%`;
    this.done.style.setProperty("width", share(completed));
    this.wrong.style.setProperty("width", share(failed));
    this.bar.setAttribute("aria-valuemax", String(total));
    this.bar.setAttribute("aria-valuenow", String(completed + failed));
    this.bar.setAttribute("aria-label", `Rows of ${name}`);
    this.counts.textContent = counts(batch, total, completed, failed);
    fill(this.errors, (batch.errors?.data ?? []).map((error) => el("li", {}, `${error.line ? `line ${error.line}: ` : ""}${error.message}`)));
    const drawn = [batch.status, batch.output_file_id, batch.error_file_id].join();
    if (drawn !== this.drawn) this.offer(batch, name); // buttons that nothing has changed of keep the focus
    this.drawn = drawn;
    return this.node;
  }

  offer(batch, name) {
    const button = (text, call) => el("button", { type: "button", "aria-label": `${text}: ${name}`, on: { click: () => this.attempt(call) } }, text);
    const post = (action) => async () => {
      await this.api.call("POST", `/v1/batches/${batch.id}/${action}`);
      this.changed();
    };
    fill(
      this.buttons,
      batch.error_file_id && button("Show failures", () => this.read(batch.error_file_id)),
      batch.output_file_id && button("Show answers", () => this.read(batch.output_file_id)),
      batch.output_file_id && button("Download answers", () => this.save(batch.output_file_id)),
      batch.error_file_id && button("Download failures", () => this.save(batch.error_file_id)),
      ENDS.has(batch.status) && batch.error_file_id && button("Ask failed rows again", post("retry-failed")),
      !ENDS.has(batch.status) && batch.status !== "cancelling" && button("Cancel", post("cancel")),
    );
  }

  async attempt(call) {
    try {
      await call();
    } catch (error) {
      fill(this.lines, el("p", { class: "error", role: "alert" }, error.message));
    }
  }

  /** The first lines of a result. */
  async read(fileId) {
    const text = await (await this.api.call("GET", `/v1/files/${fileId}/content?limit=${LINES}`)).text();
    const rows = text.split("\n").filter(Boolean).map((line) => row(JSON.parse(line)));
    const heads = ["Row", "What became of it"].map((head) => el("th", { scope: "col" }, head));
    fill(this.lines, el("div", { class: "scroll" }, el("table", {}, el("caption", {}, rows.length < LINES ? `${rows.length} of these` : `The first ${rows.length}`), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))));
  }

  /** All of it, to the disk. */
  async save(fileId) {
    const blob = await (await this.api.call("GET", `/v1/files/${fileId}/content`)).blob();
    download(blob, `${fileId}.jsonl`);
  }
}

/** Gives the user a file. */
export function download(blob, name) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function row(line) {
  return el("tr", {}, el("th", { scope: "row" }, line.custom_id), el("td", { class: "wide" }, said(line)));
}

function said(line) {
  const body = line.response?.body ?? {};
  const answers = answersOf({ result: body.answers ? body : body.result });
  if (answers.length) return answers.map(([question, answer]) => `${question}: ${headline(answer)}`).join(" · ");
  const error = line.error ?? body.error ?? (typeof body.detail === "object" && body.detail !== null ? body.detail : body);
  const first = Array.isArray(error) ? { message: error.map((one) => `${(one.loc ?? []).join(".")}: ${one.msg}`).join("; ") } : error;
  return String(first.message ?? first.detail ?? `status ${line.response?.status_code}`);
}

function counts(batch, total, completed, failed) {
  const parts = [`${plain(completed)} of ${plain(total)} answered`];
  if (failed) parts.push(`${plain(failed)} failed`);
  if (batch.paused) parts.push(`paused: ${batch.paused.replaceAll("_", " ")}`);
  const end = batch.completed_at ?? batch.failed_at ?? batch.cancelled_at ?? batch.expired_at;
  const begun = batch.in_progress_at;
  if (end && begun) parts.push(`in ${duration(1000 * Math.max(1, end - begun))}`);
  return parts.join(" · ");
}
