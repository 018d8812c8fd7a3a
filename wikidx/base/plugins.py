"""Plug-ins: values in the user's own files, or in installed packages, that are known by name like those of idx.

A plug-in is named ``FILE.py:NAME`` or ``MODULE:NAME``, as an argument, as ``idx --plugin``, by ``plug``, or in ``IDX_PLUGINS``, separated
by commas, which child processes inherit. An installed package names its plug-ins as entry points of the group ``wikidx.KIND``. The class of
the value says the kind (``plugin_kind``), and its attribute ``name`` how it is called from then on.

Artifacts record the checksum of the file, and never load it: whoever opens them names the plug-in again. Code that the file imports is not
part of the checksum. Names that come from others, as in the requests to a server, find plug-ins by their names alone, and load no file.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.metadata import EntryPoint, entry_points
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from .artifacts.home import check_name
from .errors import IdxError, InputError, PlugInMismatch
from .machine.failures import first_line
from .registry import load, unknown_name_error

T = TypeVar("T")

VARIABLE = "IDX_PLUGINS"
_files = dict[str, str]()  # by the name of their module
__path__: list[str] = []  # files of plug-ins are imported as modules below this one, by which pickle finds them in child processes


class PlugIn(NamedTuple):
    """A plug-in, the text that names it, and the sha256 of its file."""

    kind: str
    name: str
    reference: str
    sha256: str
    value: Any

    @property
    def file(self) -> Path:
        """The file of its code."""
        place = self.reference.rpartition(":")[0]
        return Path(place if place.endswith(".py") else sys.modules[place].__file__ or "")

    def instance_of(self, class_: type[T], advice: str) -> T:
        """Return the value, which must be of a class; raise ``InputError`` with what a plug-in of this kind is otherwise."""
        if not isinstance(self.value, class_):
            raise InputError(f"{self.reference} is a {type(self.value).__name__}: {advice}")
        return self.value

    def __str__(self) -> str:
        return f"{self.reference} (sha256 {self.sha256[:12]}…)"


def is_reference(text: str) -> bool:
    """Return whether a text names a plug-in, as ``FILE.py:NAME`` or ``MODULE:NAME``."""
    place, colon, name = text.rpartition(":")
    return bool(colon) and name.isidentifier() and (place.endswith(".py") or all(part.isidentifier() for part in place.split(".")))


def plug(reference: str, kind: str | None = None) -> PlugIn:
    """Load a plug-in, whose name is then known to this process and to the processes that it starts.

    Args:
        reference: ``FILE.py:NAME`` or ``MODULE:NAME``.
        kind: the kind that is wanted, such as "encoder"; None: any.

    Raises:
        InputError: there is no such file or value, the file's code fails, the value is no plug-in of this kind, or another plug-in has its
            name.
    """
    place, _, attribute = reference.rpartition(":")
    if not is_reference(reference):
        raise InputError(f"{reference!r} names no plug-in: write FILE.py:NAME or MODULE:NAME")
    if place.endswith(".py"):
        place = os.path.abspath(os.path.expanduser(place))
        reference = f"{place}:{attribute}"
        _forget_changed(place)
    loaded = _load(reference)
    if kind not in (None, loaded.kind):
        raise InputError(f"{reference} is a plug-in of the kind '{loaded.kind}', not '{kind}'")
    other, named = plug_ins(loaded.kind).get(loaded.name, loaded), _named()
    if other.reference != reference:
        raise InputError(f"{reference} and {other.reference} are both called '{loaded.name}': give one of them another name")
    if reference not in named:
        os.environ[VARIABLE] = ",".join([*named, reference])
    return loaded


def plug_ins(kind: str) -> Mapping[str, PlugIn]:
    """Return the plug-ins of a kind that this process has been given, by name; raises as ``plug`` does."""
    loaded = (_load(reference) for reference in _named())
    return {each.name: each for each in loaded if each.kind == kind}


def plug_in_names(kind: str) -> list[str]:
    """Return the names of all plug-ins of a kind: those given to this process, and those of installed packages, which are not imported."""
    return [*plug_ins(kind), *(name for name in _entry_points(kind) if name not in plug_ins(kind))]


def name_of(kind: str, text: str) -> str:
    """Return the name that a user means by a name or by a reference, whose plug-in is loaded; raises as ``plug`` does."""
    if text.endswith(".py") and Path(text).is_file():
        raise InputError(f"'{text}' is a file: write which of its plug-ins is meant, {text}:NAME")
    return plug(text, kind).name if is_reference(text) else text


def find_plug_in(kind: str, name: str) -> PlugIn | None:
    """Return the plug-in of a name; None if there is none. Raises as ``plug`` does."""
    if (given := plug_ins(kind).get(name)) is not None:
        return given
    if (installed := _entry_points(kind).get(name)) is None:
        return None
    return _load(f"{installed.module}:{installed.attr}")._replace(name=name)


def find(kind: str, name: str, table: Mapping[str, Any], guard: Callable[[PlugIn], Any] | None = None) -> Any:  # noqa: ANN401 - an entry
    """Return an entry of a table of idx, or the value of the plug-in of a name.

    Args:
        kind: the kind.
        name: the name.
        table: the entries of idx, or texts that name them as in ``registry.load``.
        guard: function that returns what is used in place of a plug-in's value; None: the value itself.

    Raises:
        UnknownNameError: the name is unknown.
        InputError: see ``plug``; or a plug-in has the name of an entry of the table.
    """
    if name in table:
        check_free(kind, name)
        return load(kind, name, table) if isinstance(table[name], str) else table[name]
    if (plugged := find_plug_in(kind, name)) is None:
        raise unknown_name_error(kind, name, [*table, *plug_in_names(kind)])
    return plugged.value if guard is None else guard(plugged)


def recorded(kind: str, name: str, table: Mapping[str, object]) -> dict[str, str]:
    """Return what artifacts and runs record of a plug-in, its checksum; empty for an entry of idx's table and for an unknown name."""
    plugged = None if name in table else find_plug_in(kind, name)
    return {} if plugged is None else {f"{kind}_sha256": plugged.sha256}


