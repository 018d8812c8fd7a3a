"""Names of indexes.

A key of ``INDEXES`` names a lexical index. ``<kind>-<analyzer>``, ``<kind>-<number>-<number>`` and ``<kind>-<analyzer>-<number>-<number>``
name one with another analyzer, or other parameters, than the defaults of its kind; see ``IndexKind``. An encoder's name means exact search
over its vectors. ``<encoder>-<kind>`` names an index built from these vectors. Encoders are built-in (an entry of ``encoders.toml``) or
named by the user (``name_encoder``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from wikidx.base.artifacts.home import home
from wikidx.base.errors import InputError, UnknownNameError
from wikidx.base.plugins import PlugIn, check_free, find, find_plug_in, name_of, plug_in_names
from wikidx.base.registry import unknown_name_error

from . import INDEXES, VECTOR_INDEXES
from .analysis import ANALYZERS, ENGLISH
from .encoders.anywhere import read_recipe, spec_from_recipe
from .encoders.families import ENCODERS
from .encoders.plugged import spec_of_plugged
from .encoders.recipes import RecipeOptions, register, registered, registered_names
from .encoders.spec import EncoderSpec
from .networks.checkpoints import ServedModel, parse_checkpoint

if TYPE_CHECKING:  # they import a compiler
    from .indexes.kinds import IndexKind, Number


def passage_kinds() -> list[str]:
    """Return the names of the kinds of index over passages."""
    return [*INDEXES, *_plugged_kinds("passages")]


def vector_kinds() -> list[str]:
    """Return the names of the kinds of index over vectors."""
    return [*VECTOR_INDEXES, *_plugged_kinds("vectors")]


def _plugged_kinds(source: str) -> list[str]:
    plugged = map(partial(find_plug_in, "index"), plug_in_names("index"))
    return [each.name for each in plugged if each is not None and getattr(each.value, "source", "") == source]


def encoder_spec(name: str) -> EncoderSpec:
    """Return the spec of an encoder, built-in or named by the user.

    Raises:
        UnknownNameError: the encoder is unknown.
    """
    if name in ENCODERS:
        check_free("encoder", name)
        return ENCODERS[name]
    if (plugged := find_plug_in("encoder", name)) is not None:
        return spec_of_plugged(plugged)
    if (recipe := registered(name)) is None:
        error = unknown_name_error("encoder", name, encoder_names())
        raise UnknownNameError(f"{error}; or name a checkpoint by its folder, or by OWNER/NAME on Hugging Face's hub")
    return spec_from_recipe(name, recipe)


def encoder_names() -> list[str]:
    """Return the names of all encoders."""
    return list(dict.fromkeys([*ENCODERS, *plug_in_names("encoder"), *registered_names()]))


def is_encoder(name: str) -> bool:
    """Return whether an encoder has this name."""
    if isinstance(name, IndexName):
        return name.source == "encoder"
    return name in ENCODERS or registered(name) is not None or find_plug_in("encoder", name) is not None


_FROM_FILES = RecipeOptions()


def name_encoder(text: str, choices: RecipeOptions = _FROM_FILES, *, replace: bool = False) -> str:
    """Return the canonical name of an encoder; a checkpoint's recipe is read, and kept under its name.

    Args:
        text: a name, the folder of a checkpoint, a repository ``owner/name`` or ``owner/name@revision`` of Hugging Face's hub, or
            ``name=`` and one of these. Without a name, a checkpoint is named after its folder or repository.
        choices: settings of the checkpoint.
        replace: whether the name may be that of another recipe, whose vectors cannot be searched any more.

    Raises:
        UnknownNameError: there is no encoder of this name, and no such folder.
        InputError: the name cannot be an encoder's, or is another's; see ``read_recipe`` for other errors.
    """
    if (plugged := find_plug_in("encoder", name_of("encoder", text))) is not None:
        return _name_plugged(plugged, choices)
    name, _, source = text.partition("=") if "=" in text else ("", "", text)
    if not name and (is_encoder(text) or not ("/" in text or Path(text).is_dir())):
        if choices != _FROM_FILES:
            raise InputError(f"--pooling, --normalize and the like are for a checkpoint: '{encoder_spec(text).name}' has its own settings")
        return encoder_spec(text).name
    if not name:
        checkpoint = parse_checkpoint(source)
        whole = checkpoint.model if isinstance(checkpoint, ServedModel) else getattr(checkpoint, "repository", str(checkpoint))
        name = re.sub(r"[^a-z0-9._-]+", "-", whole.rpartition("/")[2].lower()).strip("._-")
    if _is_taken(name):
        raise InputError(f"'{name}' is the name of another encoder or of an index: name this one with --encoder NAME={source}")
    register(name, read_recipe(source, choices), replace=replace or not _is_used(name))
    return name


def _name_plugged(plugged: PlugIn, choices: RecipeOptions) -> str:
    if choices != _FROM_FILES:
        raise InputError(f"--pooling, --normalize and the like are for a checkpoint: {plugged.reference} has its own settings")
    if _is_taken(plugged.name):
        raise InputError(f"{plugged.reference} is called '{plugged.name}', as another encoder or an index is: give it another name")
    return plugged.name


def _is_taken(name: str) -> bool:
    """Return whether a name is that of an encoder of idx or of an index, or ends as an index's does."""
    return name in (*ENCODERS, *INDEXES, *vector_kinds()) or name.endswith(tuple(f"-{kind}" for kind in vector_kinds()))


