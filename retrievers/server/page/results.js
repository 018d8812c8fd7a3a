// Elements for rankings. Texts of passages and queries go into text nodes only.

import { request } from "./api.js";

const SHOWN_MATCHES = 6; // matches of a passage before the rest is folded
const SHOWN_CHARACTERS = 1200; // of a passage

/** Return a new element with attributes and children; null children are left out. */
export function element(name, attributes = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in node) node[key] = value;
    else node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Return the list of passages, or a sentence if there are none; articles is a template of their articles' addresses, if there are any. */
export function ranking(passages, { corpus, retriever, queries }, articles) {
  const items = passages.map((passage, n) => item(passage, n + 1, queries, articles, corpus));
  if (items.length > 0) return element("ol", { className: "passages" }, ...items);
  return element("p", { className: "empty" }, `${retriever} finds no passage for ${queries.length > 1 ? "these queries" : "this query"}.`);
}

/** Return an error message instead of passages. */
export function problem(message, onRetry) {
  const again = onRetry ? element("button", { type: "button", onclick: onRetry }, "Try again") : null;
  return element("div", { className: "problem", role: "alert" }, element("p", {}, message), again);
}

/** Return grey bars for passages that are still loading. */
export function placeholder() {
  const bars = [1, 2, 3].map(() => element("li", {}, element("i"), element("i"), element("i")));
  return element("ol", { className: "placeholder", ariaHidden: "true" }, ...bars);
}

/** Return the list of served corpora instead of results. */
export function welcome(corpora) {
  const rows = corpora.map(({ corpus, passages, retrievers }) =>
    element(
      "li",
      {},
      element("b", {}, corpus),
      element("span", {}, passages ? count(passages.rows, "passage") : ""),
      element("span", {}, retrievers.map(({ retriever, ready }) => (ready ? retriever : `${retriever} (being opened)`)).join(", ")),
    ),
  );
  return element("div", { className: "welcome" }, element("h2", {}, "Served here"), element("ul", {}, ...rows));
}

export function count(n, noun) {
  return `${n.toLocaleString("en")} ${noun}${n === 1 ? "" : "s"}`;
}

function item({ row, id, title, text, score, provenance, highlights, span }, rank, queries, articles, corpus) {
  const node = element(
    "li",
    { className: "passage" },
    element("span", { className: "rank", ariaHidden: "true" }, String(rank)),
    element("h3", { dir: "auto" }, element("span", { className: "unseen" }, `${rank}. `), heading(id, title, highlights.title, articles)),
    element(
      "p",
      { className: "facts" },
      element("span", { className: "score", title: String(score) }, `score ${score.toFixed(4)}`),
      element("span", { className: "id" }, "id ", element("bdi", {}, id)),
      span ? element("span", { className: "place" }, place(span)) : null,
    ),
    shorten(text, highlights.text),
    span ? around(corpus, id) : null,
    matches(provenance, queries),
  );
  node.dataset.row = row;
  return node;
}

/** Return the document, page and headings of a passage's place. */
function place({ document, page, heading }) {
  return [document, page > 0 ? `page ${page}` : "", heading].filter(Boolean).join(", ");
}

/** Return what unfolds to the passages before and after one in its document. */
function around(corpus, id) {
  const node = element("details", { className: "around" }, element("summary", {}, "Before and after"));
  node.addEventListener("toggle", async () => {
    const query = new URLSearchParams({ passage: id, before: 1, after: 1 });
    const shown = await request(`v1/corpora/${encodeURIComponent(corpus)}/documents?${query}`, null).then(
      ({ passages }) => passages.filter((passage) => passage.id !== id).map(({ id, text }) => element("p", { className: "text", dir: "auto" }, element("b", {}, `${id} `), text)),
      (error) => [problem(error.message)],
    );
    node.replaceChildren(node.firstChild, ...shown);
  }, { once: true });
  return node;
}

/** Return a title, linked to its article if the corpus has articles; "{article}" in their address is the title without its section, which that of an infobox lacks. */
export function heading(id, title, spans, articles) {
  if (title === "") return element("i", {}, "no title");
  const words = highlight(title, spans);
  if (!articles) return element("span", { className: "title" }, ...words);
  const end = id.startsWith("infobox:") ? -1 : title.lastIndexOf(": ");
  const names = { title, article: end > 0 ? title.slice(0, end) : title };
  const href = articles.replace(/\{(\w+)\}/, (_, name) => encodeURIComponent(names[name]));
  return element("a", { className: "title", href, target: "_blank", rel: "noreferrer" }, ...words);
}

/** Return nodes that show a text, or its beginning, with the spans in a <mark>. Spans count code points, strings UTF-16 units. */
function highlight(text, spans, stop = Infinity) {
  const letters = Array.from(text);
  const nodes = [];
  let shown = 0;
  for (const [start, end] of spans.filter((span) => span[1] <= stop)) {
    nodes.push(letters.slice(shown, start).join(""), element("mark", {}, letters.slice(start, end).join("")));
    shown = end;
  }
  return [...nodes, letters.slice(shown, stop).join("")];
}

function shorten(text, spans) {
  const node = element("p", { className: "text", dir: "auto" });
  if (text.length <= SHOWN_CHARACTERS) {
    node.append(...highlight(text, spans));
    return node;
  }
  const letters = Array.from(text);
  const end = letters.lastIndexOf(" ", SHOWN_CHARACTERS);
  const onclick = () => node.replaceChildren(...highlight(text, spans));
  const more = element("button", { type: "button", onclick }, `Show all ${count(letters.length, "character")}`);
  node.append(...highlight(text, spans, end > 0 ? end : SHOWN_CHARACTERS), " … ", more);
  return node;
}

/** Return the provenance of a passage: query, retriever, rank and score of each match. */
function matches(provenance, queries) {
  const rows = provenance.map(({ query, retriever, rank, score }) => {
    const number = queries.length > 1 ? element("b", {}, `${queries.indexOf(query) + 1} `) : null;
    return element(
      "li",
      {},
      element("span", { className: "query", title: query }, number, element("bdi", {}, query)),
      element("span", { className: "retriever" }, retriever),
      element("span", { className: "at" }, `rank ${rank}`),
      element("span", { className: "score", title: String(score) }, score.toFixed(4)),
    );
  });
  const shown = element("ul", { className: "provenance", ariaLabel: "Found by" }, ...rows.slice(0, SHOWN_MATCHES));
  if (rows.length <= SHOWN_MATCHES) return shown;
  const others = element("ul", { className: "provenance" }, ...rows.slice(SHOWN_MATCHES));
  return element("div", {}, shown, element("details", {}, element("summary", {}, `${rows.length - SHOWN_MATCHES} more`), others));
}
