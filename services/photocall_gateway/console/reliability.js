// Reliability: how often answers are right, by how sure they were; on the diagonal, sureness is frequency.

import { el, svg } from "./dom.js";
import { plain } from "./format.js";

const SIDE = 220;
const EDGE = 40;
const SIZE = SIDE + 2 * EDGE;

/** `report.bins` has `before` and `after`, lists of [confidence, accuracy, count]. */
export function diagram(name, report) {
  const ticks = [0, 0.5, 1].flatMap((at) => [
    svg("text", { x: x(at), y: SIZE - EDGE + 16, class: "tick middle" }, String(at)),
    svg("text", { x: EDGE - 5, y: y(at) + 4, class: "tick end" }, String(at)),
    svg("path", { d: `M${x(at)} ${y(0)}V${y(1)}M${x(0)} ${y(at)}H${x(1)}`, class: "grid" }),
  ]);
  const label = `Reliability of ${name}: expected calibration error ${plain(report.before.ece)} before, ${plain(report.after.ece)} after`;
  const drawing = svg(
    "svg",
    { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": label, class: "reliability" },
    ticks,
    svg("path", { d: `M${x(0)} ${y(0)}L${x(1)} ${y(1)}`, class: "ideal" }),
    line(report.bins.before, "before"),
    line(report.bins.after, "after"),
    svg("text", { x: SIZE / 2, y: SIZE - 4, class: "tick middle" }, "how sure"),
    svg("text", { x: 11, y: SIZE / 2, class: "tick middle", transform: `rotate(-90 11 ${SIZE / 2})` }, "how often right"),
  );
  const legend = el("figcaption", {}, el("span", { class: "before" }, "before"), el("span", { class: "after" }, "after"));
  return el("figure", {}, drawing, legend);
}

function line(points, kind) {
  const most = Math.max(...points.map(([, , count]) => count), 1);
  const dots = points.map(([sure, right, count]) => svg("circle", { cx: x(sure), cy: y(right), r: 2 + 2.5 * Math.sqrt(count / most) }));
  return svg("g", { class: kind }, svg("polyline", { points: points.map(([sure, right]) => `${x(sure)},${y(right)}`).join(" "), fill: "none" }), dots);
}

function x(share) {
  return EDGE + SIDE * share;
}

function y(share) {
  return EDGE + SIDE * (1 - share);
}
