// Pictures: where pictures are dropped, pasted, picked or taken, and what was chosen so far.

import { Camera } from "./camera.js";
import { el, fill, labelled, say } from "./dom.js";
import { bytes } from "./format.js";
import { Picture } from "./picture.js";

export class Pictures {
  /** `changed` is called when there are others. */
  constructor(changed) {
    this.chosen = [];
    this.changed = changed;
    this.camera = new Camera((file) => this.add([file]));
    this.picker = el("input", {
      type: "file", multiple: true, accept: "image/*,.heic,.heif,.avif,.tif,.tiff,.pdf", hidden: true,
      "aria-label": "Picture files", on: { change: () => this.picked() },
    });
    this.list = el("ul", { class: "thumbs", "aria-label": "Chosen pictures" });
    this.hint = el("p", { class: "hint" }, "Drop pictures here, paste one, or");
    this.node = el(
      "div",
      { class: "drop", on: { dragover: (event) => this.over(event), dragleave: () => this.out(), drop: (event) => this.dropped(event) } },
      this.list,
      this.hint,
      el(
        "div",
        { class: "row" },
        el("button", { type: "button", on: { click: () => this.picker.click() } }, "Choose pictures…"),
        el("button", { type: "button", on: { click: () => this.camera.open() } }, "Camera"),
        el("button", { type: "button", class: "quiet", on: { click: () => this.draw() } }, "Draw a sample"),
      ),
      this.picker,
    );
    this.sampled = () => {};
    document.addEventListener("paste", (event) => this.pasted(event));
    for (const name of ["dragover", "drop"]) document.addEventListener(name, (event) => event.preventDefault());
  }

  /** Takes files in; what is no file of the kind is for the server to say. */
  add(files) {
    const taken = [...files].map((file) => (file instanceof Picture ? file : new Picture(file)));
    if (!taken.length) return;
    this.chosen.push(...taken);
    this.show();
    say(`${taken.map((picture) => picture.name).join(", ")} added; ${this.chosen.length} chosen`);
  }

  remove(picture) {
    this.chosen = this.chosen.filter((other) => other !== picture);
    this.show();
    picture.drop(); // cards of answers show what the server has of it
    say(`${picture.name} removed`);
    (this.list.querySelector("button") ?? this.node.querySelector(".row button")).focus();
  }

  picked() {
    this.add(this.picker.files);
    this.picker.value = "";
  }

  pasted(event) {
    const files = [...(event.clipboardData?.files ?? [])].filter((file) => file.type.startsWith("image/"));
    if (!files.length) return;
    event.preventDefault();
    this.add(files.map((file) => new Picture(file, file.name === "image.png" ? `pasted ${this.chosen.length + 1}.png` : file.name)));
  }

  dropped(event) {
    event.preventDefault();
    event.stopPropagation();
    this.out();
    this.add(event.dataTransfer.files);
  }

  over(event) {
    event.preventDefault();
    this.node.classList.add("over");
  }

  out() {
    this.node.classList.remove("over");
  }

  async draw() {
    const { drawSample } = await import("./sample.js");
    this.add([await drawSample()]);
    this.sampled();
  }

  show() {
    fill(this.list, this.chosen.map((picture) => this.thumb(picture)));
    this.hint.textContent = this.chosen.length ? "More:" : "Drop pictures here, paste one, or";
    this.changed(this.chosen);
  }

  thumb(picture) {
    const image = el("img", { src: picture.url, alt: "", width: 72, height: 72, decoding: "async" });
    const kind = picture.name.split(".").pop().slice(0, 5).toUpperCase();
    image.addEventListener("error", () => image.replaceWith(el("span", { class: "unseen", "aria-hidden": "true" }, kind)));
    const remove = () => this.remove(picture);
    const page = el("input", { type: "number", min: 1, step: 1, value: picture.page ?? 1 });
    page.addEventListener("change", () => (picture.page = Number(page.value) > 1 ? Number(page.value) : null));
    return el(
      "li",
      {},
      image,
      el("span", { class: "name", title: picture.name }, picture.name),
      el("small", {}, bytes(picture.file.size)),
      picture.paged ? labelled("Page", page) : null,
      el("button", { type: "button", class: "close", "aria-label": `Remove ${picture.name}`, on: { click: remove } }, "×"),
    );
  }
}
