// Conversion between the form, its state {queries: [text], corpus, retriever, k, depth, fuse, merge, dedup, rerank, more: {name: text}}, a
// link's fragment, and a request. The server's response determines the choices. The fragment is never sent to a server.
// "more" has the weights of retrievers and the search parameters that are set.

import { element } from "./results.js";

export const NAMES = ["corpus", "retriever", "k", "depth", "fuse", "merge", "dedup", "rerank"];
const NORMALIZED = "weighted-normalized";
const LABELS = {
  fuse: { rrf: "rrf: by ranks", weighted: "weighted", [NORMALIZED]: "normalized" },
  merge: { max: "max: best score", sum: "sum of scores", rrf: "rrf: by ranks", interleave: "interleave" },
  dedup: { row: "by row", text: "by text" },
  rerank: { primary: "by first query" },
};
const WEIGHT = "weight.";
const LEAST = { refine: 0 }; // of other search parameters: 1

/** Return the fragment of a link, with all values, including defaults. */
export function toFragment(state) {
  const queries = state.queries.map((query) => ["q", query]);
  return `#${new URLSearchParams([...queries, ...NAMES.map((name) => [name, state[name]]), ...Object.entries(state.more)])}`;
}

/** Return the state of a fragment, completed by the defaults, or null if the fragment is not a search. */
export function fromFragment(fragment, defaults) {
  const pairs = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!pairs.has("q")) return null;
  const named = NAMES.map((name) => [name, pairs.get(name) ?? defaults[name]]);
  const more = Object.fromEntries([...pairs].filter(([name]) => name !== "q" && !NAMES.includes(name)));
  return { queries: pairs.getAll("q"), ...Object.fromEntries(named), more };
}

/** Return the body of a search, without options that are the server's defaults. */
export function toRequest({ queries, corpus, retriever, more, ...state }, defaults) {
  const isNormalized = state.fuse === NORMALIZED;
  const weights = {};
  const params = {};
  for (const [name, text] of Object.entries(more)) {
    if (name.startsWith(WEIGHT)) weights[name.slice(WEIGHT.length)] = Number(text);
    else params[name] = Number(text);
  }
  const options = { ...state, k: Number(state.k), depth: Number(state.depth), ...params };
  if (!retriever.includes("+")) delete options.fuse;
  else if (isNormalized) Object.assign(options, { fuse: "weighted", normalize: true });
  if (Object.keys(weights).length > 0) options.weights = weights;
  const chosen = Object.entries(options).filter(([name, value]) => value !== defaults[name]);
  return { groups: [queries], corpus, retriever, ...Object.fromEntries(chosen) };
}

/** Return the fields that a search has besides the form's own, as {name: [label, attributes]}; empty fields mean the default.
 * Search parameters that are set stay, since those of an index are known only when it is open. */
function moreFields({ corpus, retriever, fuse, rerank }, set, { corpora, limits }) {
  const parts = retriever.split("+");
  const fields = {};
  if (parts.length > 1 && fuse.startsWith("weighted")) {
    for (const part of parts) fields[WEIGHT + part] = [`Weight of ${part}`, { step: "any", placeholder: "1" }];
  }
  if (rerank !== "none") fields.rerank_depth = ["Rerank depth", { min: "1", max: String(limits.max_depth), placeholder: "all" }];
  const indexes = corpora.find((entry) => entry.corpus === corpus)?.indexes ?? [];
  for (const { index, parameters } of indexes.filter(({ index }) => parts.includes(index))) {
    for (const [name, { default: usual, maximum }] of Object.entries(parameters)) {
      fields[name] = [name, { min: String(LEAST[name] ?? 1), max: String(maximum), placeholder: String(usual), title: `search parameter of ${index}` }];
    }
  }
  for (const name of Object.keys(set)) if (!name.startsWith(WEIGHT) && name !== "rerank_depth") fields[name] ??= [name, { step: "any" }];
  return fields;
}

