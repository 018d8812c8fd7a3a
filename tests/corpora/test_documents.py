"""Documents are read with their text, title, pages and headings; what cannot be read is one line."""

from __future__ import annotations

import base64
import zipfile
import zlib
from pathlib import Path

import pytest

from tests.corpora.made_documents import WRITERS, docx, epub, text_of, write_pdf, write_zip
from wikidx.base.errors import InputError, MissingExtraError
from wikidx.corpora.extracting import members
from wikidx.corpora.known.custom import ReadOptions, custom_corpus
from wikidx.corpora.reading.document import Document
from wikidx.corpora.reading.readers import fail, find_format

FORMATS = {"txt": "text", "md": "markdown", "rst": "rst", "html": "html", "pdf": "pdf", "docx": "docx", "epub": "epub"}
# An empty page, encrypted with the password "secret" by pypdf.
ENCRYPTED = zlib.decompress(
    base64.b64decode(
        "eNqNUstu1EAQvM9X9GWPZN4zHsnaA0lWQoCycgIXlMM8epZFKzvyzkoJP8mBP4AfYWwgWCwHLFuyqquqe6pntb3avOAXkqy+ff/ylXBgMIRPpG0J3Y5DOkUc"
        "oRXJCSGScXFN1muCfZo4YsG9e3pAoFu/wyOhl8OpL8AJfb1PR/gAqhI7uF9I5Zn00hd/GHbkpwdM3t1CoP7Zi9AOj8NpjFVRK5VO32La+5fDY23LLtj8WTG9"
        "95P1iHWwv731wvv9NHYHgtA32O/KR1Cs6kAJp5yxwtXCZn8oNRR6W3yf/JgIvYEWtW+SMI0NySUWc3bKBOuj1llz1vAUM0ucG61VVCHHwLxGpUw2Dr1qfJ38"
        "HbRGct+gFTpqF7LNOjonteRGYUDhFWaLGCV6LnWU2TIhfEhG5KhZVIYvt/M4YiYMDGHPD9T2UkOGZ4zXs8+V/g+m3RnGeXOOGXuGiaW2jH5/wHGO9Xb/Geso"
        "tBuGAnLOn77q8wD81/9V3VebfYqMJ5dj1KKRoUbOLUpZg1W+iWH9P5S65+s+jk8PBfTvRR+LH8sciLL1pq+ubzbkB+MsxMU="
    )
)


def document(path: Path) -> Document:
    (found,) = find_format(FORMATS[path.suffix[1:]]).read_documents(path)
    assert found.document.id == path.name
    for heading in found.document.headings:
        assert " ".join(found.document.text[heading.start :].split()).startswith(heading.text)
    return found.document


def made(tmp_path: Path, name: str, content: str | bytes | dict[str, str]) -> Path:
    path = tmp_path / name
    if isinstance(content, dict):
        write_zip(path, content)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize("suffix", FORMATS)
