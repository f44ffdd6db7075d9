// The API key: kept for this tab alone, in sessionStorage, and asked for in a dialog.

import { el, fill, labelled } from "./dom.js";

const STORED = "photocall.key";

export class Key {
  constructor() {
    this.value = sessionStorage.getItem(STORED) ?? "";
  }

  set(value) {
    this.value = value;
    try {
      if (value) sessionStorage.setItem(STORED, value);
      else sessionStorage.removeItem(STORED);
    } catch {
      // no room: it lasts as long as the page
    }
  }
}

export class KeyDialog {
  /** `button` opens it; `changed` is called once there is another key. */
  constructor(key, button, changed) {
    this.key = key;
    this.button = button;
    this.changed = changed;
    this.input = el("input", { type: "password", autocomplete: "off", spellcheck: "false", name: "key" });
    this.why = el("p", { class: "error", role: "alert" });
    const forget = el("button", { type: "button", class: "quiet", on: { click: () => this.take("") } }, "Forget it");
    const cancel = el("button", { type: "button", class: "quiet", on: { click: () => this.dialog.close() } }, "Cancel");
    const form = el(
      "form",
      { method: "dialog", on: { submit: (event) => this.submit(event) } },
      el("h2", {}, "API key"),
      this.why,
      labelled("Key", this.input, { hint: "Kept until this tab is closed, in this tab only, and sent to this server only." }),
      el("div", { class: "row end" }, forget, cancel, el("button", { class: "primary" }, "Use this key")),
    );
    this.dialog = el("dialog", { "aria-label": "API key" }, form);
    document.body.append(this.dialog);
    button.addEventListener("click", () => this.open());
    this.show();
  }

  open(why = "") {
    this.why.textContent = why;
    if (this.dialog.open) return;
    this.input.value = this.key.value;
    this.dialog.showModal();
    this.input.select();
  }

  submit(event) {
    event.preventDefault();
    this.take(this.input.value.trim());
  }

  take(value) {
    this.key.set(value);
    this.dialog.close();
    this.show();
    this.changed();
  }

  show() {
    fill(this.button, this.key.value ? "API key ••••" : "API key");
  }
}
