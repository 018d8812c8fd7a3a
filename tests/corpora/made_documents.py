"""A tree of documents and tables in 14 formats, made by the libraries that write them, or as their standards say."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import pandas as pd
import pyarrow.feather

BASE = "urn:oasis:names:tc:opendocument:xmlns:container"
W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
STYLES = f'<w:styles {W}><w:style w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style></w:styles>'
CONTAINER = f'<container xmlns="{BASE}"><rootfiles><rootfile full-path="OPS/book.opf"/></rootfiles></container>'
PACKAGE = """<package xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>A book</dc:title>
</metadata><manifest><item id="b" href="two.xhtml" media-type="application/xhtml+xml"/>
<item id="a" href="one%20.xhtml" media-type="application/xhtml+xml"/></manifest>
<spine><itemref idref="a"/><itemref idref="b"/></spine></package>"""


def text_of(n: int) -> str:
    return f"This is document {n}, whose word is token{n} here."


def write_pdf(path: Path, pages: list[str]) -> None:
    import matplotlib as mpl
    from matplotlib.backends.backend_pdf import PdfPages
    from matplotlib.figure import Figure

    with mpl.rc_context({"pdf.fonttype": 42}), PdfPages(path) as pdf:
        for page in pages:
            figure = Figure(figsize=(8, 4))
            figure.text(0.05, 0.5, page)
            pdf.savefig(figure)


def write_zip(path: Path | IO[bytes], members: dict[str, str]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


def docx(*paragraphs: tuple[str, str]) -> dict[str, str]:
    styled = '<w:pPr><w:pStyle w:val="{}"/></w:pPr>'
    body = "".join(f"<w:p>{styled.format(style) * bool(style)}<w:r><w:t>{text}</w:t></w:r></w:p>" for style, text in paragraphs)
    return {"word/document.xml": f"<w:document {W}><w:body>{body}</w:body></w:document>", "word/styles.xml": STYLES}


def epub(one: str, two: str) -> dict[str, str]:
    page = '<html xmlns="http://www.w3.org/1999/xhtml"><head><title>t</title></head><body>{}</body></html>'
    pages = {"OPS/one .xhtml": page.format(one), "OPS/two.xhtml": page.format(two)}
    return {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER, "OPS/book.opf": PACKAGE, **pages}


def _rows(n: int) -> list[dict[str, Any]]:
    return [{"docid": f"{n}-{row}", "passage": text_of(n)} for row in range(2)]


WRITERS: dict[str, Callable[[Path, int], Any]] = {
    "txt": lambda path, n: path.write_text(text_of(n)),
    "md": lambda path, n: path.write_text(f"# Part {n}\n\n{text_of(n)}\n"),
    "rst": lambda path, n: path.write_text(f"Part {n}\n========\n\n{text_of(n)}\n"),
    "html": lambda path, n: path.write_text(f"<html><body><h1>Part {n}</h1><p>{text_of(n)}</p></body></html>"),
    "pdf": lambda path, n: write_pdf(path, [f"Part {n}", text_of(n)]),
    "docx": lambda path, n: write_zip(path, docx(("berschrift1", f"Part {n}"), ("", text_of(n)))),
    "epub": lambda path, n: write_zip(path, epub(f"<h1>Part {n}</h1>", f"<p>{text_of(n)}</p>")),
    "csv": lambda path, n: pd.DataFrame(_rows(n)).to_csv(path, index=False),
    "tsv": lambda path, n: pd.DataFrame(_rows(n)).to_csv(path, index=False, sep="\t"),
    "json": lambda path, n: path.write_text(json.dumps(_rows(n), indent=1)),
    "jsonl": lambda path, n: path.write_text("".join(f"{json.dumps(row)}\n" for row in _rows(n))),
    "parquet": lambda path, n: pd.DataFrame(_rows(n)).to_parquet(path),
    "feather": lambda path, n: pyarrow.feather.write_feather(pd.DataFrame(_rows(n)), path),
    "": lambda path, n: path.write_text(f'<doc id="w{n}" url="u" title="Part {n}">\nPart {n}\n\n{text_of(n)}\n</doc>\n'),
}


def make_tree(folder: Path, n: int) -> None:
    """Make ``n`` files in sub-folders, of one format after the other."""
    for number in range(n):
        suffix = list(WRITERS)[number % len(WRITERS)]
        place = folder / f"part{number % 3}"
        place.mkdir(parents=True, exist_ok=True)
        WRITERS[suffix](place / (f"d{number}.{suffix}" if suffix else f"wiki_{number}"), number)
