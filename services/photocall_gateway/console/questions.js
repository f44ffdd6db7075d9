// Questions: the list of questions that are asked together, kept for this tab.

import { el, fill, say } from "./dom.js";
import { FieldError, KINDS, Question } from "./question.js";

const STORED = "photocall.questions";
const FIRST = [{ type: "choice", name: "q1", instructions: "" }];
// Which field of the form a part of the API's body is typed in.
const FIELDS = { criteria: ["options", "levels"], max_tokens: ["tokens"], min: ["min"], max: ["max"], step: ["step"], one_of: ["one_of"], pattern: ["pattern"], after: ["after"], order: ["order"], abstain: ["abstain"], unit: ["unit"] };

export class Questions {
  /** `changed` is called when anything of them is. */
  constructor(changed) {
    this.all = [];
    this.tell = changed;
    this.list = el("div", { class: "questions" });
    const add = (kind) => el("button", { type: "button", on: { click: () => this.add(kind) } }, KINDS[kind]);
    this.node = el(
      "section",
      { "aria-label": "Questions" },
      el("h2", {}, "Questions"),
      this.list,
      el("p", { class: "hint", "aria-hidden": "true" }, "Add a question:"),
      el("div", { class: "add", role: "group", "aria-label": "Add a question" }, Object.keys(KINDS).map(add)),
    );
    this.set(stored());
  }

  /** Replaced by these. */
  set(states) {
    this.all = states.map((state) => new Question(state, this));
    fill(this.list, this.all.map((question) => question.node));
    this.changed();
  }

  /** Whether nobody has written one yet. */
  get untouched() {
    return this.all.every((question) => !question.instructions.value.trim());
  }

  add(kind) {
    const question = new Question({ type: kind, name: this.freshName(), instructions: "" }, this);
    this.all.push(question);
    this.list.append(question.node);
    this.changed();
    question.instructions.focus();
  }

  remove(question) {
    const at = this.all.indexOf(question);
    this.all.splice(at, 1);
    question.node.remove();
    this.changed();
    say(`Question ${question.name.value} removed`);
    const next = this.all[Math.min(at, this.all.length - 1)];
    (next?.instructions ?? this.node.querySelector(".add button")).focus();
  }

  freshName() {
    let n = this.all.length + 1;
    while (this.named(`q${n}`)) n += 1;
    return `q${n}`;
  }

  named(name) {
    return this.all.find((question) => question.name.value.trim() === name);
  }

  changed() {
    try {
      sessionStorage.setItem(STORED, JSON.stringify(this.all.map((question) => question.save())));
    } catch {
      // no room: they last as long as the page
    }
    this.tell();
  }

  /** All of them as the API takes them, by name. Shows what is wrong, and gives null then; `quietly`: only gives null. */
  json({ quietly = false } = {}) {
    const found = {};
    for (const question of this.all) {
      try {
        const name = question.name.value.trim();
        const asked = question.json();
        if (Object.hasOwn(found, name)) throw new FieldError(question.name, `Two questions are named ${name}`);
        Object.defineProperty(found, name, { value: asked, enumerable: true });
      } catch (error) {
        if (!(error instanceof FieldError)) throw error;
        if (!quietly) question.complain(error.message, error.control);
        return null;
      }
    }
    return found;
  }

  /** Shows a refusal of the server at the question that it is about; false: it is about none. */
  complain(loc, message) {
    const parts = loc[0] === "body" ? loc.slice(1) : loc;
    const question = parts[0] === "questions" ? this.named(parts[1]) : null;
    if (!question) return false;
    const names = parts.slice(2).flatMap((part) => (Object.hasOwn(FIELDS, part) ? FIELDS[part] : []));
    const control = names.map((name) => question.controls[name]).find(Boolean);
    question.complain(message, control);
    return true;
  }
}

function stored() {
  try {
    const found = JSON.parse(sessionStorage.getItem(STORED));
    return Array.isArray(found) && found.length ? found : FIRST;
  } catch {
    return FIRST;
  }
}
