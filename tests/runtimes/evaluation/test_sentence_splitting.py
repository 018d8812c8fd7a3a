from __future__ import annotations

from pathlib import Path

import pytest

from wikidx.base.errors import InputError, UnknownNameError
from wikidx.runtimes.evaluation.by_models.sentence_splitting import splitter

nltk = pytest.importorskip("nltk", reason="punkt needs nltk, of the extra eval")

TEXT = "Dr. Brown met Mr. Green. Mr. Green left. Dr. Brown of the U.S. stayed! Did he? Yes."


@pytest.fixture
def no_data(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for nltk's data, the only one, still empty."""
    monkeypatch.setattr(nltk.data, "path", [str(tmp_path)])
    nltk.data.clear_cache()
    return tmp_path


def test_simple_ends_a_sentence_at_every_mark_before_a_space() -> None:
    assert splitter("simple").split(" It is 3.5 m high! Why?  Dr. Who.\tknows ") == ["It is 3.5 m high!", "Why?", "Dr.", "Who.", "knows"]
    assert splitter("simple").split(" \n ") == []


def test_punkt_without_its_data_says_how_to_get_them(no_data: Path) -> None:
    with pytest.raises(InputError, match="nltk.downloader punkt_tab"):
        splitter("punkt")


def test_punkt_is_nltk_s_own_splitter_with_the_data_on_this_machine(no_data: Path) -> None:
    """Data trained here, in the form in which nltk distributes its own."""
    from nltk.tokenize.punkt import PunktSentenceTokenizer, PunktTrainer, save_punkt_params

    trainer = PunktTrainer()
    trainer.INCLUDE_ALL_COLLOCS = True
    trainer.train("\n".join([f"Mr. Green and Dr. Brown of no. {number} met. They left the U.S. at once." for number in range(60)]))
    parameters = trainer.get_params()
    folder = no_data / "tokenizers" / "punkt_tab" / "english"
    folder.mkdir(parents=True)
    save_punkt_params(parameters, str(folder))
    found = splitter("punkt")
    assert found.name == f"punkt (nltk {nltk.__version__})"
    assert found.split(TEXT) == PunktSentenceTokenizer(parameters).tokenize(TEXT)
    assert found.split(TEXT)[0] == "Dr. Brown met Mr. Green."  # abbreviations are known, unlike to "simple"
    assert found.split("  ") == []


def test_other_splitters_are_not_known() -> None:
    with pytest.raises(UnknownNameError, match="sentence splitter 'pukt'.*punkt"):
        splitter("pukt")
