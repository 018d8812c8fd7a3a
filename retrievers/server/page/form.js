// Conversion between the form, its state {queries: [text], corpus, retriever, k, depth, fuse, merge, dedup, rerank}, a link's fragment,
// and a request. The server's response determines the choices. The fragment is never sent to a server.

export const NAMES = ["corpus", "retriever", "k", "depth", "fuse", "merge", "dedup", "rerank"];
const NORMALIZED = "weighted-normalized";
const LABELS = {
  fuse: { rrf: "rrf: by ranks", weighted: "weighted: scores added", [NORMALIZED]: "weighted, normalized" },
  merge: { max: "max: best score", sum: "sum: scores added", rrf: "rrf: by ranks", interleave: "interleave: in turn" },
  dedup: { row: "by row", text: "by text" },
  rerank: { primary: "primary: by first query" },
};

/** Return the fragment of a link, with all values, including defaults. */
export function toFragment(state) {
  return `#${new URLSearchParams([...state.queries.map((query) => ["q", query]), ...NAMES.map((name) => [name, state[name]])])}`;
}

/** Return the state of a fragment, completed by the defaults, or null if the fragment is not a search. */
export function fromFragment(fragment, defaults) {
  const pairs = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!pairs.has("q")) return null;
  const named = NAMES.map((name) => [name, pairs.get(name) ?? defaults[name]]);
  return { queries: pairs.getAll("q"), ...Object.fromEntries(named) };
}

/** Return the body of a search. */
export function toRequest({ queries, ...state }) {
  const isNormalized = state.fuse === NORMALIZED;
  const fuse = isNormalized ? { fuse: "weighted", normalize: true } : {};
  return { ...state, k: Number(state.k), depth: Number(state.depth), ...fuse, groups: [queries], highlight: true };
}

export class SearchForm {
  /** @param served the response of GET /v1/indexes */
  constructor(form, served) {
    Object.assign(this, { form, served, fields: form.elements, queries: form.querySelector("textarea") });
    const { corpora, limits, rules } = served;
    for (const { corpus } of corpora) this.fields.corpus.add(new Option(corpus));
    for (const [name, labels] of Object.entries(LABELS)) {
      const offered = name === "fuse" ? [...rules.fuse, NORMALIZED] : rules[name];
      for (const rule of offered) this.fields[name].add(new Option(labels[rule] ?? rule, rule));
    }
    for (const [name, value] of [["k", 10], ["depth", 100]]) {
      this.fields[name].max = limits[`max_${name}`];
      this.fields[name].value = Math.min(value, limits[`max_${name}`]);
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

  /** Update fields that depend on others. */
  refresh() {
    const { corpus, retriever, k, queries } = this.read();
    this.fields.fuse.disabled = !retriever.includes("+");
    this.queries.rows = Math.min(12, this.queries.value.split("\n").length);
    document.getElementById("group").textContent =
      queries.length > 1
        ? `${queries.length} queries, one group: their results are merged into one ranking. The first is the primary query, by which the ranking is reranked.`
        : "One query a line. Several are a group: each is searched, their results are merged into one ranking.";
    document.getElementById("chosen").textContent = `${corpus}, ${retriever}, ${k} passages`;
  }

  read() {
    const queries = this.queries.value.split("\n").map((line) => line.trim()).filter(Boolean);
    return { queries, ...Object.fromEntries(NAMES.map((name) => [name, this.fields[name].value])) };
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
  }
}
