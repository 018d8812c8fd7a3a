"""The OpenAPI document as a self-contained HTML page without JavaScript."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

Schema = Mapping[str, Any]

_HEAD = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>idx: API</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
h1 { font-size: 1.375rem }
h2 { font-size: 1.125rem; margin: 2.5rem 0 0 }
p { margin: .25rem 0 .75rem }
code { overflow-wrap: break-word }
td code { font-size: .875rem }
table { border-collapse: collapse; width: 100%; margin-bottom: 1rem }
tr { border-top: 1px solid #8886 }
td { padding: .375rem 1rem .375rem 0; vertical-align: top }
td:first-child { font-weight: 600; white-space: nowrap }
td:nth-child(2) { width: 40% }
@media (max-width: 45rem) {
  tr { display: block; padding: .375rem 0 }
  td, td:nth-child(2) { display: block; width: auto; padding: 0 }
}
</style>
<h1>idx: API</h1>
<p>Errors are <code>{"error", "error_type"}</code>. Programs read <a href="openapi.json">openapi.json</a>.</p>
"""
_BOUNDS = {
    "minimum": "at least {:,.15g}",
    "exclusiveMinimum": "more than {:,.15g}",
    "maximum": "at most {:,.15g}",
    "maxLength": "at most {:,} characters",
    "maxItems": "at most {:,}",
}


def render_docs(document: Schema) -> str:
    """Return an OpenAPI document as HTML, with the request and the responses of each path."""
    schemas = document.get("components", {}).get("schemas", {})
    parts = [
        part
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for part in _render_operation(f"{method.upper()} {path}", operation, schemas)
    ]
    return _HEAD + "\n".join(parts) + "\n</html>\n"


def _render_operation(name: str, operation: Schema, schemas: Schema) -> Iterator[str]:
    yield f"<h2><code>{escape(name)}</code></h2>\n<p>{escape(operation.get('description', ''))}</p>"
    body = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    fields = {field["name"]: field["schema"] for field in operation.get("parameters", ())} | body.get("properties", {})
    if fields:
        yield _render_table((field, _describe(schema, schemas), schema.get("description", "")) for field, schema in fields.items())
    replies = operation["responses"].items()
    ok = operation["responses"].get("200", {}).get("content", {}).get("application/json", {}).get("schema", {})
    yield _render_table((status, _describe(ok, schemas) if status == "200" else "", reply["description"]) for status, reply in replies)


def _render_table(rows: Iterator[tuple[str, str, str]]) -> str:
    cells = (f"<tr><td><code>{escape(name)}</code><td><code>{escape(text)}</code><td>{escape(note)}" for name, text, note in rows)
    return "\n".join(["<table>", *cells, "</table>"])


def _describe(schema: Schema, schemas: Schema) -> str:
    """Describe the values that a schema allows, in one line."""
    if "$ref" in schema:
        return _describe(schemas[schema["$ref"].rpartition("/")[2]], schemas)
    if "anyOf" in schema:
        text = " or ".join(_describe(choice, schemas) for choice in schema["anyOf"])
    elif "enum" in schema:
        text = " or ".join(f'"{value}"' for value in schema["enum"])
    elif "items" in schema:
        text = f"[{_describe(schema['items'], schemas)}, …]"
    elif "properties" in schema:
        text = "{" + ", ".join(f'"{name}": {_describe(of, schemas)}' for name, of in schema["properties"].items()) + "}"
    else:
        text = schema.get("type", "")
    bounds = "".join(", " + text.format(schema[name]) for name, text in _BOUNDS.items() if name in schema)
    default = f"; default {json.dumps(schema['default'])}" if schema.get("default") is not None else ""
    return text + bounds + default
