// Calibrations: fitted to answers that somebody has labelled, and what they did to the reliability of the answers.

import { download } from "./batch.js";
import { el, fill, labelled, say } from "./dom.js";
import { ago, plain } from "./format.js";
import { diagram } from "./reliability.js";

const NEEDED = 50; // labels of a question

export class Calibrations {
  /** `found` hears which are kept for this key. */
  constructor(api, node, labels, found) {
    this.api = api;
    this.labels = labels;
    this.found = found;
    this.file = el("input", { type: "file", accept: ".jsonl,.ndjson,.json" });
    this.by = el("select", {}, el("option", { value: "question" }, "each question"), el("option", { value: "type" }, "each type"));
    this.error = el("p", { class: "error", role: "alert" });
    this.own = el("div", { class: "own" });
    this.fitted = el("div", { class: "cards" });
    this.kept = el("div", { class: "cards" });
    const form = el(
      "form",
      { class: "begin", "aria-label": "A new calibration", novalidate: true, on: { submit: (event) => (event.preventDefault(), this.submit()) } },
      labelled("Labels", this.file, { hint: 'Lines of {"question", "answer", "label"}. Without a file: the answers that were labelled here.' }),
      labelled("A correction for", this.by),
      el("button", { class: "primary" }, "Fit"),
      this.error,
    );
    fill(node, el("div", { class: "section-head" }, el("h1", { id: "calibration-title" }, "Calibration")), this.own, form, this.fitted, this.kept);
    this.count();
  }

  /** How many answers were labelled here. */
  count() {
    const counts = this.labels.counts();
    const some = counts.length > 0;
    const save = () => download(new Blob([this.labels.lines()], { type: "application/jsonl" }), "labels.jsonl");
    fill(
      this.own,
      el("p", {}, some ? `Labelled here (${NEEDED} of a question are needed): ` : "Say what is right below an answer, and it is counted here.", counts.map(([name, count]) => el("span", { class: "chip" }, `${name} ${count}`))),
      some && el("div", { class: "row" }, el("button", { type: "button", class: "quiet", on: { click: save } }, "Save as JSONL"), el("button", { type: "button", class: "quiet", on: { click: () => this.labels.clear() } }, "Forget them")),
    );
  }

  async submit() {
    this.error.textContent = "";
    try {
      const [file] = this.file.files;
      const labels = file ? parsed(await file.text()) : this.labels.said();
      const made = await this.api.json("POST", "/v1/calibrations", { json: { labels, by: this.by.value } });
      fill(this.fitted, made.id === null && view(made, "Fitted, and not kept"), refused(made.refused));
      say(`Fitted: ${Object.keys(made.reports).join(", ")}`);
      await this.load();
    } catch (error) {
      this.error.textContent = error.message;
    }
  }

  forgetting(one) {
    const forget = async () => {
      try {
        await this.api.call("DELETE", one.urls.self);
        await this.load();
      } catch (error) {
        this.error.textContent = error.message;
      }
    };
    return el("button", { type: "button", class: "quiet", "aria-label": `Forget calibration ${one.id}`, on: { click: forget } }, "Forget");
  }

  /** What is kept for this key, the newest first. */
  async load() {
    try {
      const page = await this.api.json("GET", "/v1/calibrations?limit=10");
      const kept = await Promise.all(page.data.map((one) => this.api.json("GET", one.urls.self)));
      fill(this.kept, kept.length > 0 && el("h2", {}, "Kept"), kept.map((one) => view(one, `Fitted ${ago(one.created_at)}`, this.forgetting(one))));
      this.found(page.data);
    } catch (error) {
      this.error.textContent = error.message;
    }
  }
}

/** Raises Error with the number of a line that is no JSON. */
function parsed(text) {
  return text
    .split("\n")
    .map((line, i) => [line.trim(), i + 1])
    .filter(([line]) => line)
    .map(([line, number]) => {
      try {
        return JSON.parse(line);
      } catch {
        throw new Error(`Line ${number} is no JSON`);
      }
    });
}

function view(made, title, ...buttons) {
  const corrections = made.questions ?? made.types ?? {};
  return el(
    "article",
    { class: "card calibration" },
    el("header", {}, el("h3", {}, title), made.id ? el("code", {}, made.id) : el("span", { class: "chip" }, "no correction helps"), buttons),
    el("div", { class: "reports" }, Object.entries(made.reports ?? {}).map(([name, report]) => reportView(name, report, corrections[name]))),
  );
}

function reportView(name, report, correction) {
  const figures = [["Accuracy", "accuracy"], ["Brier", "brier"], ["ECE", "ece"], ["NLL", "nll"]];
  const rows = figures.map(([text, key]) => el("tr", {}, el("th", { scope: "row" }, text), el("td", {}, plain(report.before[key])), el("td", {}, plain(report.after[key]))));
  const heads = ["", "before", "after"].map((text) => el("th", { scope: "col" }, text));
  const terms = correction ? `temperature ${plain(correction.temperature, 2)}${correction.bias ? `, bias ${plain(correction.bias, 2)}` : ""}` : "no correction helps";
  return el(
    "section",
    { class: "report" },
    el("h4", {}, name),
    report.bins ? diagram(name, report) : null,
    el("table", {}, el("caption", {}, `${plain(report.count)} labels, ${terms}`), el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows)),
  );
}

function refused(reasons = {}) {
  const entries = Object.entries(reasons);
  return entries.length > 0 && el("ul", { class: "failures" }, entries.map(([name, reason]) => el("li", {}, `${name}: ${reason}`)));
}
