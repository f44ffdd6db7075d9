// Glance: the service in a row of figures, each with its last minutes; asked for while the page is seen.

import { ApiError } from "./api.js";
import { el, fill, svg } from "./dom.js";
import { duration, plain } from "./format.js";

const EVERY_MS = 3000;
const LIMITED_MS = 20000; // for a key whose calls are counted
const KEPT = 60; // samples of a line

export class Glance {
  /** `node` is filled; `state` is the word in the header; `told` gets every status. */
  constructor(api, node, state, told) {
    this.api = api;
    this.state = state;
    this.told = told;
    this.timer = null;
    this.tiles = [
      new Tile("Queue", "unfinished jobs of everybody"),
      new Tile("Rows per step", "how full a forward of the model is"),
      new Tile("Pages in use", "of the engines' K/V memory"),
      new Tile("Pictures / s", "of requests that were answered, last half minute"),
      new Tile("Latency", "from asked to answered, median of the last minutes"),
      new Tile("Engines", "ready, and prep workers beside them"),
    ];
    fill(node, el("dl", {}, this.tiles.map((tile) => tile.node)));
    document.addEventListener("visibilitychange", () => document.hidden || this.look());
    this.look();
  }

  /** Now, and then again and again. */
  async look() {
    clearTimeout(this.timer);
    let waitMs = this.api.limited ? LIMITED_MS : EVERY_MS;
    try {
      this.show(await this.api.json("GET", "/v1/status"));
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      this.away(error);
      waitMs = Math.max(waitMs, 1000 * (error.retryAfterS ?? 0));
      if (error.status === 401) return; // another key looks again
    }
    clearTimeout(this.timer);
    if (!document.hidden) this.timer = setTimeout(() => this.look(), waitMs);
  }

  show(status) {
    const { queue, rates, latency, engines } = status;
    const total = sum(engines, "pages_total");
    const used = total - sum(engines, "pages_free");
    const ready = engines.filter((engine) => engine.ready).length;
    const [depth, rows, pages, images, took, alive] = this.tiles;
    depth.show(queue.depth, queue.depth === null ? null : plain(queue.depth), [queue.yours ? `${queue.yours} yours` : "", queue.eta_s > 1 ? `${duration(1000 * queue.eta_s)} to go` : ""]);
    rows.show(rates.rows_per_step, rates.rows_per_step === null ? null : plain(rates.rows_per_step, rates.rows_per_step < 10 ? 1 : 0));
    pages.show(total ? used / total : null, total ? `${Math.round((100 * used) / total)} %` : null, [total ? `${plain(used)} of ${plain(total)}` : ""]);
    images.show(rates.images_per_s, rates.images_per_s === null ? null : plain(rates.images_per_s, 2));
    took.show(latency.p50_ms, latency.count ? duration(latency.p50_ms) : null, [latency.count ? `p90 ${duration(latency.p90_ms)}` : ""]);
    alive.show(null, String(ready), [`${status.prep_workers} prep`, [...new Set(engines.map((engine) => engine.device))].join(", ")]);
    const word = status.ready ? "Ready" : status.draining ? "Leaving" : "Not ready";
    this.say(word, status.ready ? "good" : "bad", why(status));
    this.told(status);
  }

  away(error) {
    const word = error.status === 401 ? "Needs a key" : error.status === 0 ? "No connection" : "Not ready";
    this.say(word, "bad", error.message);
    for (const tile of this.tiles) tile.show(null, null);
  }

  say(word, kind, title) {
    if (this.state.textContent !== word) this.state.textContent = word; // said anew only when it is new
    this.state.className = `state ${kind}`;
    this.state.title = title;
  }
}

/** A figure, its name, and a line of how it was of late. */
class Tile {
  constructor(name, meaning) {
    this.values = [];
    this.value = el("span", { class: "figure" }, "–");
    this.beside = el("small");
    this.line = svg("polyline", { points: "", fill: "none" });
    const drawing = svg("svg", { viewBox: `0 0 ${KEPT - 1} 20`, preserveAspectRatio: "none", "aria-hidden": "true", class: "spark" }, this.line);
    this.node = el("div", { class: "tile", title: meaning }, el("dt", {}, name), el("dd", {}, this.value, this.beside, drawing));
  }

  /** `value` is for the line, null where there is none; `text` null: nothing is known. */
  show(value, text, beside = []) {
    this.value.textContent = text ?? "–";
    this.beside.textContent = beside.filter(Boolean).join(" · ");
    this.values = [...this.values, value].slice(-KEPT);
    const top = Math.max(...this.values.map((one) => one ?? 0)) || 1;
    const first = KEPT - this.values.length;
    const points = this.values.map((one, i) => (one === null ? "" : `${first + i},${(19 - (18 * one) / top).toFixed(1)}`));
    this.line.setAttribute("points", points.join(" "));
  }
}

function sum(engines, name) {
  return engines.reduce((total, engine) => total + engine[name], 0);
}

function why(status) {
  if (status.ready) return "A question would be answered now";
  if (!status.redis) return "The store does not answer";
  if (status.store?.faults?.length) return status.store.faults.join(", ");
  if (!status.prep_workers) return "No prep worker is there";
  return status.engines.length ? "No engine is ready yet" : "No engine is there";
}
