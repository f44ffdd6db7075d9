// Answer: one answer as people read it: what it is, how sure, and everything beside it that should be known.

import { bars } from "./bars.js";
import { el } from "./dom.js";
import { percent, plain } from "./format.js";

/** The answer in a few words, for a headline or for a reader's ear. `unit` is the question's, where it has one. */
export function headline(answer, unit = "") {
  switch (answer.type) {
    case "noul":
      return answer.noul >= 0.5 ? "yes" : "no";
    case "choice":
      return answer.choice;
    case "score":
      return `${plain(answer.score, 2)} of ${Object.keys(answer.probabilities).length - 1}`;
    case "number":
      return unit ? `${plain(answer.number, 6)} ${unit}` : plain(answer.number, 6);
    case "text":
      return answer.text === "" ? "(nothing)" : `“${answer.text}”${answer.truncated ? "…" : ""}`;
    case "box":
      return ["left", "top", "right", "bottom"].map((edge) => `${edge} ${(100 * answer.box[edge]).toFixed(0)} %`).join(", ");
    case "refusal":
      return "refused";
    case "not_asked":
      return "not asked";
    default:
      return answer.type;
  }
}

/** How sure the model is of the headline; null where it does not say. */
export function sureness(answer) {
  if (answer.type === "noul") return Math.max(answer.noul, 1 - answer.noul);
  if (answer.type === "choice") return answer.probabilities[answer.choice];
  if (answer.type === "number") return answer.probabilities[String(answer.number)] ?? answer.confidence;
  if (answer.type === "text") return answer.probability ?? Math.exp(answer.logprob);
  return answer.confidence ?? null;
}

/** `number` is that of its box on the picture. `asked` is the question, null where it is not known any more. */
export function answerView(name, answer, { asked = null, number = null, extra = null } = {}) {
  const sure = sureness(answer);
  return el(
    "article",
    { class: "answer", data: { question: name, type: answer.type } },
    el(
      "header",
      {},
      number === null ? null : el("span", { class: `swatch hue hue-${number % 6}`, "aria-hidden": "true" }, String(number + 1)),
      el("h4", {}, name),
      el("strong", { class: "headline" }, headline(answer, asked?.unit)),
      sure === null ? null : el("span", { class: "sure" }, percent(sure)),
    ),
    typeof asked?.instructions === "string" ? el("p", { class: "asked" }, asked.instructions) : null,
    distribution(answer),
    el("ul", { class: "notes" }, notes(answer).map(([kind, text]) => el("li", { class: kind }, text))),
    extra,
  );
}

function distribution(answer) {
  switch (answer.type) {
    case "noul":
      return bars([["yes", answer.noul], ["no", 1 - answer.noul]]);
    case "choice":
      return bars(Object.entries(answer.probabilities));
    case "score":
      return bars(Object.entries(answer.probabilities).map(([level, p]) => [`${level} · ${words(answer.legend[level])}`, p]));
    case "number":
      return bars(Object.entries(answer.probabilities).sort((a, b) => a[0] - b[0]).map(([value, p]) => [plain(value, 6), p]));
    case "text":
      return answer.probabilities ? bars(Object.entries(answer.probabilities)) : null;
    case "box":
      return null; // it is drawn
    default:
      return el("p", { class: "why" }, answer.message ?? "");
  }
}

function words(level) {
  return typeof level === "string" ? level : JSON.stringify(level ?? "");
}

/** What should be known beside it: [kind, text], with `bad` for what takes its worth away. */
function notes(answer) {
  const found = [];
  const add = (kind, text) => found.push([kind, text]);
  if (answer.answer_status === "untrained") add("bad", "This model was not trained for such questions: the answer has its form, and no worth.");
  if (answer.answer_status === "abstained") add("bad", "Abstained: the model would rather not say.");
  if (answer.type === "refusal") add("bad", answer.code);
  if (answer.truncated) add("bad", "Cut at its longest.");
  if (answer.type === "number") {
    add("", `expected ${plain(answer.expected)}`);
    add("", `90 % within ${plain(answer.interval[0], 6)} to ${plain(answer.interval[1], 6)}`);
    if (answer.no_number > 0.5) add("bad", `${percent(answer.no_number)} of what it would say is no such number`);
  }
  if (answer.presence !== undefined) add(answer.presence < 0.5 ? "bad" : "", `${percent(answer.presence)} that it is there at all`);
  if (answer.cannot_tell !== undefined) add("", `cannot tell ${percent(answer.cannot_tell)}`);
  if (answer.label_mass !== undefined) add("", `label mass ${percent(answer.label_mass)}`);
  if (typeof answer.order_spread === "number") add("", `order moves it by ${percent(answer.order_spread)}`);
  if (answer.calibration) add("", `calibrated by ${answer.calibration}`);
  return found;
}
