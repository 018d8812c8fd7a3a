"""Files of a built index besides those of ``postings``."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Documents(NamedTuple):
    """Arrays of an index that are BM25's own, each in a file of its name.

    Attributes:
        lengths: length code of each row; see ``similarity``.
        exception_postings: term * number of rows + row for each exception (see ``similarity``), ascending.
        exception_tfs: tf of each exception.
        totals: number of rows with a term, and number of tokens in all rows.
    """

    lengths: NDArray[np.uint8]
    exception_postings: NDArray[np.int64]
    exception_tfs: NDArray[np.uint16]
    totals: NDArray[np.int64]


DTYPES: dict[str, np.dtype[Any]] = {
    "lengths": np.dtype(np.uint8),
    "exception_postings": np.dtype(np.int64),
    "exception_tfs": np.dtype(np.uint16),
    "totals": np.dtype(np.int64),
}
