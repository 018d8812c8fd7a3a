from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from corpora.store import sorting
from corpora.store.sorting import ExternalSort, Pair

pairs = st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=2)), max_size=60)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pairs, max_size=6))
def test_pairs_come_out_sorted_whatever_the_runs(tmp_path: Path, batches: list[list[Pair]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "_RUN_PAIRS", 20)
        patch.setattr(sorting, "_CHUNK_PAIRS", 3)
        external = ExternalSort(tmp_path)
        for batch in batches:
            external.add(batch)
        assert list(external) == sorted(pair for batch in batches for pair in batch)
        external.close()


def test_no_file_is_left_to_see(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "_RUN_PAIRS", 2)
    external = ExternalSort(tmp_path)
    external.add([(b"b", b""), (b"a", b"")])
    assert list(tmp_path.iterdir()) == []
    external.close()
