// The page of idx view: a list of questions with filters, and the trace of the chosen one. The state is in the address.

import { request } from "../api.js";
import { count, element, problem } from "../results.js";
import { Trace, costs, fold, marker, passage } from "./trace.js";

const TITLES = {
  holds: ["passages hold the answer", "a golden answer is in the passages of the answer"],
  lacks: ["passages lack it", "no golden answer is in the passages of the answer"],
  won: ["won", "the second run is better"],
  lost: ["lost", "the second run is worse"],
  differ: ["answers differ", ""],
};
const MARKS = { right: "✓", wrong: "✗" };
const [side, about, find, metrics, metric, filters, status, list, rows, shown] = [
  ..."side about find metrics metric filters status list rows shown".split(" "),
].map((id) => document.getElementById(id));
let data = { runs: [], questions: [], metrics: [], problems: {} };
let matching = []; // questions that pass the filters
let chosen = null; // the shown question
let on = new Set(); // filters, such as "0.wrong" for the first run, or "won" for both
let asked = new AbortController();

async function start() {
  try {
    data = await request("v1/questions", null);
  } catch (error) {
    shown.replaceChildren(problem(error.message, start));
    return;
  }
  document.body.classList.toggle("two", data.runs.length > 1);
  document.title = `${data.runs.map(({ name }) => name).join(" · ")} · idx view`;
  about.title = about.textContent = data.runs.map((run) => [...new Set([run.name, run.method, run.model, run.corpus].filter(Boolean))].join(", ")).join(" · ");
  metric.replaceChildren(...data.metrics.map((name) => new Option(name)));
  metrics.hidden = data.metrics.length === 0;
  restore();
}

/** Return what is known of a question: a set of kinds, those of a run behind its number. */
function kindsOf({ runs }) {
  const kinds = runs.flatMap((run, n) => kindsOfRun(run).map((kind) => `${n}.${kind}`));
  if (runs.length > 1) {
    const [first, second] = runs.map((run) => run?.values[metric.value] ?? 0);
    if (second !== first) kinds.push(second > first ? "won" : "lost");
    if (runs[0]?.answer !== runs[1]?.answer) kinds.push("differ");
  }
  return new Set(kinds);
}

function kindsOfRun(run) {
  if (run === null) return ["unanswered"];
  const value = run.values[metric.value];
  return value === undefined ? run.kinds : [value >= 0.5 ? "right" : "wrong", ...run.kinds];
}

/** Show the questions that pass the filters, and offer the filters with their counts. */
function filter() {
  const words = find.value.toLocaleLowerCase().split(/\s+/).filter(Boolean);
  const counts = new Map([...(data.runs.length > 1 ? ["differ"] : []), ...on].map((kind) => [kind, 0])); // "answers differ 0" says that all are equal
  const texts = ({ id, question, gold, runs }) => [id, question, ...gold, ...runs.map((run) => run?.answer ?? "")].join("\n").toLocaleLowerCase();
  matching = data.questions.filter((question) => {
    question.kinds = kindsOf(question);
    for (const kind of question.kinds) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    return [...on].every((kind) => question.kinds.has(kind)) && (words.length === 0 || words.every((word) => (question.text ??= texts(question)).includes(word)));
  });
  const groups = data.runs.map((run, n) => chips(data.runs.length > 1 ? run.name : "", ["right", "wrong", "holds", "lacks", ...Object.keys(data.problems)].map((kind) => `${n}.${kind}`), counts));
  filters.replaceChildren(...groups, chips("", ["won", "lost", "differ"], counts));
  status.textContent = matching.length === data.questions.length ? count(matching.length, "question") : `${matching.length.toLocaleString("en")} of ${count(data.questions.length, "question")}`;
  rows.style.height = `calc(${matching.length} * var(--row))`;
  draw();
}

