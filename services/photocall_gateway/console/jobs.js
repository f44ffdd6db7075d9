// Jobs: the key's last jobs, and the answers of the one that is opened.

import { headline } from "./answer.js";
import { AnswerCard } from "./answers.js";
import { follow } from "./asking.js";
import { el, fill } from "./dom.js";
import { ago, duration } from "./format.js";
import { answersOf, took } from "./result.js";
import { serverEvents } from "./sse.js";

const SHOWN = 20;
const ENDED = new Set(["succeeded", "failed", "cancelled", "expired"]);

export class Jobs {
  constructor(api, node, labels) {
    this.api = api;
    this.labels = labels;
    this.status = el("select", {}, ["", "queued", "preparing", "running", "succeeded", "failed", "cancelled", "expired"].map((value) => el("option", { value }, value || "any status")));
    this.status.setAttribute("aria-label", "Status");
    this.status.addEventListener("change", () => this.load());
    this.error = el("p", { class: "error", role: "alert" });
    this.rows = el("tbody");
    this.more = el("button", { type: "button", class: "quiet", hidden: true, on: { click: () => this.load(this.last) } }, "Older ones");
    this.opened = el("div", { class: "opened" });
    const heads = ["Job", "Status", "When", "Took", "Answers"].map((text) => el("th", { scope: "col" }, text));
    fill(
      node,
      el("div", { class: "section-head" }, el("h1", { id: "jobs-title" }, "Jobs"), this.status, el("button", { type: "button", class: "quiet", on: { click: () => this.load() } }, "Refresh")),
      this.error,
      el("div", { class: "scroll" }, el("table", {}, el("caption", { class: "hidden" }, "The last jobs of this key"), el("thead", {}, el("tr", {}, heads)), this.rows)),
      this.more,
      this.opened,
    );
  }

  /** The newest, or those behind `after`. */
  async load(after = null) {
    this.error.textContent = "";
    const query = new URLSearchParams({ limit: SHOWN, ...(after ? { after } : {}), ...(this.status.value ? { status: this.status.value } : {}) });
    try {
      const page = await this.api.json("GET", `/v1/jobs?${query}`);
      const rows = page.data.map((job) => this.row(job));
      if (!after && !rows.length) rows.push(el("tr", {}, el("td", { colspan: 5, class: "hint" }, "None yet, or none that is still kept.")));
      if (after) this.rows.append(...rows);
      else fill(this.rows, rows);
      this.last = page.last_id;
      this.more.hidden = !page.has_more;
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  row(job) {
    const ms = took(job);
    const name = job.metadata.console || job.id;
    const summary = job.error ? job.error.message : answersOf(job).map(([question, answer]) => `${question}: ${headline(answer)}`).join(" · ");
    return el(
      "tr",
      {},
      el("td", {}, el("button", { type: "button", class: "link", title: job.id, on: { click: () => this.open(job, name) } }, name)),
      el("td", {}, el("span", { class: `chip ${job.status}` }, job.status)),
      el("td", {}, ago(job.created_at)),
      el("td", { class: "number" }, ms === null ? "" : duration(ms)),
      el("td", { class: "wide" }, summary),
    );
  }

  /** Its answers, below the list. */
  async open(job, name) {
    const card = new AnswerCard(this.api, name, {}, this.labels);
    fill(this.opened, card.node);
    card.heading.focus();
    try {
      if (ENDED.has(job.status)) {
        await this.pictures(job, card);
        card.end(job);
      } else {
        card.cancel.addEventListener("click", () => this.api.call("POST", job.urls.cancel).catch((error) => card.fail(error)));
        card.end(await follow(this.api, job, (...said) => card.told(...said)));
      }
    } catch (error) {
      card.fail(error);
    }
  }

  /** A job does not say which pictures it was about; its events do. */
  async pictures(job, card) {
    const response = await this.api.call("GET", job.urls.events);
    for await (const { event, data } of serverEvents(response)) if (event === "prepared") card.see(data.images);
  }
}