def _is_used(encoder: str) -> bool:
    """Return whether there are vectors of the encoder."""
    return any(home().glob(f"*/vectors/{encoder}")) or any(home().glob(f"*/vectors/.{encoder}.partial"))


class IndexName(str):
    """A resolved index name: the text that names directories and retrievers, with its parts. It is parsed once.

    Attributes:
        encoder: the encoder's canonical name; "" for a lexical index.
        kind: the kind of index; "" for exact search.
        numbers: values of the parameters ``IndexKind.numbers`` in canonical spelling; empty for the defaults.
        analyzer: name of the analyzer; "" for English, and for an index that has none.
    """

    encoder: str
    kind: str
    numbers: tuple[str, ...]
    analyzer: str

    def __new__(cls, encoder: str, kind: str, numbers: tuple[str, ...] = (), analyzer: str = "") -> IndexName:
        """Make the name of its parts."""
        name = super().__new__(cls, "-".join(filter(None, (encoder, kind, analyzer, *numbers))))
        name.encoder, name.kind, name.numbers, name.analyzer = encoder, kind, numbers, analyzer
        return name

    @property
    def source(self) -> Literal["passages", "encoder", "vectors"]:
        """Source of the index: passages, an encoder (exact search over its vectors), or its vectors; see ``IndexKind.source``."""
        if not self.encoder:
            return "passages"
        return "vectors" if self.kind else "encoder"

    def __getnewargs__(self) -> tuple[str, str, tuple[str, ...], str]:  # type: ignore[override]
        """Return the parts, for pickle."""
        return self.encoder, self.kind, self.numbers, self.analyzer


def parse_index_name(name: str, label: str = "index", built: Sequence[str] = (), recorded: str = "") -> IndexName:
    """Resolve the name of an index. Names of encoders and kinds may contain hyphens, and encoders may have aliases.

    Args:
        name: the name; one that is resolved already is returned.
        label: the kind of name, for the message ("index", "retriever").
        built: names that the message lists first.
        recorded: an analyzer besides those that are known here.

    Raises:
        UnknownNameError: no index can have this name, or its analyzer is unknown here.
        InputError: a plug-in cannot be loaded.
    """
    if isinstance(name, IndexName):
        return name
    if name in INDEXES or name in passage_kinds():
        return IndexName("", name)
    if is_encoder(name):
        return IndexName(encoder_spec(name).name, "")
    for kind in vector_kinds():
        encoder = name.removesuffix(f"-{kind}")
        if encoder != name and is_encoder(encoder):
            return IndexName(encoder_spec(encoder).name, kind)
    for kind in passage_kinds():
        if name.startswith(f"{kind}-"):
            if any(isinstance(each, IndexName) and each == name for each in built):
                raise UnknownNameError(f"'{name}' has an analyzer that is a plug-in: name its file again, as --plugin FILE.py:NAME")
            return _parse_lexical(kind, name, label, recorded)
    raise _unknown_name(label, name, built)


