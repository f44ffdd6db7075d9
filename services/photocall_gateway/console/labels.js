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

  /** A control to say what is right; null for answers that nothing is fitted to. */
  control(question, answer) {
    const right = options(answer);
    if (!right) return null;
    const entry = { question, answer, label: null };
    const select = el(
      "select",
      { class: "right", "aria-label": `What is right for ${question}` },
      el("option", { value: "" }, "What is right?"),
      right.map(([, text], i) => el("option", { value: i }, text)),
    );
    select.addEventListener("change", () => {
      this.all = this.all.filter((other) => other !== entry);
      if (select.value !== "") {
        entry.label = right[Number(select.value)][0];
        this.all.push(entry);
      }
      this.keep();
    });
    return select;
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

  /** As `photocall calibrate` reads them: a JSON object a line. */
  lines() {
    return this.all.map((entry) => `${JSON.stringify(entry)}\n`).join("");
  }

  keep() {
    try {
      sessionStorage.setItem(STORED, JSON.stringify(this.all));
    } catch {
      // no room: they last as long as the page
    }
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
