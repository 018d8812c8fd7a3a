"""Pages on runs and methods, in the style of the search page.

viewing    the page of ``idx view``: the questions of one run or two, and the trace of each
asking     the *Ask* tab of ``idx serve --llm``, and ``/v1/ask``
files/     HTML, JavaScript and styles of both
"""

from pathlib import Path

FILES = Path(__file__).parent / "files"
"""Folder of the pages' files, served below ``/page/runs``."""