export class SearchForm {
  /** @param served the response of GET /v1/indexes */
  constructor(form, served) {
    Object.assign(this, { form, served, fields: form.elements, queries: form.querySelector("textarea"), more: new Map() });
    const { corpora, limits, rules, defaults } = served;
    for (const { corpus } of corpora) this.fields.corpus.add(new Option(corpus));
    for (const [name, labels] of Object.entries(LABELS)) {
      const offered = name === "fuse" ? [...rules.fuse, NORMALIZED] : rules[name];
      for (const rule of offered) this.fields[name].add(new Option(labels[rule] ?? rule, rule));
    }
    for (const name of ["k", "depth"]) {
      this.fields[name].max = limits[`max_${name}`];
      this.fields[name].value = Math.min(defaults[name], limits[`max_${name}`]);
    }
    this.offerRetrievers();
    this.fields.corpus.addEventListener("change", () => this.offerRetrievers());
    form.addEventListener("input", () => this.refresh());
    this.foldOn(window.matchMedia("(max-width: 36rem)"));
    const isTouched = window.matchMedia("(pointer: coarse)").matches; // touch keyboards have no Shift and Enter
    form.querySelector(".keys").hidden = isTouched;
    this.queries.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouched) return;
      event.preventDefault();
      form.requestSubmit();
    });
    form.hidden = false;
    this.refresh();
  }

  /** Fold the settings while the screen is narrow; an invalid setting unfolds them. */
  foldOn(narrow) {
    const details = this.form.querySelector("details");
    const fold = () => (details.open = !narrow.matches);
    fold();
    narrow.addEventListener("change", fold);
    details.addEventListener("invalid", () => (details.open = true), { capture: true });
  }

  /** Offer the retrievers of the chosen corpus; keep the chosen retriever if the corpus has it. */
  offerRetrievers() {
    const entry = this.served.corpora.find(({ corpus }) => corpus === this.fields.corpus.value);
    if (!entry) return;
    const select = this.fields.retriever;
    const chosen = select.value;
    select.replaceChildren(...entry.retrievers.map(({ retriever }) => new Option(retriever)));
    if (entry.retrievers.some(({ retriever }) => retriever === chosen)) select.value = chosen;
  }

  /** Take a later response of GET /v1/indexes, which has the search parameters of more indexes. */
  update(served) {
    this.served = served;
    this.refresh();
  }

  /** Update fields that depend on others. */
  refresh() {
    this.offerMore();
    const { corpus, retriever, k, queries } = this.read();
    this.fields.fuse.disabled = !retriever.includes("+");
    this.queries.rows = Math.min(12, this.queries.value.split("\n").length);
    document.getElementById("group").textContent =
      queries.length > 1
        ? `${queries.length} queries, one group: their results are merged into one ranking. The first is the primary query, by which the ranking is reranked.`
        : "One query a line. Several are a group: each is searched, their results are merged into one ranking.";
    document.getElementById("chosen").textContent = `${corpus}, ${retriever}, ${k} passages`;
  }

  /** Offer the fields of ``moreFields``; those that stay keep their values. */
  offerMore(set = this.read().more) {
    const fields = moreFields(this.read(), set, this.served);
    const names = Object.keys(fields);
    if (names.join() === [...this.more.keys()].join()) return;
    const values = new Map([...this.more].map(([name, input]) => [name, input.value]));
    this.more = new Map(names.map((name) => [name, element("input", { type: "number", value: values.get(name) ?? "", ...fields[name][1] })]));
    const labels = [...this.more].map(([name, input]) => element("label", {}, fields[name][0], input));
    document.getElementById("more").replaceChildren(...labels);
  }

  read() {
    const queries = this.queries.value.split("\n").map((line) => line.trim()).filter(Boolean);
    const more = [...this.more].map(([name, input]) => [name, input.value]).filter(([, value]) => value !== "");
    return { queries, ...Object.fromEntries(NAMES.map((name) => [name, this.fields[name].value])), more: Object.fromEntries(more) };
  }

  /** Show a state; a value that the server lacks stays chosen, so that the server's error names it. */
  write(state) {
    this.queries.value = state.queries.join("\n");
    for (const name of NAMES) {
      const field = this.fields[name];
      const isOffered = !field.options || [...field.options].some(({ value }) => value === state[name]);
      if (!isOffered) field.add(new Option(state[name]));
      field.value = state[name];
      if (name === "corpus") this.offerRetrievers();
    }
    this.refresh();
    this.offerMore(state.more);
    for (const [name, input] of this.more) input.value = state.more[name] ?? "";
  }
}
