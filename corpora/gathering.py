"""Gathering of the files of a user's corpus: files, folders, globs and archives, each file with its format and the name of its ids."""

from __future__ import annotations

import contextlib
import glob
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from wikidx.base.errors import InputError

from .reading.fields import FieldNames
from .reading.readers import Format, detect_format, find_format

DOCUMENTS = {
    "text": ("txt", "text"),
    "markdown": ("md", "markdown", "mkd"),
    "rst": ("rst", "rest"),
    "html": ("html", "htm", "xhtml"),
    "pdf": ("pdf",),
    "docx": ("docx",),
    "epub": ("epub",),
}
"""Formats that a file's name tells, and the endings of the names."""

_BY_SUFFIX = {suffix: name for name, suffixes in DOCUMENTS.items() for suffix in suffixes}
_COMPRESSED = ("gz", "bz2", "zst")
_RECORDS = ("", "json", "jsonl", "ndjson", "csv", "tsv", "parquet", "arrow", "feather", "xml")
_BEIR = ("corpus.jsonl", "corpus.jsonl.gz")
_WEAK = ("csv", "msmarco")  # formats that the first line of a text may look like
_SHOWN = 5


@dataclass(frozen=True, slots=True)
class GatheredFile:
    """A file of a corpus: its path, its name in ids, and its format."""

    path: Path
    name: str
    format: Format


@dataclass(slots=True)
class Gathered:
    """The files of a corpus, in the order of their names, and what was left out: kind -> examples."""

    files: list[GatheredFile] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)

    def leave_out(self, kind: str, name: str) -> None:
        """Count a file that is left out."""
        self.left_out.setdefault(kind, []).append(name)

    def describe(self) -> str:
        """Return the numbers of files by their formats, and what was left out, with some names."""
        counts = Counter(file.format.name for file in self.files)
        parts = [", ".join(f"{n:,} {name}" for name, n in counts.most_common())]
        for kind, names in self.left_out.items():
            more = ", …" if len(names) > _SHOWN else ""
            parts.append(f"left out: {len(names):,} {kind} ({', '.join(names[:_SHOWN])}{more})")
        return "; ".join(parts)


def expand(source: str) -> list[Path]:
    """Return the paths that a path or a pattern such as ``docs/**/*.md`` means; raises ``InputError`` if there is none."""
    if os.path.lexists(source) or not glob.has_magic(source):
        return [Path(source)]
    found = [Path(path) for path in sorted(glob.glob(source, recursive=True))]
    if not found:
        raise InputError(f"no file matches {source}")
    return found


def gather(sources: Sequence[Path], file_format: str | None, given: FieldNames) -> Gathered:
    """Return the files of sources that are files or folders.

    Names are relative to the folder, or to the common folder of several sources.

    Args:
        sources: paths of files and folders.
        file_format: format of all files; None: each file's name or content tells it.
        given: names of the user's for fields of records.

    Raises:
        InputError: a file that is named itself cannot be read, or there is no file that can.
    """
    gathered = Gathered()
    base = sources[0] if len(sources) == 1 else Path(os.path.commonpath([path.absolute().parent for path in sources]))
    base = base if base.is_dir() else base.parent
    for source in sources:
        for path in _files_in(source, gathered) if source.is_dir() else [source]:
            name = os.path.relpath(path, base)
            chosen = find_format(file_format) if file_format else _format_of(path, given, is_named=path == source)
            if chosen is None:
                gathered.leave_out("of other kinds", name)
            else:
                gathered.files.append(GatheredFile(path, name, chosen))
    if not gathered.files:
        raise InputError(f"{', '.join(map(str, sources)):.200}: no file there can be read; {gathered.describe()}")
    return gathered


def _files_in(folder: Path, gathered: Gathered) -> Iterator[Path]:
    """Yield the files in a folder and its folders, sorted by name; links out of the folder, and hidden files, are left out."""
    if corpus := next((folder / name for name in _BEIR if (folder / name).is_file()), None):
        yield corpus
        return
    root = folder.resolve()
    for place, folders, names in os.walk(folder):
        here = Path(place)
        for name in sorted(name for name in (*folders, *names) if name.startswith(".")):
            gathered.leave_out("hidden", os.path.relpath(here / name, folder))
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(name for name in names if not name.startswith(".")):
            path = here / name
            if path.is_symlink() and not path.resolve().is_relative_to(root):
                gathered.leave_out("links out of the folder", os.path.relpath(path, folder))
            elif not path.is_file():
                gathered.leave_out("that are no files", os.path.relpath(path, folder))
            elif path.stat().st_size == 0:
                gathered.leave_out("empty", os.path.relpath(path, folder))
            else:
                yield path
        for name in [name for name in folders if (here / name).is_symlink()]:
            gathered.leave_out("links to folders", os.path.relpath(here / name, folder))


def _format_of(path: Path, given: FieldNames, *, is_named: bool) -> Format | None:
    """Return a file's format; None if it is in a folder, and of no known kind."""
    known = None if is_named else document_format(path)
    if known is not None:
        return find_format(known)
    if not is_named and _suffix(path) not in _RECORDS:
        return None
    try:
        found = find_format(named_format(path, given))
        if not is_named and _suffix(path) == "" and not (found.holds_articles or found.name in ("jsonl", "contents", "beir")):
            return None  # a text that looks like a table
        replace(found, given=given).fields_of(path)
    except InputError:
        if is_named:
            raise
        return None
    return found


def named_format(path: Path, given: FieldNames) -> str:
    """Return the format of a file that is named itself, by its name or its content; a text may hold records, too.

    Raises:
        InputError: the format is not known.
    """
    known = document_format(path)
    if known == "text":
        with contextlib.suppress(InputError):
            found = detect_format(path, given)
            return found if found not in _WEAK else known
    return known or detect_format(path, given)


def document_format(path: Path) -> str | None:
    """Return the format of documents that a file's name tells; None for other names."""
    return _BY_SUFFIX.get(_suffix(path))


def _suffix(path: Path) -> str:
    """Return the ending of a file's name in lower case, without that of a compression."""
    parts = path.name.lower().rsplit(".", 2)
    ending = parts[-1] if len(parts) > 1 else ""
    return (parts[1] if len(parts) > 2 else "") if ending in _COMPRESSED else ending
