// Request: the form on the left, and the bodies of POST /v1/jobs that it stands for.

import { el, fill, labelled } from "./dom.js";
import { Pictures } from "./pictures.js";
import { Questions } from "./questions.js";
import { QUESTIONS } from "./sample.js";

const BUDGETS = [["", "As the server is set"], ["auto", "By its detail"], ["70", "70"], ["140", "140"], ["280", "280"], ["560", "560"], ["1120", "1120"]];

export class Request {
  /** `form` is filled; `ask` gets what is asked once somebody asks. */
  constructor(form, ask) {
    this.ask = ask;
    this.pictures = new Pictures(() => this.changed());
    this.questions = new Questions(() => this.changed());
    this.pictures.sampled = () => this.questions.untouched && this.questions.set(QUESTIONS);
    this.text = el("textarea", { rows: 2, placeholder: "An order form of our shop in Graz" });
    this.together = el("input", { type: "checkbox" });
    this.togetherField = el("label", { class: "check", hidden: true }, this.together, "All pictures in one request");
    this.budget = el("select", {}, BUDGETS.map(([value, text]) => el("option", { value }, text)));
    this.calibration = el("select");
    this.calibrationField = labelled("Calibration", this.calibration);
    this.error = el("p", { class: "error", role: "alert" });
    this.body = el("pre", { tabindex: "0", "aria-label": "The request as JSON" });
    this.button = el("button", { class: "primary", "aria-keyshortcuts": "Control+Enter" }, "Ask");
    this.offer([]);
    fill(
      form,
      el("section", { "aria-label": "Pictures" }, el("h2", {}, "Pictures"), this.pictures.node, this.togetherField),
      this.questions.node,
      el(
        "details",
        { class: "more" },
        el("summary", {}, "Text and settings"),
        labelled("Text beside the pictures", this.text),
        el("div", { class: "pair" }, labelled("Soft tokens of a picture", this.budget), this.calibrationField),
      ),
      el(
        "details",
        { class: "more", on: { toggle: () => this.changed() } },
        el("summary", {}, "As JSON"),
        el("div", { class: "row end" }, el("button", { type: "button", class: "quiet", on: { click: (event) => this.copy(event.target) } }, "Copy")),
        this.body,
      ),
      el("div", { class: "send" }, this.error, el("div", { class: "row" }, this.button, el("kbd", { "aria-hidden": "true" }, "Ctrl ↵"))),
    );
    form.addEventListener("input", () => this.changed());
    form.addEventListener("submit", (event) => (event.preventDefault(), this.submit()));
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey) || form.closest("[hidden]")) return;
      event.preventDefault();
      this.submit();
    });
    this.changed();
  }

  /** The calibrations that answers can be corrected with. */
  offer(calibrations) {
    const chosen = this.calibration.value;
    const name = (found) => `${Object.keys(found.questions ?? found.types ?? {}).join(", ") || "nothing"} (${found.id})`;
    fill(this.calibration, el("option", { value: "" }, "The model's own"), calibrations.map((found) => el("option", { value: found.id }, name(found))));
    if (calibrations.some((found) => found.id === chosen)) this.calibration.value = chosen;
    this.calibrationField.hidden = !calibrations.length;
  }

  changed() {
    if (!this.body) return; // while it is being built
    const many = this.pictures.chosen.length > 1;
    this.togetherField.hidden = !many;
    const text = many && !this.together.checked ? `Ask about each of ${this.pictures.chosen.length}` : "Ask";
    if (this.button.textContent !== text) this.button.textContent = text;
    if (this.body.closest("details").open) {
      const questions = this.questions.json({ quietly: true });
      this.body.textContent = questions ? JSON.stringify(this.example(questions), null, 1) : "Once every question is complete.";
    }
  }

  async copy(button) {
    await navigator.clipboard?.writeText(this.body.textContent);
    button.textContent = navigator.clipboard ? "Copied" : "Select it below";
  }

  /** The first of the requests, with the way to name its pictures. */
  example(questions) {
    const [group = []] = this.groups();
    return this.make(questions, group, group.map(() => "<sha256 of a picture that was PUT to /v1/images/>"));
  }

  /** Which pictures are asked about together. One of text alone is one request too. */
  groups() {
    const chosen = this.pictures.chosen;
    return chosen.length > 1 && !this.together.checked ? chosen.map((picture) => [picture]) : [chosen];
  }

  /** A body, once its pictures have their hashes. */
  make(questions, pictures, hashes) {
    const keys = pictures.map((_, i) => (pictures.length > 1 ? `picture ${i + 1}` : "picture"));
    const text = this.text.value.trim();
    const shown = Object.fromEntries(keys.map((key) => [key, key]));
    const body = {
      state: text ? { text, ...shown } : pictures.length === 1 ? "picture" : pictures.length ? shown : "",
      questions,
    };
    if (pictures.length) body.assets = Object.fromEntries(keys.map((key, i) => [key, pictures[i].asset(hashes[i])]));
    if (this.budget.value) body.budget = this.budget.value === "auto" ? "auto" : Number(this.budget.value);
    if (this.calibration.value) body.calibration = this.calibration.value;
    const names = pictures.map((picture) => picture.name).join(", ");
    return { ...body, metadata: { console: names.slice(0, 200) } };
  }

  /** What a batch asks of each of its pictures; null while a question is not complete. */
  batchBody() {
    const questions = this.questions.json({ quietly: true });
    if (!questions || !Object.keys(questions).length) return null;
    const { assets, metadata, ...body } = this.make(questions, [], []);
    return { ...body, state: body.state.text ?? "[image 1]" };
  }

  submit() {
    this.error.textContent = "";
    const questions = this.questions.json();
    if (!questions) return;
    if (!Object.keys(questions).length) {
      this.error.textContent = "Add a question first.";
      return;
    }
    if (!this.pictures.chosen.length && !this.text.value.trim()) {
      this.error.textContent = "Choose a picture first, or write a text to ask about.";
      return;
    }
    for (const pictures of this.groups()) this.ask(questions, pictures, (hashes) => this.make(questions, pictures, hashes));
  }

  /** Shows what the server would not take at the question that it is about; false: it is about none. */
  complain(error) {
    return this.questions.complain(error.loc, error.message);
  }
}
