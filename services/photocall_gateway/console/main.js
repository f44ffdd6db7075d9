// The console's composition root: every part is made here, once, and told of those that it needs.

import { AnswerCard } from "./answers.js";
import { Api, ApiError } from "./api.js";
import { Asking } from "./asking.js";
import { Batches } from "./batches.js";
import { Calibrations } from "./calibrations.js";
import { fill } from "./dom.js";
import { Glance } from "./glance.js";
import { Jobs } from "./jobs.js";
import { Key, KeyDialog } from "./key.js";
import { Labels } from "./labels.js";
import { Request } from "./request.js";
import { Turns } from "./turns.js";
import { Views } from "./views.js";

const AT_ONCE = 4; // jobs of this page that are under way together

const at = (id) => document.getElementById(id);
const key = new Key();
const api = new Api(key, (error) => dialog.open(error.code === "missing_key" ? "" : error.message));
const labels = new Labels(() => calibrations.count());
const turns = new Turns(AT_ONCE);

const request = new Request(at("request"), (questions, pictures, make) => {
  const title = pictures.map((picture) => picture.name).join(", ") || "Text";
  const card = new AnswerCard(api, title, questions, labels);
  at("answers").prepend(card.node);
  at("clear").hidden = false;
  card.node.scrollIntoView({ block: "nearest" });
  const asking = new Asking(api, pictures, make, (...said) => card.told(...said));
  turns.take(() => card.follow(asking)).catch((error) => {
    if (!(error instanceof ApiError)) throw error;
    if (request.complain(error)) card.node.remove(); // nothing was asked; the form says what is wrong
  });
});
at("clear").addEventListener("click", () => {
  fill(at("answers"));
  at("clear").hidden = true;
});

const jobs = new Jobs(api, at("jobs"), labels);
const batches = new Batches(api, at("batches"), () => request.batchBody());
const calibrations = new Calibrations(api, at("calibration"), labels, (found) => request.offer(found));
const glance = new Glance(api, at("glance"), at("state"), (status) => (at("model").textContent = status.model));
const views = new Views({
  ask: () => {},
  jobs: (seen) => seen && jobs.load(),
  batches: (seen) => batches.watch(seen),
  calibration: (seen) => seen && calibrations.load(),
});
const dialog = new KeyDialog(key, at("key"), () => {
  glance.look();
  views.again();
});
