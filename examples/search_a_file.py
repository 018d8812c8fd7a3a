"""Build a named corpus from a file, once; later runs and the command ``idx`` find it by its name."""

import json
import tempfile
from pathlib import Path

import wikidx as idx

NOTES = [
    {"id": "bhutan", "title": "Bhutan", "text": "Thimphu is the capital of Bhutan. The only international airport is in Paro."},
    {"id": "peru", "title": "Peru", "text": "Lima is the capital of Peru. Machu Picchu lies high above the Urubamba."},
]

with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "notes.jsonl"
    file.write_text("".join(json.dumps(note) + "\n" for note in NOTES))
    idx.build(file, name="example-notes").close()

with idx.open_searcher("example-notes") as searcher:
    print(len(searcher), "passages")
    for hit in searcher.search(["airport of Bhutan"], k=2)[0]:
        print(f"{hit.score:.2f}  {hit.id}: {hit.title}")
    print(searcher.passage("peru").text)
