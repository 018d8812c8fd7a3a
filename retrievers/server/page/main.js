// The search page: searches with the form, shows the results, and keeps the form's state in the address.

import { ServerError, hasKey, indexes, search, useKey } from "./api.js";
import { curl, python } from "./code.js";
import { SearchForm, fromFragment, toFragment, toRequest } from "./form.js";
import { count, placeholder, problem, ranking, welcome } from "./results.js";

const [keyForm, searchForm, results, status, copies, link, code, shown] = [
  "key-form",
  "search",
  "results",
  "status",
  "copies",
  "link",
  "code",
  "shown",
].map((id) => document.getElementById(id));
const COPIES = { link: "link", curl: "curl", python: "Python" };
let served, form, defaults;
let running = new AbortController();

async function start() {
  shown.replaceChildren();
  showStatus("Asking the server what it has …");
  try {
    served = await indexes(null, showStatus);
  } catch (error) {
    showStatus("");
    if (error.status === 401) askForKey();
    else shown.replaceChildren(problem(error.message, start));
    return;
  }
  showStatus("");
  keyForm.hidden = true;
  document.getElementById("ask").hidden = !served.ask;
  form ??= new SearchForm(searchForm, served);
  defaults ??= form.read();
  restore();
}

function askForKey() {
  shown.replaceChildren(...(hasKey() ? [problem("The server does not accept this key.")] : []));
  keyForm.hidden = false;
  keyForm.elements.key.focus();
}

/** Restore the state from the address, and search. */
function restore() {
  const state = fromFragment(location.hash, defaults);
  if (state !== null) {
    form.write(state);
    run(form.read());
    return;
  }
  running.abort();
  showStatus("");
  hideCopies();
  shown.replaceChildren(welcome(served.corpora));
  form.queries.focus();
}

/** Search, and show the results. */
async function run(state) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  hideCopies();
  results.setAttribute("aria-busy", "true");
  shown.replaceChildren(placeholder());
  document.title = `${state.queries[0]} · idx`;
  showStatus("Searching …");
  const request = toRequest(state, served.defaults);
  try {
    const { passages, ms } = await search({ ...request, highlight: true }, signal, showStatus);
    if (served.corpora.some(({ retrievers }) => retrievers.some(({ ready }) => !ready))) form.update((served = await indexes(signal)));
    if (signal.aborted) return;
    const articles = served.corpora.find(({ corpus }) => corpus === state.corpus)?.article_url;
    shown.replaceChildren(ranking(passages, state, articles));
    showStatus(`${count(passages.length, "passage")} in ${ms < 1000 ? `${ms.toFixed(ms < 10 ? 1 : 0)} ms` : `${(ms / 1000).toFixed(2)} s`}`);
  } catch (error) {
    if (signal.aborted) return;
    if (!(error instanceof ServerError)) throw error;
    showStatus("no answer");
    const mayPass = error.status === 0 || error.status >= 500;
    shown.replaceChildren(problem(error.message, mayPass ? () => run(state) : null));
    if (error.status === 401) askForKey();
  }
  results.removeAttribute("aria-busy");
  link.href = toFragment(state);
  offerCopies({ link: () => link.href, curl: () => curl(request), python: () => python(request) });
}

/** Offer the search as a link and as code; code is also shown, since only secure pages may copy. */
function offerCopies(texts) {
  const nameAll = () => Object.entries(COPIES).forEach(([id, label]) => (document.getElementById(id).textContent = label));
  nameAll();
  for (const id of Object.keys(COPIES)) {
    document.getElementById(id).onclick = async (event) => {
      const isLink = id === "link";
      if (isLink && !navigator.clipboard) return;
      event.preventDefault();
      code.hidden = isLink;
      code.textContent = isLink ? "" : texts[id]();
      await navigator.clipboard?.writeText(texts[id]());
      nameAll();
      if (navigator.clipboard) document.getElementById(id).textContent = "Copied";
    };
  }
  copies.hidden = false;
}

function hideCopies() {
  copies.hidden = true;
  code.hidden = true;
}

function showStatus(text) {
  status.textContent = text;
}

searchForm.addEventListener("submit", (event) => {
  event.preventDefault();
  const state = form.read();
  if (state.queries.length === 0) {
    form.queries.focus();
    return;
  }
  if (location.hash !== toFragment(state)) history.pushState(null, "", toFragment(state));
  run(state);
});

keyForm.addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(keyForm.elements.key.value);
  keyForm.elements.key.value = "";
  start();
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment holds the state
  results.focus();
  results.scrollIntoView();
});

window.addEventListener("popstate", () => form && restore());

start();
