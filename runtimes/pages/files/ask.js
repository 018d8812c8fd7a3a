// The Ask tab: a question to a method, the trace as it grows, and the answer with its passages.

import { events, indexes, retryUntilReady } from "../api.js";
import { count, element, heading, problem } from "../results.js";
import { Trace, costs, marker } from "./trace.js";

const [form, summary, models, stop, status, outcome, steps] = ["form", "summary", "models", "stop", "status", "outcome", "steps"].map((id) =>
  document.getElementById(id),
);
const fields = form.elements;
let served;
let asking = new AbortController();

async function start() {
  status.textContent = "Asking the server what it has …";
  try {
    served = await indexes(null, (text) => (status.textContent = text));
  } catch (error) {
    status.textContent = "";
    const needsKey = element("p", { className: "problem" }, "This server requires its API key: give it on the ", element("a", { href: "./" }, "search page"), " in this tab.");
    outcome.replaceChildren(error.status === 401 ? needsKey : problem(error.message, start));
    return;
  }
  status.textContent = "";
  outcome.replaceChildren();
  models.textContent = served.ask.models.join(", ");
  fields.method.replaceChildren(...served.ask.methods.map(({ method }) => new Option(method)));
  fields.corpus.replaceChildren(...served.corpora.map(({ corpus }) => new Option(corpus)));
  fields.method.value = "rag";
  refresh();
  form.hidden = false;
  fields.question.focus();
}

/** Update what depends on the method and the corpus. */
function refresh() {
  summary.textContent = served.ask.methods.find(({ method }) => method === fields.method.value).summary;
  const chosen = fields.retriever.value;
  const { retrievers } = served.corpora.find(({ corpus }) => corpus === fields.corpus.value);
  fields.retriever.replaceChildren(...retrievers.map(({ retriever }) => new Option(retriever, retriever, false, retriever === chosen)));
}

/** Ask, and show the steps as they come. */
async function ask(body) {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  const started = performance.now();
  const trace = new Trace(marker([]));
  const received = []; // shown again when the answer is known and marked
  outcome.replaceChildren();
  steps.replaceChildren(trace.node);
  stop.hidden = false;
  const tick = () => (status.textContent = `${received.length ? count(received.length, "step") : "Waiting for the first step"}, ${Math.round((performance.now() - started) / 1000)} s …`);
  const timer = setInterval(tick, 1000);
  tick();
  try {
    let last = {};
    for await (const event of await retryUntilReady(() => first(events("v1/ask", body, signal)), signal, (text) => (status.textContent = text))) {
      last = event;
      if (!event.step) continue;
      received.push(event);
      trace.add(event.step, event.texts);
      tick();
    }
    if (signal.aborted) return;
    status.textContent = count(received.length, "step");
    if (last.prediction) showAnswer(last.prediction, received, body.corpus);
    else outcome.replaceChildren(problem(last.error ?? "The server ended before the answer.", () => ask(body)));
  } catch (error) {
    if (signal !== asking.signal) return; // another question is shown
    status.textContent = signal.aborted ? `stopped after ${count(received.length, "step")}` : "no answer";
    if (!signal.aborted) outcome.replaceChildren(problem(error.message, () => ask(body)));
  } finally {
    clearInterval(timer);
    if (signal === asking.signal) stop.hidden = true;
  }
}

/** Wait for the first of several values, so that its error is the caller's; return all of them. */
async function first(values) {
  const { value, done } = await values.next();
  return (async function* () {
    if (done) return;
    yield value;
    yield* values;
  })();
}

function showAnswer(prediction, received, corpus) {
  const { answer, passages, degraded } = prediction;
  const mark = marker([answer].filter((text) => text.length <= 100)); // a long answer is in no passage
  const articles = served.corpora.find((entry) => entry.corpus === corpus)?.article_url;
  const links = passages.map((_, n) => element("a", { href: `#passage-${n + 1}` }, `[${n + 1}]`)).flatMap((link) => [" ", link]);
  const cards = passages.map(({ id, title, text }, n) =>
    element(
      "li",
      { className: "passage", id: `passage-${n + 1}` },
      element("span", { className: "rank", ariaHidden: "true" }, String(n + 1)),
      element("h3", { dir: "auto" }, heading(id, title, [], articles)),
      element("p", { className: "facts" }, "id ", element("bdi", {}, id)),
      element("p", { className: "text", dir: "auto" }, ...mark(text)),
    ),
  );
  const trace = new Trace(mark);
  for (const { step, texts } of received) trace.add(step, texts);
  const cited = answer.split(/(\[\d+\])/).map((part) => {
    const n = Number(part.match(/^\[(\d+)\]$/)?.[1]);
    return n >= 1 && n <= passages.length ? element("a", { href: `#passage-${n}` }, part) : part;
  });
  outcome.replaceChildren(
    element("p", { className: "final", id: "answer", dir: "auto" }, ...(answer ? cited : [element("i", {}, "The answer is empty.")]), element("span", { className: "hint" }, ...links)),
    element("p", { className: "hint" }, [costs(prediction), ...(prediction.models ?? [])].join(" · ")),
    ...degraded.map((rule) => element("p", { className: "hint" }, `degraded: ${rule}`)),
    element("ol", { className: "passages" }, ...cards),
  );
  steps.replaceChildren(element("details", { open: passages.length === 0 }, element("summary", {}, `Trace, ${count(received.length, "step")}`), trace.node));
}

fields.method.addEventListener("change", refresh);
fields.corpus.addEventListener("change", refresh);
stop.addEventListener("click", () => asking.abort());
fields.question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
form.addEventListener("submit", (event) => {
  event.preventDefault();
  const [question, method, corpus, retriever] = ["question", "method", "corpus", "retriever"].map((name) => fields[name].value);
  if (question.trim()) ask({ question: question.trim(), method, corpus, retriever, seed: Number(fields.seed.value) });
});

start();
