// The search page: searches with the form, shows the results, and keeps the form's state in the address.

import { ServerError, hasKey, indexes, search, useKey } from "./api.js";
import { SearchForm, fromFragment, toFragment, toRequest } from "./form.js";
import { count, placeholder, problem, ranking, welcome } from "./results.js";

const [keyForm, searchForm, results, status, link, shown] = ["key-form", "search", "results", "status", "link", "shown"].map((id) =>
  document.getElementById(id),
);
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
  link.hidden = true;
  shown.replaceChildren(welcome(served.corpora));
  form.queries.focus();
}

/** Search, and show the results. */
async function run(state) {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  link.hidden = true;
  results.setAttribute("aria-busy", "true");
  shown.replaceChildren(placeholder());
  document.title = `${state.queries[0]} · idx`;
  showStatus("Searching …");
  try {
    const { passages, ms } = await search(toRequest(state), signal, showStatus);
    if (signal.aborted) return;
    shown.replaceChildren(ranking(passages, state));
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
  link.hidden = false;
  link.href = toFragment(state);
  link.textContent = navigator.clipboard ? "Copy link" : "Link";
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

link.addEventListener("click", async (event) => {
  if (!navigator.clipboard) return;
  event.preventDefault();
  await navigator.clipboard.writeText(link.href);
  link.textContent = "Copied";
});

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the fragment holds the state
  results.focus();
  results.scrollIntoView();
});

window.addEventListener("popstate", () => form && restore());

start();
