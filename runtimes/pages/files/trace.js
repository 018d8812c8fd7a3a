// Elements for a question's record: its steps as a tree, passages with the answers marked, costs. All texts go into text nodes only.

import { count, element } from "../results.js";

const WORD = "[\\p{L}\\p{N}\\p{M}]";
const TOKEN = /[\p{L}\p{N}\p{M}]+|[^\p{L}\p{N}\p{M}\p{Z}\p{C}]/gu;

/** Return a function: text -> nodes, with all answers in a <mark>. Texts match by their tokens, as in the evaluation ("has answer"). */
export function marker(answers) {
  const patterns = answers.map(pattern).filter(Boolean).sort((a, b) => b.length - a.length);
  if (patterns.length === 0) return (text) => [text];
  const found = new RegExp(`(?<!${WORD})(?:${patterns.join("|")})(?!${WORD})`, "giu");
  return (text) => {
    const whole = text.normalize("NFC");
    const nodes = [];
    let shown = 0;
    for (const match of whole.matchAll(found)) {
      nodes.push(whole.slice(shown, match.index), element("mark", {}, match[0]));
      shown = match.index + match[0].length;
    }
    return [...nodes, whole.slice(shown)];
  };
}

function pattern(answer) {
  const tokens = answer.normalize("NFC").match(TOKEN) ?? [];
  const isWord = (token) => new RegExp(WORD, "u").test(token);
  return tokens
    .map((token, n) => (n === 0 ? "" : `[\\p{Z}\\p{C}]${isWord(token) && isWord(tokens[n - 1]) ? "+" : "*"}`) + token.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"))
    .join("");
}

/** Return a <details> whose content is made when it is first opened. */
export function fold(label, make, attributes = {}) {
  const node = element("details", attributes, element("summary", {}, ...[label].flat()));
  node.addEventListener("toggle", () => node.append(...make()), { once: true });
  return node;
}

/** Return a passage as a fold, or as a line if its text is unknown. */
export function passage({ id, title, text, score }, mark, number = null) {
  const words = [...(number === null ? [] : [element("b", {}, `${number} `)]), ...mark(title || "no title"), " "];
  const facts = element("span", { className: "hint" }, element("bdi", {}, id), typeof score === "number" ? ` ${score.toFixed(4)}` : "");
  if (text === undefined) return element("p", { className: "line", dir: "auto" }, ...words, facts);
  const nodes = mark(text);
  if (nodes.length > 1) words.push(element("span", { className: "badge right" }, "answer"), " ");
  return fold([...words, facts], () => [element("p", { className: "text", dir: "auto" }, ...nodes)], { className: "line" });
}

/** Return the costs of a question as a line of text. */
export function costs({ cost = {}, timing = {} }) {
  const n = (name) => cost[name] ?? 0;
  const time = timing.service ?? timing.seconds;
  return [
    count(n("calls"), "call"),
    `${n("prompt_tokens").toLocaleString("en")}+${n("completion_tokens").toLocaleString("en")} tokens`,
    `${n("searches")} search${n("searches") === 1 ? "" : "es"}`,
    ...(time === undefined ? [] : [`${time.toFixed(1)} s`]),
  ].join(" · ");
}

/** The steps of a question as a tree; the labels of a step's path are its branches. */
export class Trace {
  constructor(mark) {
    this.mark = mark;
    this.node = element("ul", { className: "trace" });
    this.branches = new Map([["[]", this.node]]);
  }

  /** Add a step; texts are those of its passages by id, as far as they are known. */
  add(step, texts) {
    this.branch(step.path ?? []).append(element("li", { className: "step" }, ...this.lines(step, texts)));
  }

  branch(path) {
    const key = JSON.stringify(path);
    if (!this.branches.has(key)) {
      const list = element("ul", {});
      const details = element("details", { open: true }, element("summary", { className: "label" }, path.at(-1)), list);
      this.branch(path.slice(0, -1)).append(element("li", {}, details));
      this.branches.set(key, list);
    }
    return this.branches.get(key);
  }

  lines(step, texts) {
    const nodes = [head(step)];
    if (step.prompt !== undefined) nodes.push(prompt(step.prompt));
    if (step.continuation !== undefined) nodes.push(element("p", { className: "reply", dir: "auto" }, `… ${step.continuation}`));
    for (const query of step.queries ?? []) nodes.push(element("p", { className: "query", dir: "auto" }, query));
    if (step.error) nodes.push(element("p", { className: "wrong" }, `failed: ${step.error}`));
    else if (step.request) nodes.push(...this.results(step, texts));
    return nodes;
  }

  results({ request, result, words }, texts) {
    if (request === "generate") return (result ?? []).flatMap((reply) => this.reply(reply));
    if (request === "yes_no") return [verdict(result, words)];
    if (request === "nll") return [element("p", { className: "verdict" }, result.mean === null ? "unknown" : `mean NLL ${result.mean.toFixed(4)}`)];
    if (request === "truncate") return [element("p", { className: "reply", dir: "auto" }, ...this.mark(String(result)))];
    if (!result?.length) return [element("p", { className: "hint" }, "no passage")];
    return result.map((hit, n) => passage({ ...hit, text: texts[hit.id] }, this.mark, n + 1));
  }

  reply({ text, finish, reasoning, mean_nll: nll, degraded = [] }) {
    const badges = [
      ...(finish === "length" ? [element("span", { className: "badge wrong", title: "the token limit was reached" }, "cut")] : []),
      ...degraded.map((rule) => element("span", { className: "badge" }, rule)),
      ...(typeof nll === "number" ? [element("span", { className: "hint" }, `mean NLL ${nll.toFixed(4)}`)] : []),
    ];
    const shown = text === "" ? element("p", { className: "reply hint" }, "(nothing)") : element("p", { className: "reply", dir: "auto" }, ...this.mark(text));
    if (badges.length) shown.append(" ", ...badges);
    if (!reasoning) return [shown];
    return [fold(`Thoughts, ${count(reasoning.length, "character")}`, () => [element("pre", { dir: "auto" }, ...this.mark(reasoning))]), shown];
  }
}

function head(step) {
  if (step.request === undefined) {
    const data = Object.entries(step.data ?? {}).map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`);
    return element("p", { className: "head note", dir: "auto" }, [step.note, ...data].join(" · "));
  }
  const { temperature, max_tokens: limit } = step.decoding ?? {};
  const facts = [
    ...(step.n > 1 ? [count(step.n, "text")] : []),
    ...(temperature ? [`temperature ${temperature}`] : []),
    ...(limit ? [`at most ${limit} tokens`] : []),
    ...(step.k ? [count(step.k, "passage")] : []),
    ...(step.merge ? [`merge ${step.merge}`] : []),
    ...(step.max_tokens ? [`the ${step.keep === "start" ? "first" : "last"} ${step.max_tokens} tokens`] : []),
    ...(step.tokens ? [`${step.tokens[0].toLocaleString("en")}+${step.tokens[1].toLocaleString("en")} tokens`] : []),
    ...(step.seconds ? [`${step.seconds.toFixed(2)} s`] : []),
  ];
  const name = { yes_no: "yes or no", nll: "likelihood", look_up: `look up ${step.title}` }[step.request] ?? step.request;
  const role = step.role && step.role !== "answer" ? ` as ${step.role}` : "";
  return element("p", { className: "head" }, element("b", {}, name + role), element("span", { className: "hint" }, ` ${facts.join(" · ")}`));
}

function verdict({ p_positive: yes, p_negative: no, score }, words) {
  const [positive, negative] = (words ?? [["yes"], ["no"]]).map((forms) => forms[0]);
  const isYes = yes > no;
  const badge = element("span", { className: isYes ? "badge right" : "badge wrong" }, isYes ? positive : negative);
  const odds = `${positive} ${yes.toFixed(3)} · ${negative} ${no.toFixed(3)}`;
  return element("p", { className: "verdict" }, badge, ` ${odds}${typeof score === "number" ? ` · score ${score.toFixed(3)}` : ""}`);
}

function prompt(given) {
  if (typeof given === "string") return fold(`Prompt, ${count(given.length, "character")}`, () => [element("pre", { dir: "auto" }, given)]);
  if (typeof given[0] === "number") return fold(`Prompt, ${count(given.length, "token")}`, () => [element("pre", {}, given.join(" "))]);
  const size = given.reduce((n, turn) => n + turn.content.length, 0);
  const turns = () => given.flatMap(({ role, content }) => [element("h4", {}, role), element("pre", { dir: "auto" }, content)]);
  return fold(`Prompt, ${count(size, "character")}`, turns);
}
