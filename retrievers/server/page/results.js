// A ranking -> elements. Whatever comes from passages and queries goes into text nodes only.

const SHOWN_WAYS = 6; // ways a passage was found, before the others are folded
const SHOWN_CHARACTERS = 1200; // of a passage

/** Return a new element with attributes and children; null children are left out. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

/** Return the list of passages, or what is said if there are none. */
export function ranking(passages, { retriever, queries }) {
  if (passages.length > 0) return element("ol", { className: "passages" }, ...passages.map((passage, n) => item(passage, n + 1, queries)));
  return element("p", { className: "empty" }, `${retriever} finds no passage for ${queries.length > 1 ? "these queries" : "this query"}.`);
}

/** Return what is shown instead of passages when something went wrong. */
export function problem(message, onRetry) {
  const again = onRetry ? element("button", { type: "button", onclick: onRetry }, "Try again") : null;
  return element("div", { className: "problem", role: "alert" }, element("p", {}, message), again);
}

/** Return grey bars in place of passages that are still to come. */
export function placeholder() {
  const bars = [1, 2, 3].map(() => element("li", {}, element("i"), element("i"), element("i")));
  return element("ol", { className: "placeholder", ariaHidden: "true" }, ...bars);
}

/** Return what is served, in place of results. */
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

export function count(n, what) {
  return `${n.toLocaleString("en")} ${what}${n === 1 ? "" : "s"}`;
}

function item({ row, id, title, text, score, found, highlights }, rank, queries) {
  const heading = title === "" ? element("i", {}, "no title") : element("span", { className: "title" }, ...marked(title, highlights.title));
  const made = element(
    "li",
    { className: "passage" },
    element("span", { className: "rank", ariaHidden: "true" }, String(rank)),
    element("h3", { dir: "auto" }, element("span", { className: "unseen" }, `${rank}. `), heading),
    element(
      "p",
      { className: "facts" },
      element("span", { className: "score", title: String(score) }, `score ${score.toFixed(4)}`),
      element("span", { className: "id" }, "id ", element("bdi", {}, id)),
    ),
    shortened(text, highlights.text),
    ways(found, queries),
  );
  made.dataset.row = row;
  return made;
}

/** Return nodes that show a text, or its beginning, with the spans in a <mark>. Spans count code points, strings UTF-16 units. */
function marked(text, spans, stop = Infinity) {
  const letters = Array.from(text);
  const nodes = [];
  let shown = 0;
  for (const [start, end] of spans.filter((span) => span[1] <= stop)) {
    nodes.push(letters.slice(shown, start).join(""), element("mark", {}, letters.slice(start, end).join("")));
    shown = end;
  }
  return [...nodes, letters.slice(shown, stop).join("")];
}

function shortened(text, spans) {
  const made = element("p", { className: "text", dir: "auto" });
  if (text.length <= SHOWN_CHARACTERS) {
    made.append(...marked(text, spans));
    return made;
  }
  const letters = Array.from(text);
  const end = letters.lastIndexOf(" ", SHOWN_CHARACTERS);
  const onclick = () => made.replaceChildren(...marked(text, spans));
  const more = element("button", { type: "button", onclick }, `Show all ${count(letters.length, "character")}`);
  made.append(...marked(text, spans, end > 0 ? end : SHOWN_CHARACTERS), " … ", more);
  return made;
}

/** Return the ways a passage was found: by which query and retriever, at which rank, with which score. */
function ways(found, queries) {
  const rows = found.map(({ query, retriever, rank, score }) => {
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
  const shown = element("ul", { className: "found", ariaLabel: "Found by" }, ...rows.slice(0, SHOWN_WAYS));
  if (rows.length <= SHOWN_WAYS) return shown;
  const others = element("ul", { className: "found" }, ...rows.slice(SHOWN_WAYS));
  return element("div", {}, shown, element("details", {}, element("summary", {}, `${rows.length - SHOWN_WAYS} more`), others));
}