function chips(label, kinds, counts) {
  const buttons = kinds
    .filter((kind) => counts.has(kind))
    .map((kind) => {
      const name = kind.replace(/^\d\./, "");
      const [text, title] = TITLES[name] ?? [name, data.problems[name] ?? ""];
      const number = element("span", { className: "n" }, counts.get(kind).toLocaleString("en"));
      const onclick = () => {
        if (!on.delete(kind)) on.add(kind);
        remember();
        filter();
        filters.querySelector(`[value="${kind}"]`)?.focus();
      };
      return element("button", { type: "button", className: "chip", value: kind, title, ariaPressed: String(on.has(kind)), onclick }, `${text} `, number);
    });
  return element("div", { className: "chips", role: "group" }, label && buttons.length ? element("b", {}, label) : null, ...buttons);
}

/** Show those rows of the list that are in view. */
function draw() {
  const height = Number.parseFloat(getComputedStyle(rows).getPropertyValue("--row")) * Number.parseFloat(getComputedStyle(document.documentElement).fontSize);
  const first = Math.max(0, Math.floor(list.scrollTop / height) - 5);
  const end = Math.ceil((list.scrollTop + list.clientHeight) / height) + 5;
  rows.replaceChildren(...matching.slice(first, end).map((question, n) => row(question, first + n)));
  list.setAttribute("aria-activedescendant", chosen && matching.includes(chosen) ? `q${matching.indexOf(chosen)}` : "");
}

function row(question, n) {
  const answers = question.runs.map((run) => element("p", { className: "answer", dir: "auto" }, ...marksOf(run), run?.answer || (run === null ? "unanswered" : "—")));
  const attributes = { id: `q${n}`, role: "option", className: "row", ariaSelected: String(question === chosen), onclick: () => choose(question, true) };
  const node = element("div", attributes, element("p", { className: "question", dir: "auto" }, question.question), ...answers);
  node.setAttribute("aria-setsize", matching.length);
  node.setAttribute("aria-posinset", n + 1);
  node.style.top = `calc(${n} * var(--row))`;
  return node;
}

/** Return the mark of an answer, right or wrong, and the problems of its run. */
function marksOf(run) {
  const kinds = kindsOfRun(run);
  const problems = kinds.filter((kind) => kind in data.problems && kind !== "unanswered");
  return [
    ...kinds.filter((kind) => kind in MARKS).map((kind) => element("span", { className: kind, title: kind }, `${MARKS[kind]} `)),
    ...problems.flatMap((kind) => [element("span", { className: kind === "degraded" ? "badge" : "badge wrong", title: data.problems[kind] }, kind), " "]),
  ];
}

/** Show a question: its traces are fetched. */
async function choose(question, isClicked = false) {
  chosen = question;
  asked.abort();
  document.body.classList.toggle("open", question !== null);
  remember();
  draw();
  if (question === null) {
    shown.replaceChildren();
    return;
  }
  asked = new AbortController();
  const { signal } = asked;
  try {
    const { records, texts } = await request(`v1/trace?id=${encodeURIComponent(question.id)}`, null, signal);
    if (signal.aborted) return;
    const mark = marker(question.gold);
    const columns = data.runs.map((run, n) => column(run, question.runs[n], question.runs[n] && records[n], texts[n], mark));
    shown.replaceChildren(heading(question), element("div", { className: "columns" }, ...columns));
  } catch (error) {
    if (signal.aborted) return;
    shown.replaceChildren(heading(question), problem(error.message, () => choose(question)));
  }
  shown.scrollTop = 0;
  if (isClicked) shown.focus();
}

function heading({ id, question, gold }) {
  const back = element("button", { type: "button", className: "back", onclick: () => choose(null) }, "← Questions");
  const answers = gold.length ? element("p", { className: "gold", dir: "auto" }, element("span", { className: "hint" }, "gold "), gold.join(" · ")) : null;
  return element("div", { className: "top" }, back, element("h2", { dir: "auto" }, question), element("p", { className: "hint" }, "id ", element("bdi", {}, id)), answers);
}

