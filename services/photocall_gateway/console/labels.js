// Labels: what somebody said is right, beside what was answered; what a calibration is fitted to. Kept for this tab.

import { el } from "./dom.js";

const STORED = "photocall.labels";

export class Labels {
  /** `changed` is called when there is another one. */
  constructor(changed) {
    this.changed = changed;
    this.all = [];
    try {
      this.all = JSON.parse(sessionStorage.getItem(STORED)) ?? [];
    } catch {
      // what cannot be read is begun anew
    }
  }

  /** A control to say what is right, one label an answer of a job; null for answers that nothing is fitted to. */
  control(job, question, answer) {
    const right = options(answer);
    if (!right) return null;
    const select = el(
      "select",
      { class: "right", data: { job, question }, "aria-label": `What is right for ${question}` },
      el("option", { value: "" }, "What is right?"),
      right.map(([label, text]) => el("option", { value: JSON.stringify(label) }, text)),
    );
    select.addEventListener("change", () => {
      this.all = this.all.filter((other) => other.job !== job || other.question !== question);
      if (select.value !== "") this.all.push({ job, question, answer, label: JSON.parse(select.value) });
      this.keep();
    });
    this.show(select);
    return select;
  }

  /** What was said of its answer, wherever it was said. */
  show(select) {
    const { job, question } = select.dataset;
    const found = this.all.find((entry) => entry.job === job && entry.question === question);
    select.value = found ? JSON.stringify(found.label) : "";
  }

  /** How many there are, by question. */
  counts() {
    const found = new Map();
    for (const { question } of this.all) found.set(question, (found.get(question) ?? 0) + 1);
    return [...found];
  }

  clear() {
    this.all = [];
    this.keep();
  }

  /** As the API takes them. */
  said() {
    return this.all.map(({ question, answer, label }) => ({ question, answer, label }));
  }

  /** As `photocall calibrate` reads them: a JSON object a line. */
  lines() {
    return this.said().map((entry) => `${JSON.stringify(entry)}\n`).join("");
  }

  keep() {
    try {
      sessionStorage.setItem(STORED, JSON.stringify(this.all));
    } catch {
      // no room: they last as long as the page
    }
    for (const select of document.querySelectorAll("select.right")) this.show(select); // one answer may have two cards
    this.changed();
  }
}

/** [label, text] of everything that may be right; null: nothing is fitted to such answers. */
function options(answer) {
  if (answer.type === "noul") return [[true, "yes"], [false, "no"]];
  if (answer.type === "choice") return Object.keys(answer.probabilities).map((label) => [label, label]);
  if (answer.type === "score") return Object.keys(answer.probabilities).map((level) => [Number(level), level]);
  return null;
}
