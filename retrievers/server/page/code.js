// A search as code for other programs: a curl command, and Python. A key is named by its environment variable, never written.

import { hasKey } from "./api.js";

/** Return the command that sends a search. */
export function curl(request) {
  const key = hasKey() ? ' -H "Authorization: Bearer $IDX_API_KEY"' : "";
  return `curl ${quote(`${server()}/v1/search`)}${key} --json ${quote(JSON.stringify(request))}`;
}

/** Return a Python program that prints the ranking of a search. */
export function python({ groups: [queries], corpus, retriever, ...options }) {
  const key = hasKey() ? ', api_key=os.environ["IDX_API_KEY"]' : "";
  const given = Object.entries(options).map(([name, value]) => `${name}=${literal(value)}`);
  return [
    ...(hasKey() ? ["import os"] : []),
    "import wikidx as idx",
    "",
    `searcher = idx.RemoteSearcher(${literal(server())}, corpus=${literal(corpus)}, retriever=${literal(retriever)}${key})`,
    `queries = ${literal(queries)}`,
    `(ranking,) = searcher.search_groups(${["[queries]", ...given].join(", ")})`,
    "for hit in ranking:",
    "    print(hit.score, hit.title)",
  ].join("\n");
}

/** Return the server's address, with the path of a server that forwards to it. */
function server() {
  return new URL(".", location.href).href.replace(/\/$/, "");
}

/** Return a text as one word of a shell command. */
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** Return a value as a Python literal. */
function literal(value) {
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "object") return `{${Object.entries(value).map((pair) => pair.map(literal).join(": ")).join(", ")}}`;
  return JSON.stringify(value);
}
