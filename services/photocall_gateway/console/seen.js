// Seen: what the model saw of a picture, with the boxes of the answers drawn on it.

import { ApiError } from "./api.js";
import { el, fill, svg } from "./dom.js";

export class Seen {
  /** `path` is that of seen.png; `name` is what the picture is called. */
  constructor(api, path, name) {
    this.api = api;
    this.path = path;
    this.name = name;
    this.boxes = svg("svg", { viewBox: "0 0 1 1", preserveAspectRatio: "none", "aria-hidden": "true" });
    this.tags = el("div", { class: "tags", "aria-hidden": "true" });
    this.frame = el("div", { class: "frame" }, el("p", { class: "hint" }, "…"), this.boxes, this.tags);
    this.size = el("small");
    this.node = el("figure", { class: "seen" }, this.frame, el("figcaption", {}, el("span", {}, "What the model saw"), this.size));
  }

  async load() {
    try {
      const response = await this.api.patiently("GET", this.path);
      const url = URL.createObjectURL(await response.blob());
      const image = el("img", { src: url, alt: `What the model saw of ${this.name}` });
      await image.decode();
      URL.revokeObjectURL(url);
      this.frame.querySelector("p")?.replaceWith(image);
      this.size.textContent = `${image.naturalWidth} × ${image.naturalHeight}`;
    } catch (error) {
      const why = error instanceof ApiError ? error.message : "It cannot be shown.";
      fill(this.frame, el("p", { class: "hint" }, why));
    }
  }

  /** Draws a box: edges as fractions, a number to name it by. */
  draw(box, number) {
    const [x, y] = [box.left, box.top];
    const [width, height] = [Math.max(0, box.right - box.left), Math.max(0, box.bottom - box.top)];
    this.boxes.append(svg("rect", { x, y, width, height, class: `hue hue-${number % 6}` }));
    const place = { left: `${100 * x}%`, top: `${100 * y}%` };
    this.tags.append(el("span", { class: `hue hue-${number % 6}`, style: place }, String(number + 1)));
  }
}
