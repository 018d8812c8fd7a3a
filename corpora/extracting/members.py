"""Members of zip archives, such as those that DOCX and EPUB are, read within limits."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from xml.etree import ElementTree

from wikidx.base.errors import InputError
from wikidx.corpora.unpacking import MAX_RATIO

MAX_BYTES = 256 << 20
_FREE_BYTES = 1 << 20  # of any ratio


class Members:
    """An open zip archive, whose members together hold at most ``MAX_BYTES``, and ``MAX_RATIO`` times their packed size."""

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path, self._archive, self._n_read = path, archive, 0

    def read(self, name: str) -> bytes:
        """Return the content of a member; raises ``InputError`` if there is none, it is encrypted, or it is beyond the limits."""
        try:
            member = self._archive.getinfo(name)
            if member.flag_bits & 1:
                raise InputError(f"{self.path} is encrypted: save it without a password")
            self._n_read += member.file_size
            if self._n_read > MAX_BYTES or member.file_size > max(_FREE_BYTES, MAX_RATIO * member.compress_size):
                raise InputError(f"{self.path} expands to {self._n_read:,} bytes or more, as archive bombs do: check its content")
            return self._archive.read(member)
        except (KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError) as error:
            raise InputError(f"{self.path} cannot be read: {error}") from error

    def xml(self, name: str) -> ElementTree.Element:
        """Return the root of a member in XML; raises as ``read`` does."""
        try:
            return ElementTree.fromstring(self.read(name))
        except ElementTree.ParseError as error:
            raise InputError(f"{self.path}: {name} is no XML ({error}): save it again") from error

    def __contains__(self, name: str) -> bool:
        return name in self._archive.NameToInfo


@contextmanager
def open_members(path: Path, kind: str) -> Iterator[Members]:
    """Open a zip archive; raises ``InputError`` if the file is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            yield Members(path, archive)
    except zipfile.BadZipFile as error:
        with path.open("rb") as file:
            is_old = file.read(4) == b"\xd0\xcf\x11\xe0"  # the container of encrypted files, and of the formats before DOCX
        advice = "it is encrypted, or of an older format: save it anew" if is_old else "save it again"
        raise InputError(f"{path} is no {kind} that can be read ({error}): {advice}") from error
