"""The wheel of this tree, and environments with nothing of the tree but that."""

from __future__ import annotations

import subprocess
import sys
import venv
import zipfile
from pathlib import Path

from tests.conftest import ROOT


def build_wheel(folder: Path) -> Path:
    """Build the wheel into a folder."""
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--disable-pip-version-check"]
    subprocess.run([*pip, "--wheel-dir", folder, ROOT], check=True)
    return next(folder.glob("wikidx-*.whl"))


def install_bare(wheel: Path, folder: Path) -> tuple[Path, str]:
    """Make an environment with the wheel, and with the packages of this environment but for the tree; return its site and its Python."""
    venv.create(folder, with_pip=False)
    site = next(folder.glob("lib/python*/site-packages"))
    zipfile.ZipFile(wheel).extractall(site)
    (site / "core.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    return site, str(folder / "bin" / "python")
