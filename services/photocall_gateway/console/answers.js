// Answers: a card of a job: the pictures as the model saw them, and an answer to every question.

import { answerView, headline, sureness } from "./answer.js";
import { el, fill, say } from "./dom.js";
import { duration, percent } from "./format.js";
import { answersOf, took } from "./result.js";
import { Seen } from "./seen.js";

const STAGES = { preparing: "preparing the picture", running: "reading" };
const ENDS = { cancelled: "Cancelled.", expired: "Its time was over before it was answered." };

export class AnswerCard {
  /** `title` names it; `questions` are those that were asked, {} where they are not known. `labels` takes what is right. */
  constructor(api, title, questions, labels) {
    this.api = api;
    this.title = title;
    this.questions = questions;
    this.labels = labels;
    this.figures = [];
    this.heading = el("h3", { tabindex: "-1" }, title);
    this.state = el("span", { class: "stage" });
    this.cancel = el("button", { type: "button", class: "quiet" }, "Cancel");
    this.shown = el("div", { class: "figures" });
    this.list = el("div", { class: "answer-list" }, Object.keys(questions).map((name) => this.pending(name)));
    this.node = el(
      "article",
      { class: "card", "aria-busy": "true" },
      el("header", {}, this.heading, this.state, this.cancel),
      el("div", { class: "card-body" }, this.shown, this.list),
    );
  }

  /** Runs an Asking to its end, and shows it. Gives the job; null when there was none to show. */
  async follow(asking) {
    this.cancel.addEventListener("click", () => asking.cancel().catch((error) => this.fail(error)));
    try {
      const job = await asking.run();
      this.end(job);
      return job;
    } catch (error) {
      this.fail(error);
      throw error;
    }
  }

  /** What an Asking tells on its way. */
  told(what, ...said) {
    if (what === "sending") this.state.textContent = "sending";
    else if (what === "waiting") this.state.textContent = `busy: again in ${Math.ceil(said[0])} s`;
    else if (what === "job") this.state.textContent = place(said[0]);
    else if (what === "stage") this.state.textContent = STAGES[said[0]] ?? said[0];
    else if (what === "prepared") this.see(said[0]);
    else if (what === "text") this.grow(...said);
  }

  pending(name) {
    const text = this.questions[name].instructions;
    return el("article", { class: "answer pending", data: { question: name } }, el("header", {}, el("h4", {}, name)), el("p", { class: "asked" }, text), el("p", { class: "growing" }));
  }

  /** A text as it is made. */
  grow(question, text) {
    const place = [...this.list.children].find((node) => node.dataset.question === question);
    const shown = place?.querySelector(".growing");
    if (shown) shown.textContent = text;
  }

  /** Shows pictures as the model saw them; `images` are those of a `prepared` event. */
  see(images) {
    if (this.figures.length) return;
    this.figures = images.map((image) => {
      const path = `/v1/images/${encodeURIComponent(image.sha256)}/seen.png${image.view ? `?${image.view}` : ""}`;
      return new Seen(this.api, path, this.title);
    });
    fill(this.shown, this.figures.map((figure) => figure.node));
    for (const figure of this.figures) figure.load();
  }

  /** The job has ended. */
  end(job) {
    this.done();
    if (job.status !== "succeeded") {
      this.fail({ message: job.error?.message ?? ENDS[job.status] ?? job.status, code: job.error?.code ?? job.status });
      return;
    }
    const ms = took(job);
    this.state.textContent = ms === null ? "answered" : duration(ms);
    this.state.title = Object.entries(job.timings ?? {}).map(([stage, s]) => `${stage} ${duration(1000 * s)}`).join(", ");
    let boxes = 0;
    const found = answersOf(job);
    const views = found.map(([name, answer]) => {
      const number = answer.type === "box" && answer.answer_status !== "abstained" ? boxes++ : null;
      if (number !== null) this.figures.forEach((figure) => figure.draw(answer.box, number));
      const asked = this.questions[name] ?? null;
      return answerView(name, answer, { asked, number, extra: this.labels?.control(job.id, name, answer) });
    });
    fill(this.list, views);
    const spoken = found.map(([name, answer]) => {
      const sure = sureness(answer);
      return `${name}: ${headline(answer, this.questions[name]?.unit)}${sure === null ? "" : `, ${percent(sure)}`}`;
    });
    say(`${this.title}. ${spoken.join(". ")}`);
  }

  /** There is no answer, and this is why. */
  fail(error) {
    this.done();
    this.node.classList.add("failed");
    this.state.textContent = error.code === "cancelled" ? "cancelled" : "failed";
    fill(this.list, el("p", { class: "error", role: "alert" }, error.message), error.code ? el("small", {}, el("code", {}, error.code)) : null);
  }

  done() {
    this.node.removeAttribute("aria-busy");
    this.cancel.hidden = true;
  }
}

function place(job) {
  if (!job.queue) return job.status;
  const eta = job.queue.eta_s === null || job.queue.eta_s < 1 ? "" : `, about ${duration(1000 * job.queue.eta_s)}`;
  return job.queue.position ? `${job.queue.position} before it${eta}` : job.status;
}