def _parse_lexical(kind: str, name: str, label: str, recorded: str) -> IndexName:
    """Resolve ``<kind>-<analyzer>-<number>-<number>``, with float32 numbers in shortest spelling; raises as ``parse_index_name`` does."""
    index_kind = find("index", kind, INDEXES)
    parts = name.removeprefix(f"{kind}-").split("-")
    n_words = next((n for n, part in enumerate(parts) if not part[:1].isalpha()), len(parts))
    analyzer, numbers = "-".join(parts[:n_words]), _parse_numbers(parts[n_words:], index_kind.numbers)
    known = [*ANALYZERS, *plug_in_names("analyzer")] if index_kind.takes_analyzer else []
    if numbers is None or analyzer not in ("", *known, recorded) or not (analyzer or numbers):
        raise _unknown_lexical(index_kind, name, label, known)
    is_default = [*map(float, numbers)] == [number.default for number in index_kind.numbers.values()]
    index_name = IndexName("", kind, () if is_default else numbers, "" if analyzer == ENGLISH else analyzer)
    if index_name != name:
        raise UnknownNameError(f"unknown {label} {name[:80]!r}: it is named '{index_name}'")
    return index_name


def _parse_numbers(texts: Sequence[str], known: Mapping[str, Number]) -> tuple[str, ...] | None:
    """Return numbers in canonical spelling, none if there are none; None if they are too many, too few, too large or no numbers."""
    if not texts:
        return ()
    try:
        pairs = list(zip(map(float, texts), known.values(), strict=True))
    except ValueError:
        return None
    if not all(0 <= value <= number.largest for value, number in pairs):
        return None
    return tuple(np.format_float_positional(np.float32(value), trim="-") for value, _ in pairs)


def _unknown_lexical(kind: IndexKind[Any, Any], name: str, label: str, analyzers: Sequence[str]) -> UnknownNameError:
    """Return the error for a name that no index of this kind can have."""
    bounds = " and ".join(f"{parameter} from 0 to {number.largest:g}" for parameter, number in kind.numbers.items())
    with_numbers = [f"{'-'.join([kind.name, *kind.numbers])} with {bounds}"] if kind.numbers else []
    error = unknown_name_error(label, name, [kind.name, *with_numbers, *(f"{kind.name}-{each}" for each in analyzers if each != ENGLISH)])
    may_name_analyzer = kind.takes_analyzer and name.removeprefix(f"{kind.name}-")[:1].isalpha()
    return UnknownNameError(f"{error}; an analyzer of yours is named with --plugin FILE.py:NAME") if may_name_analyzer else error


def canonical_name(name: str) -> str:
    """Return the canonical name of an index. A name that no index can have is returned unchanged."""
    try:
        return parse_index_name(name)
    except UnknownNameError:
        return name


def is_index_name(name: str) -> bool:
    """Return whether an index can have this name."""
    return isinstance(canonical_name(name), IndexName)


def _unknown_name(label: str, name: str, built: Sequence[str]) -> UnknownNameError:
    """Return the error for a name that no index can have."""
    if name in vector_kinds():
        return unknown_name_error(label, name, [f"{encoder}-{name}" for encoder in encoder_names()], built)
    encoders = [encoder for encoder in encoder_names() if name.startswith(f"{encoder}-")]
    if not encoders:
        return unknown_name_error(label, name, [*passage_kinds(), *encoder_names()], built)
    encoder = max(encoders, key=len)
    return unknown_name_error(label, name, [encoder, *(f"{encoder}-{kind}" for kind in vector_kinds())], built)


def index_names() -> list[str]:
    """Return the canonical names of all possible indexes, except names with an analyzer or numbers."""
    names = passage_kinds()
    for encoder in dict.fromkeys(encoder_spec(name).name for name in encoder_names()):
        names += [encoder, *(f"{encoder}-{kind}" for kind in vector_kinds())]
    return names
