"""Tokenizers of a checkpoint: the one that transformers makes of its files, and the one in its own file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from wikidx.base.artifacts.home import utf8_path

from .checkpoints import TOKENIZER, TOKENIZERS, find_file, read_errors
from .loading import silent_transformers

if TYPE_CHECKING:
    import tokenizers


def load_any_tokenizer(folder: Path, name: str) -> Any:  # noqa: ANN401 - transformers has no types
    """Return the tokenizer that transformers makes of a checkpoint's files, with a ``backend_tokenizer`` in Rust; it imports torch.

    Raises:
        ArtifactCorrupt: the files cannot be read, need code of the checkpoint, or give no tokenizer in Rust.
    """
    import transformers

    with read_errors(find_file(folder, TOKENIZERS) or folder, name), silent_transformers():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        tokenizer.backend_tokenizer.get_vocab_size()
    return tokenizer


def checkpoint_tokenizer(folder: Path, name: str) -> tokenizers.Tokenizer:
    """Return the tokenizer of a checkpoint with its authors' settings. A bare WordPiece vocabulary gives BERT's uncased tokenizer.

    Args:
        folder: the checkpoint's folder.
        name: the encoder or reranker, for messages.

    Raises:
        ArtifactCorrupt: the file cannot be read.
    """
    from tokenizers import BertWordPieceTokenizer, Tokenizer

    path = find_file(folder, TOKENIZER) or folder / TOKENIZER[0]
    with read_errors(path, name):
        if path.suffix == ".json":
            return Tokenizer.from_file(utf8_path(path))
        return Tokenizer.from_str(BertWordPieceTokenizer(utf8_path(path), lowercase=True).to_str())
