"""Plug-ins: values in files and modules, known by name in this process and in those that it starts, and by their checksums to artifacts."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from wikidx.base.errors import InputError, PlugInMismatch, UnknownNameError
from wikidx.base.plugins import VARIABLE, check_same, find, find_plug_in, is_reference, name_of, plug, plug_in_names, plug_ins

CODE = """
class Scale:
    plugin_kind = "scale"
    name = "celsius"

    def degrees(self):
        return 100

CELSIUS = Scale()
FAHRENHEIT = Scale()
FAHRENHEIT.name = "fahrenheit"
BADLY_NAMED = Scale()
BADLY_NAMED.name = "Réaumur"
NUMBER = 3
"""
TABLE = {"kelvin": "math:pi"}


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(VARIABLE, "")
    path = tmp_path / "scales.py"
    path.write_text(CODE)
    return path


def test_a_plug_in_is_known_by_its_name_from_then_on(file: Path) -> None:
    with pytest.raises(UnknownNameError, match=r"unknown scale 'celsius': known: kelvin"):
        find("scale", "celsius", TABLE)
    given = plug(f"{file}:CELSIUS")
    assert (given.kind, given.name, given.sha256) == ("scale", "celsius", hashlib.sha256(CODE.encode()).hexdigest())
    assert find("scale", "celsius", TABLE) is given.value
    assert (name_of("scale", f"{file}:FAHRENHEIT"), name_of("scale", "celsius")) == ("fahrenheit", "celsius")
    assert list(plug_ins("scale")) == plug_in_names("scale") == ["celsius", "fahrenheit"]
    assert (plug_in_names("ruler"), find_plug_in("ruler", "celsius")) == ([], None)
    assert find("scale", "kelvin", TABLE) == pytest.approx(3.14159, abs=1e-5)


def test_files_are_found_from_the_folder_in_which_they_were_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(file.parent)
    plug("scales.py:CELSIUS")
    monkeypatch.chdir("/")
    assert os.environ[VARIABLE] == f"{file}:CELSIUS"
    assert find("scale", "celsius", TABLE).degrees() == 100


def test_child_processes_know_them_and_read_their_values(file: Path, tmp_path: Path) -> None:
    value = plug(f"{file}:CELSIUS").value
    (tmp_path / "value").write_bytes(pickle.dumps([value, value.degrees]))
    code = f"import pickle; value, degrees = pickle.load(open({str(tmp_path / 'value')!r}, 'rb')); print(value.name, degrees())"
    code += "\nfrom wikidx.base.plugins import plug_ins\nprint(plug_ins('scale')['celsius'].value.degrees())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "celsius 100\n100\n"


def test_modules_and_entry_points_of_packages_are_found(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = file.parent / "with_entry_point"
    (package / "wikidx_scales-1.dist-info").mkdir(parents=True)
    (package / "wikidx_scales-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: wikidx-scales\nVersion: 1\n")
    (package / "wikidx_scales-1.dist-info" / "entry_points.txt").write_text("[wikidx.scale]\ncelsius = installed_scales:CELSIUS\n")
    (package / "installed_scales.py").write_text(CODE)
    code = """
from wikidx.base.plugins import find, plug, plug_in_names
import sys
print(plug_in_names("scale"), "installed_scales" in sys.modules, find("scale", "celsius", {}).degrees())
print(plug("installed_scales:FAHRENHEIT").name)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")]))}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "['celsius'] False 100\nfahrenheit\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("NUMBER", CODE, "scales.py:NUMBER is 'int', no plug-in"),
        ("Scale", CODE, "scales.py:Scale is 'type', no plug-in"),
        ("KELVIN", CODE, "scales.py has no 'KELVIN': its plug-ins are CELSIUS, FAHRENHEIT, BADLY_NAMED"),
        ("UNNAMED", CODE + "UNNAMED = Scale()\nUNNAMED.name = 5\n", "scales.py:UNNAMED has the name 5: give it one, a text"),
        ("BADLY_NAMED", CODE, "'Réaumur' cannot be a name"),
        ("CELSIUS", "import math\n\nmath.nothing()\n", "scales.py fails, line 3: AttributeError: module 'math'"),
        ("CELSIUS", "x = (\n", "scales.py fails, line 1: SyntaxError"),
        ("CELSIUS", "raise SystemExit", "scales.py fails, line 1: SystemExit"),
        ("CELSIUS", None, "scales.py fails: FileNotFoundError: [Errno 2] No such file"),
    ],
)
def test_what_is_no_plug_in_is_told(file: Path, name: str, content: str | None, message: str) -> None:
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(InputError) as told:
        plug(f"{file}:{name}")
    assert message in str(told.value)
    assert os.environ[VARIABLE] == ""


def test_other_kinds_and_names_of_idx_are_refused(file: Path) -> None:
    with pytest.raises(InputError, match="is a plug-in of the kind 'scale', not 'ruler'"):
        plug(f"{file}:CELSIUS", "ruler")
    plug(f"{file}:CELSIUS")
    with pytest.raises(InputError, match="is called 'celsius', as the scale of idx is: give it another name"):
        find("scale", "celsius", {"celsius": "math:pi"})
    with pytest.raises(InputError, match="names no plug-in: write FILE.py:NAME"):
        plug("celsius")


def test_an_artifact_is_read_by_the_file_alone_that_made_it(file: Path) -> None:
    with pytest.raises(
        PlugInMismatch, match=r"was made with the scale 'celsius', a plug-in: name its file again, as --plugin FILE\.py:NAME"
    ):
        check_same("scale", "celsius", "0" * 64, Path("artifact"))
    given = plug(f"{file}:CELSIUS")
    check_same("scale", "celsius", given.sha256, Path("artifact"))
    with pytest.raises(
        PlugInMismatch, match="made with another version of the scale 'celsius' \\(sha256 000000000000…\\) than .*scales.py:CELSIUS"
    ):
        check_same("scale", "celsius", "0" * 64, Path("artifact"))


def test_references_are_told_from_other_names() -> None:
    assert all(map(is_reference, ("./mine.py:KIND", "mine.py:KIND", "package.module:KIND", "/a b/c-d.py:KIND")))
    assert not any(
        map(is_reference, ("bm25", "cross-encoder:./folder", "rerank:http://127.0.0.1:80", "openai:bge-m3@http://a/v1", "a.b", "x:1"))
    )


def test_names_load_no_file(file: Path) -> None:
    """As those in requests to a server."""
    for name in (f"{file}:CELSIUS", "scales:CELSIUS", "os:path"):
        assert find_plug_in("scale", name) is None
        with pytest.raises(UnknownNameError):
            find("scale", name, TABLE)
    assert os.environ[VARIABLE] == ""


def test_a_changed_file_is_loaded_again_when_it_is_named_again(file: Path) -> None:
    first = plug(f"{file}:CELSIUS")
    file.write_text(CODE.replace("100", "212"))
    assert find("scale", "celsius", TABLE).degrees() == 100
    assert plug(f"{file}:CELSIUS").value.degrees() == find("scale", "celsius", TABLE).degrees() == 212
    assert plug(f"{file}:CELSIUS").sha256 != first.sha256


def test_two_plug_ins_of_one_name_are_refused(file: Path) -> None:
    other = file.with_name("others.py")
    other.write_text(CODE)
    plug(f"{file}:CELSIUS")
    with pytest.raises(
        InputError, match=r"others.py:CELSIUS and .*scales.py:CELSIUS are both called 'celsius': give one of them another name"
    ):
        plug(f"{other}:CELSIUS")
    assert plug(f"{other}:FAHRENHEIT").name == "fahrenheit"