def test_each_format_gives_text_and_headings(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"d.{suffix}"
    WRITERS[suffix](path, 7)
    found = document(path)
    assert " ".join(found.text.split()).removeprefix("Part 7 ") == text_of(7)
    assert found.heading_path(found.text.index("token7")) == ("" if suffix in ("txt", "pdf") else "Part 7")
    assert found.title == {"txt": "d", "pdf": "d", "epub": "A book"}.get(suffix, "Part 7")
    corpus = custom_corpus(path, "mine", ReadOptions(split="words:4"))
    spans = [one.span for one in corpus.read([path], fail)]
    assert all(span is not None and span.document == f"d.{suffix}" for span in spans)
    assert [span.page for span in spans if span is not None][-1] == (2 if suffix == "pdf" else 0)


def test_marks_of_markdown_are_left_out(tmp_path: Path) -> None:
    text = (
        '---\ntitle: "The *guide*"\n---\nIntro [link](http://x) and ![image](y.png) `code`.\n\nTwo\nlines\n---\n\n### Deep **bold**\n\n'
        "- a\n- b\n\n"
        "```py\n# no heading\n```\n\n| h1 | h2 |\n|---|---|\n| c1 | c2 |\n\n<div>in <b>tags</b><!-- not --></div>\n"
    )
    found = document(made(tmp_path, "d.md", text))
    assert found.title == "The *guide*"
    assert found.text.split("\n\n") == [
        "Intro link and image code.", "Two lines", "Deep bold", "a", "b", "# no heading", "h1 | h2", "c1 | c2", "in  tags",
    ]  # fmt: skip
    assert [(heading.level, heading.text) for heading in found.headings] == [(2, "Two lines"), (3, "Deep bold")]


def test_text_of_html_is_that_of_its_blocks(tmp_path: Path) -> None:
    page = (
        "<html><head><title>T &amp; t</title><style>no</style></head><body><nav>no</nav><script>no</script>"
        "<h1>A <em>b</em></h1><p>one <b>two</b>three<br>four\n five</p><ul><li>x<li>y</ul><table><tr><td>1<td>2</tr></table>"
        "<pre>p\n  q</pre><h2>C</h2>tail<!-- no --></body></html>"
    )
    found = document(made(tmp_path, "d.html", page))
    assert found.title == "T & t"
    assert found.text.split("\n\n") == ["A b", "one twothree", "four five", "x", "y", "1 | 2", "p\n  q", "C", "tail"]
    assert [(heading.level, heading.text) for heading in found.headings] == [(1, "A b"), (2, "C")]
    latin = '<html><head><meta charset="iso-8859-1"></head><body>caf\xe9</body></html>'.encode("latin-1")
    assert document(made(tmp_path, "e.html", latin)).text == "café"
    assert document(made(tmp_path, "f.html", "<p>é without a declaration")).text == "é without a declaration"


def test_words_of_unknown_roles_and_directives_are_kept(tmp_path: Path) -> None:
    text = "T\n=\n\nSee :class:`~x.Y` and :ref:`the part <label>`.\n\nU\n-\n\n.. versionadded:: 3.1\n   new words\n\n"
    text += ".. include:: /etc/passwd\n"
    found = document(made(tmp_path, "d.rst", text))
    assert [(heading.level, heading.text) for heading in found.headings] == [(1, "T"), (2, "U")]
    assert "See x.Y and the part." in found.text
    assert "new words" in found.text
    assert "root:" not in found.text


def test_pages_and_hyphens_of_pdf(tmp_path: Path) -> None:
    write_pdf(tmp_path / "d.pdf", ["First page", "a hyphen-\nated word, and well-\nKnown", "third"])
    found = document(tmp_path / "d.pdf")
    assert [found.text[start:].split()[0] for start in found.pages] == ["First", "a", "third"]
    assert "hyphenated" in found.text
    assert "well-" in found.text


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("d.txt", b"text\0binary", "holds binary data, not text"),
        ("d.md", b"caf\xe9", "byte 4 is not UTF-8 .0xe9.: convert it"),
        ("d.txt", b" \n", "holds (no text|only blank lines)"),
        ("d.html", b"<html><script>x</script></html>", "holds no text"),
        ("d.pdf", ENCRYPTED, "is encrypted: save it without a password"),
        ("d.pdf", b"%PDF-1.4\ncut", "is no PDF that can be read"),
        ("d.docx", b"PK\3\4cut", "is no DOCX that can be read"),
        ("d.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "is no DOCX that can be read .*: it is encrypted, or of an older format"),
        ("d.docx", {"other": "x"}, "cannot be read: .*word/document.xml"),
        ("d.docx", docx(("", "")), "holds no text"),
        ("d.docx", {"word/document.xml": "<w:document"}, "word/document.xml is no XML"),
        ("d.docx", docx(("", "A" * 9_000_000)), "expands to [0-9,]+ bytes or more, as archive bombs do"),
        ("d.epub", epub("<h1>a</h1>", "b") | {"META-INF/encryption.xml": '<e><CipherReference URI="OPS/two.xhtml"/></e>'}, "is encrypted"),
    ],
)
def test_what_cannot_be_read_is_one_line(tmp_path: Path, name: str, content: str | bytes | dict[str, str], complaint: str) -> None:
    path = made(tmp_path, name, content)
    with pytest.raises(InputError, match=complaint) as refused:
        list(custom_corpus(path, "mine", ReadOptions()).read([path], fail))
    assert str(path) in str(refused.value)


def test_entities_do_not_grow(tmp_path: Path) -> None:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    bomb = f'<!DOCTYPE x [<!ENTITY e0 "ha">{entities}]><w:document>&e11;</w:document>'
    with pytest.raises(InputError, match="is no XML"):
        list(custom_corpus(made(tmp_path, "d.docx", {"word/document.xml": bomb}), "mine", ReadOptions()).read([tmp_path / "d.docx"], fail))


def test_a_total_beyond_the_limit_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(members, "MAX_BYTES", 1000)
    path = made(tmp_path, "d.epub", epub("<p>" + "a b " * 100, "<p>" + "c d " * 100))
    with pytest.raises(InputError, match="as archive bombs do"):
        document(path)


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lxml", None)
    path = made(tmp_path, "d.html", "<p>a")
    with pytest.raises(MissingExtraError, match="reading HTML needs the extra 'documents': pip install"):
        list(custom_corpus(path, "mine", ReadOptions()).read([path], fail))


def test_a_zip_with_a_password_is_refused(tmp_path: Path) -> None:
    path = made(tmp_path, "d.docx", docx(("", "text")))
    content = bytearray(path.read_bytes())
    with zipfile.ZipFile(path) as archive:
        place = archive.start_dir
    content[place + 8] |= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is encrypted: save it without a password"):
        document(path)
