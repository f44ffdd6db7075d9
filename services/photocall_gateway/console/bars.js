// Bars: a distribution, the likeliest at a glance, every value to be read and heard.

import { el } from "./dom.js";
import { percent } from "./format.js";

const ALL = 5; // so many rows are always shown
const MOST = 8; // of more, so many at most,
const LEAST = 3; // so many at least,
const WORTH = 0.005; // and between these whatever is as likely

/** `rows` are [label, probability]; the likeliest is marked. The unlikely ones of many are folded away. */
export function bars(rows) {
  const ranked = rows.map(([, p]) => p).sort((a, b) => b - a);
  const list = (some) => el("ul", { class: "bars" }, some.map(([label, p]) => bar(label, p, p === ranked[0])));
  if (rows.length <= ALL) return list(rows);
  const shown = Math.min(MOST, Math.max(LEAST, ranked.filter((p) => p >= WORTH).length));
  const kept = new Set([...rows].sort((a, b) => b[1] - a[1]).slice(0, shown));
  const others = rows.filter((row) => !kept.has(row));
  if (!others.length) return list(rows);
  const rest = others.reduce((total, [, p]) => total + p, 0);
  const more = el("summary", {}, `${others.length} more, ${percent(rest)} together`);
  return el("div", {}, list(rows.filter((row) => kept.has(row))), el("details", {}, more, list(others)));
}

function bar(label, p, best) {
  return el(
    "li",
    { class: best ? "best" : null },
    el("span", { class: "label", title: label }, label),
    el("span", { class: "track", "aria-hidden": "true" }, el("span", { class: "fill", style: { width: `${100 * p}%` } })),
    el("span", { class: "value" }, percent(p)),
  );
}
