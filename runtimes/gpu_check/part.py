"""Process of one part: ``python -m wikidx.runtimes.gpu_check.part FUNCTION DEVICE SECONDS FOLDER SIZES``.

Records are appended to the file ``records`` in FOLDER, a line of JSON each. SIZES are the function's keyword arguments as JSON.
"""

from __future__ import annotations

import json
import os
import pkgutil
import sys
import threading
import time
from pathlib import Path
from typing import IO, Any

from .task import RECORDS, Record, SkippedPart, Task

_POLL_S = 1.0


def write_line(file: IO[str], record: Record) -> None:
    """Append a record, on disk at once."""
    file.write(json.dumps(record) + "\n")
    file.flush()


def main(function: str, device: str, seconds: str, folder: str, sizes: str) -> None:
    """Run a part; its exceptions become a traceback and status 1."""
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    arguments: dict[str, Any] = json.loads(sizes)
    os.environ["IDX_HOME"] = str(Path(folder) / "home")
    with (Path(folder) / RECORDS).open("a") as file:
        task = Task(device, Path(folder), float(seconds), lambda record: write_line(file, record))
        try:
            pkgutil.resolve_name(function)(task, **arguments)
        except SkippedPart as reason:
            write_line(file, {"skipped": str(reason)})
            return
        write_line(file, {"finished": True})


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_POLL_S)
    os._exit(1)


if __name__ == "__main__":
    main(*sys.argv[1:])
