// Result: the answers of a job, whichever shape asked for them, as [name, answer] in the order of the questions.

/** Nothing for a job without a result. */
export function answersOf(job) {
  const answers = job.result?.answers;
  if (!answers) return [];
  if (!Array.isArray(answers)) return Object.entries(answers);
  return answers.map((answer, i) => [answer.name ?? `question ${i + 1}`, asNative(answer)]);
}

/** An answer of the Decisions shape as the other shapes have it. */
function asNative(answer) {
  if (answer.type === "predicate") return { ...answer, type: "noul", noul: answer.probability };
  if (!Array.isArray(answer.probabilities)) return answer;
  const probabilities = Object.fromEntries(answer.probabilities.map((one) => [String(one.value), one.probability]));
  const legend = Object.fromEntries(answer.probabilities.map((one) => [String(one.value), one.label ?? ""]));
  return { ...answer, choice: String(answer.choice), probabilities, legend, ...(answer.type === "choice" ? { legend: undefined } : {}) };
}

/** The milliseconds that a job took, as its record tells them; null while it has not ended. */
export function took(job) {
  return job.completed_at && job.created_at ? 1000 * (job.completed_at - job.created_at) : null;
}