def check_free(kind: str, name: str) -> None:
    """Raise ``InputError`` if a plug-in has a name that is idx's own."""
    if name in plug_ins(kind):
        raise InputError(f"{plug_ins(kind)[name].reference} is called '{name}', as the {kind} of idx is: give it another name")


@contextlib.contextmanager
def running(plugged: PlugIn, doing: str) -> Iterator[None]:
    """Raise the exceptions of a plug-in's code as ``InputError``, with what it was doing and the line of its file."""
    try:
        yield
    except (IdxError, MemoryError):
        raise
    except Exception as error:
        raise _failed(plugged.reference.rpartition(":")[0], error, doing) from error


def check_same(kind: str, name: str, sha256: str, artifact: Path) -> None:
    """Check that the plug-in of a name is the one by which an artifact was made.

    Raises:
        PlugInMismatch: no plug-in of this name has been given, or its file has another checksum.
    """
    plugged = find_plug_in(kind, name)
    if plugged is None:
        raise PlugInMismatch(f"{artifact} was made with the {kind} '{name}', a plug-in: name its file again, as --plugin FILE.py:NAME")
    if plugged.sha256 != sha256:
        raise PlugInMismatch(
            f"{artifact} was made with another version of the {kind} '{name}' (sha256 {sha256[:12]}…) than {plugged}: restore the file of "
            "then, or name this one again and build with --force"
        )


def _named() -> list[str]:
    return [reference.strip() for reference in os.environ.get(VARIABLE, "").split(",") if reference.strip()]


@functools.cache
def _entry_points(kind: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"wikidx.{kind}")}


@functools.cache
def _load(reference: str) -> PlugIn:
    place, _, attribute = reference.rpartition(":")
    module = _import(place)
    if not hasattr(module, attribute):
        known = [name for name, value in vars(module).items() if hasattr(value, "plugin_kind") and not isinstance(value, type)]
        raise InputError(f"{place} has no '{attribute}': its plug-ins are {', '.join(known) or 'none'}")
    value = getattr(module, attribute)
    if isinstance(value, type) or not hasattr(value, "plugin_kind"):
        raise InputError(f"{reference} is {type(value).__name__!r}, no plug-in: see docs/adding for the classes of plug-ins")
    if not isinstance(getattr(value, "name", None), str):
        raise InputError(f"{reference} has the name {getattr(value, 'name', None)!r:.40}: give it one, a text")
    file = Path(module.__file__ or "")
    sha256 = getattr(module, "__sha256__", None) or hashlib.sha256(file.read_bytes() if file.is_file() else b"").hexdigest()
    return PlugIn(value.plugin_kind, check_name(value.name), reference, sha256, value)


def _import(place: str) -> ModuleType:
    """Import a module, or a file as a module that is named by its path, once in a process."""
    try:
        return importlib.import_module(_module_name(place) if place.endswith(".py") else place)
    except (Exception, SystemExit) as error:
        raise _failed(place, error) from error


def _forget_changed(file: str) -> None:
    """Forget a file that has been changed since it was imported, so that it is imported again, as in a notebook."""
    name, path = _module_name(file), Path(file)
    if name in sys.modules and path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() != sys.modules[name].__sha256__:
        del sys.modules[name]
        _load.cache_clear()


def _failed(place: str, error: BaseException, doing: str = "") -> InputError:
    file = getattr(sys.modules.get(place), "__file__", place)
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    line = getattr(error, "lineno", None) or next(reversed(lines), None)
    reason = first_line(error) or "without a message"
    return InputError(
        f"the plug-in {place} fails{doing and f' {doing}'}{f', line {line}' if line else ''}: {type(error).__name__}: {reason}"
    )


def _module_name(file: str) -> str:
    name = f"{__name__}.of_{hashlib.sha256(file.encode()).hexdigest()[:12]}"
    _files[name] = file
    return name


class _Loader(SourceFileLoader):
    """Importer of a file, which keeps no compiled copy of it, as that may be older than a change within the same second."""

    def exec_module(self, module: ModuleType) -> None:
        """Run the file's code."""
        content = self.get_data(self.path)
        module.__sha256__ = hashlib.sha256(content).hexdigest()  # type: ignore[attr-defined]
        exec(compile(content, self.path, "exec"), module.__dict__)


class _Finder(MetaPathFinder):
    """Finder of the files of plug-ins, also for pickle in a child process."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Return the module of a file that ``IDX_PLUGINS`` names, or that is being loaded."""
        if not fullname.startswith(f"{__name__}."):
            return None
        for reference in _named():
            _module_name(reference.rpartition(":")[0])
        return spec_from_file_location(fullname, loader=_Loader(fullname, _files[fullname])) if fullname in _files else None


sys.meta_path.append(_Finder())