/** Return what a run did with a question. */
function column(run, entry, record, texts, mark) {
  const title = data.runs.length > 1 ? element("h3", {}, run.name) : null;
  if (!record) return element("section", {}, title, element("p", { className: "hint" }, "unanswered"));
  const answer = element("p", { className: "final", dir: "auto" }, ...marksOf(entry), ...(record.answer ? mark(record.answer) : [element("i", {}, "no answer")]));
  const values = Object.entries(entry.values).map(([name, value]) => `${name} ${Number(value.toFixed(3))}`);
  const facts = element("p", { className: "hint" }, [costs(record), ...(record.models ?? []), ...values].join(" · "));
  const failure = record.error ? element("p", { className: "problem" }, record.error) : null;
  const degraded = (record.degraded ?? []).map((rule) => element("p", { className: "hint" }, `degraded: ${rule}`));
  const trace = new Trace(mark);
  for (const step of record.steps ?? []) trace.add(step, texts);
  const passages = (record.passages ?? []).map((hit, n) => passage(hit, mark, n + 1));
  const detail = Object.keys(record.detail ?? {}).length ? fold("Detail", () => [element("pre", { dir: "auto" }, JSON.stringify(record.detail, null, 1))]) : null;
  return element(
    "section",
    {},
    title,
    answer,
    failure,
    facts,
    ...degraded,
    passages.length ? element("h4", {}, count(passages.length, "passage")) : null,
    ...passages,
    detail,
    element("h4", {}, record.steps ? count(record.steps.length, "step") : "The steps were not recorded (--no-steps)."),
    trace.node,
  );
}

/** Move to the next (1) or previous (-1) question of the list. */
function move(by) {
  const at = matching.indexOf(chosen);
  const next = matching[at < 0 ? 0 : Math.min(matching.length - 1, Math.max(0, at + by))];
  if (!next || next === chosen) return;
  choose(next);
  reveal();
}

/** Scroll the list so that the chosen question is in view. */
function reveal() {
  const n = matching.indexOf(chosen);
  if (n < 0) return;
  const height = rows.getBoundingClientRect().height / matching.length;
  if (n * height < list.scrollTop) list.scrollTop = n * height;
  else if ((n + 1) * height > list.scrollTop + list.clientHeight) list.scrollTop = (n + 1) * height - list.clientHeight;
  draw();
}

/** Keep filters and question in the address. */
function remember() {
  const pairs = { q: find.value, by: metric.selectedIndex > 0 ? metric.value : "", f: [...on].join(" "), id: chosen?.id ?? "" };
  history.replaceState(null, "", `#${new URLSearchParams(Object.entries(pairs).filter(([, value]) => value))}`);
}

function restore() {
  const pairs = new URLSearchParams(location.hash.slice(1));
  find.value = pairs.get("q") ?? "";
  if (data.metrics.includes(pairs.get("by"))) metric.value = pairs.get("by");
  on = new Set((pairs.get("f") ?? "").split(" ").filter((kind) => /^(\d\.[a-z]+|won|lost|differ)$/.test(kind)));
  filter();
  const first = window.matchMedia("(max-width: 52rem)").matches ? null : matching[0];
  choose(data.questions.find(({ id }) => id === pairs.get("id")) ?? first ?? null);
  reveal();
}

find.addEventListener("input", () => (remember(), filter()));
metric.addEventListener("change", () => (remember(), filter(), chosen && choose(chosen)));
list.addEventListener("scroll", draw, { passive: true });
new ResizeObserver(draw).observe(list);
window.addEventListener("hashchange", restore);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (event.key === "Escape") {
    if (isTyping) event.target.blur();
    else choose(null);
  } else if (isTyping && event.key !== "ArrowDown") return;
  else if (event.key === "/") find.focus();
  else if (event.key === "j" || event.key === "ArrowDown") move(1);
  else if (event.key === "k" || event.key === "ArrowUp") move(-1);
  else return;
  event.preventDefault();
});

start();
