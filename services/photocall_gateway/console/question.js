// Question: one typed question as it is being built, and the JSON it becomes.

import { el, fill, labelled } from "./dom.js";

export const KINDS = {
  choice: "Choice",
  noul: "Yes or no",
  score: "Score",
  number: "Number",
  text: "Text",
  box: "Box",
};
const HINTS = {
  choice: "Which colour is the car?",
  noul: "Is the parcel damaged?",
  score: "How full is the shelf?",
  number: "How many bottles are there?",
  text: "What does the sign say?",
  box: "Where is the car?",
};
const LETTERED = new Set(["choice", "noul", "score"]);

/** A field that cannot be taken as it is; `control` is where. */
export class FieldError extends Error {
  constructor(control, message) {
    super(message);
    this.control = control;
  }
}

export class Question {
  /** `state` is what `save` gave. `list` is whom it belongs to: it is told of changes, and removes. */
  constructor(state, list) {
    this.list = list;
    this.error = el("p", { class: "error", role: "alert" });
    this.name = el("input", { value: state.name, spellcheck: "false", autocomplete: "off", maxlength: 256 });
    this.kind = el("select", { on: { change: () => (this.rebuild(), this.touched()) } }, Object.entries(KINDS).map(([value, text]) => el("option", { value }, text)));
    this.kind.value = state.type;
    this.instructions = el("textarea", { rows: 2 });
    this.instructions.value = state.instructions ?? "";
    this.controls = {};
    this.fields = el("div", { class: "fields" });
    this.more = el("div", { class: "fields" });
    const remove = el("button", { type: "button", class: "close", on: { click: () => list.remove(this) } }, "×");
    this.removing = remove;
    this.node = el(
      "fieldset",
      { class: "question" },
      el("legend", { class: "hidden" }, "Question"),
      el("div", { class: "pair" }, labelled("Type", this.kind), labelled("Name", this.name)),
      labelled("Question", this.instructions),
      this.fields,
      el("details", {}, el("summary", {}, "More"), this.more),
      this.error,
      remove,
    );
    this.node.addEventListener("input", () => this.touched());
    this.rebuild(state);
    this.call();
  }

  touched() {
    this.complain(null);
    this.call();
    this.list.changed();
  }

  /** Its button says what it removes. */
  call() {
    this.removing.setAttribute("aria-label", `Remove question ${this.name.value}`);
  }

  /** The fields of its type; what was typed is kept. */
  rebuild(state = this.save()) {
    const kind = this.kind.value;
    this.instructions.placeholder = HINTS[kind];
    this.controls = {};
    const area = (name, text, rows, hint) => this.control(name, text, el("textarea", { rows }), state, hint);
    const line = (name, text, props, hint = "") => this.control(name, text, el("input", props), state, hint);
    const pick = (name, text, options) =>
      this.control(name, text, el("select", {}, options.map(([value, shown]) => el("option", { value }, shown))), state);
    const number = { type: "number", step: "any", inputmode: "decimal" };
    fill(
      this.fields,
      kind === "choice" && area("options", "Options", 3, "One a line."),
      kind === "score" && area("levels", "Levels", 3, "One a line, from the lowest to the highest."),
      kind === "number" && el("div", { class: "quad" }, line("min", "Least", number), line("max", "Most", number), line("step", "Step", number), line("unit", "Unit", {})),
    );
    fill(
      this.more,
      kind === "text" && line("tokens", "Longest, in tokens", { type: "number", min: 1, max: 256 }),
      kind === "text" && area("one_of", "One of", 2, "One text a line: the answer is one of them, each with its probability."),
      kind === "text" && line("pattern", "Pattern", { spellcheck: "false" }, "A regular expression that the whole text matches."),
      LETTERED.has(kind) && pick("order", "Order of the options", [["", "As given"], ["debias", "Every turn, averaged"], ["auto", "Every turn where it is close"]]),
      pick("abstain", "When it cannot tell", [["", "Answer all the same"], ["cannot_tell", "Abstain"]]),
      line("after", "Only after", { spellcheck: "false", placeholder: "name = answer" }, "Asked only when another question has that answer."),
    );
  }

  control(name, text, node, state, hint = "") {
    if (state[name] !== undefined) node.value = state[name];
    this.controls[name] = node;
    return labelled(text, node, { hint });
  }

  /** Everything that was typed, to be built from again. */
  save() {
    const typed = Object.fromEntries(Object.entries(this.controls).map(([name, control]) => [name, control.value]));
    return { type: this.kind.value, name: this.name.value, instructions: this.instructions.value, ...typed };
  }

  /** The question as the API takes it. Raises FieldError. */
  json() {
    const kind = this.kind.value;
    const typed = (name) => this.controls[name]?.value.trim() ?? "";
    if (!this.name.value.trim()) throw new FieldError(this.name, "A question has a name");
    if (!this.instructions.value.trim()) throw new FieldError(this.instructions, "What is asked?");
    const asked = { type: kind, instructions: this.instructions.value.trim() };
    if (kind === "choice") asked.criteria = this.lines("options", "A choice has an option at least");
    if (kind === "score") asked.criteria = this.lines("levels", "A scale has a level at least");
    for (const name of ["min", "max", "step"]) if (typed(name)) asked[name] = Number(typed(name));
    if (typed("unit")) asked.unit = typed("unit");
    if (typed("tokens")) asked.max_tokens = Number(typed("tokens"));
    if (typed("one_of")) asked.one_of = this.lines("one_of", "");
    if (typed("pattern")) asked.pattern = typed("pattern");
    if (typed("order")) asked.order = typed("order");
    if (typed("abstain")) asked.abstain = { cannot_tell: true };
    if (typed("after")) asked.after = this.condition(typed("after"));
    return asked;
  }

  lines(name, missing) {
    const found = this.controls[name].value.split("\n").map((line) => line.trim()).filter(Boolean);
    if (!found.length) throw new FieldError(this.controls[name], missing);
    return found;
  }

  condition(text) {
    const at = text.indexOf("=");
    if (at < 1) throw new FieldError(this.controls.after, "Write it as name = answer");
    const equals = text.slice(at + 1).trim();
    const question = text.slice(0, at).trim();
    const other = this.list.named(question)?.kind.value;
    if (other === "noul") return { question, equals: /^(yes|true)$/i.test(equals) };
    return { question, equals: other === "number" || other === "score" ? Number(equals) : equals };
  }

  /** Shows what is wrong with it, at `control` where that is known; null: nothing. */
  complain(message, control = null) {
    this.error.textContent = message ?? "";
    this.node.classList.toggle("wrong", Boolean(message));
    for (const each of this.node.querySelectorAll("[aria-invalid]")) each.removeAttribute("aria-invalid");
    if (message === null) return;
    const where = control ?? this.instructions;
    where.setAttribute("aria-invalid", "true");
    where.closest("details")?.setAttribute("open", "");
    where.focus();
  }
}
