"""A reader who types the commands of a README, in a folder and data home of their own.

``idx serve`` is started in the background on a free port, which stands for port 8000 from then on. ``vllm serve`` starts a stand-in that
answers as an OpenAI-compatible server does. Commands that install or change the shell are looked at, not run; of ``make`` the
lines of ``idx`` are.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.request import urlopen

from tests.conftest import ROOT
from tests.readme_blocks import Block, Shown, shown
from tests.retrievers.server.serving import wait_until
from tests.runtimes.command_line import Command
from tests.runtimes.llms.endpoint import Endpoint
from tests.runtimes.llms.endpoint import serving as serving_endpoint
from wikidx.runtimes.llms.scripted import ScriptedLLM, read_script

SERVER, LLM = "http://127.0.0.1:8000", "http://127.0.0.1:8001"

_IDX = f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -c 'from wikidx.runtimes.cli import main; main()' \"$@\"\n"
_FOR_A_SHELL = re.compile(r"[|<>;&*~$]")


class Reader:
    """Types commands and Python, in order; close it."""

    def __init__(self, idx: Command, folder: Path) -> None:
        self._idx, self._folder = idx, folder
        self._addresses: dict[str, str] = {}
        self._running = contextlib.ExitStack()
        (folder / "bin").mkdir()
        (folder / "bin" / "idx").write_text(_IDX)
        (folder / "bin" / "idx").chmod(0o755)

    def close(self) -> None:
        self._running.close()

    def follow(self, block: Block) -> None:
        """Run a block of a console or of Python."""
        if block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(self._addressed(block.text), "README", "exec"), {"__name__": "__main__"})
            assert block.output in printed.getvalue(), f"{block.text} does not print {block.output}, but {printed.getvalue()}"
            return
        for one in shown(block):
            said = self._typed(one)
            missing = [line for line in one.output if line not in said.splitlines()]
            assert not missing, f"{one.command} does not print {missing}, but {said}"

    def _typed(self, one: Shown) -> str:
        command = self._addressed(one.command)
        first, *arguments = shlex.split(command)
        assert "--install-completion" not in arguments, "that changes the files of this user's shell"
        if first in _LOOKED_AT:
            _LOOKED_AT[first](arguments)
            return ""
        if first == "make":
            return "".join(self._typed(Shown(line, [])) for line in _lines_of_idx(*arguments))
        if first == "vllm":
            self._serve_llm(arguments)
            return ""
        if arguments[:1] == ["serve"]:
            self._serve(arguments)
            return ""
        if arguments[:1] == ["view"]:
            self._view(arguments)
            return ""
        if first == "idx" and not _FOR_A_SHELL.search(command):
            return self._idx(*arguments)
        return self._in_a_shell(command)

    def _addressed(self, text: str) -> str:
        """Substitute the actual addresses of servers."""
        for address, real in self._addresses.items():
            text = text.replace(address, real)
        assert SERVER not in text, f"no server has been started yet: {text}"
        return text

    def _in_a_shell(self, command: str) -> str:
        environment = {**os.environ, "PATH": f"{self._folder / 'bin'}:{os.environ['PATH']}"}
        ran = subprocess.run(
            ["sh", "-ec", command], capture_output=True, text=True, stdin=subprocess.DEVNULL, cwd=self._folder, env=environment, check=False
        )
        assert ran.returncode == 0, f"{command}: {ran.stderr}"
        assert '"error"' not in ran.stdout, f"{command}: {ran.stdout}"
        return ran.stdout

    def _serve(self, arguments: list[str]) -> None:
        log = self._running.enter_context((self._folder / "serve.log").open("w+"))
        process = subprocess.Popen(
            [self._folder / "bin" / "idx", *arguments, "--port", "0"], stdout=subprocess.DEVNULL, stderr=log, cwd=self._folder
        )
        self._running.callback(process.wait, 30)
        self._running.callback(process.terminate)

        def said() -> str:
            return (self._folder / "serve.log").read_text()

        wait_until(lambda: process.poll() is not None or "\nready" in said())
        (self._addresses[SERVER],) = re.findall(r"listening on (http://\S+)", said())
        with urlopen(f"{self._addresses[SERVER]}/ready") as answer:
            assert answer.status == 200

    def _view(self, arguments: list[str]) -> None:
        """Fetch the page of ``idx view`` once, and end it by Ctrl-C."""
        command = [str(self._folder / "bin" / "idx"), *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=self._folder) as process:
            assert process.stderr is not None
            (address,) = re.findall(r"on (http://\S+) until Ctrl-C", process.stderr.readline())
            with urlopen(f"{address}/v1/questions") as answer:
                assert answer.status == 200
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0

    def _serve_llm(self, arguments: list[str]) -> None:
        """Serve a stand-in for a language model under the name of the one that is to be served."""
        command, model, *options = arguments
        assert (command, options) == ("serve", ["--port", "8001"])
        endpoint = Endpoint(ScriptedLLM(read_script(self._script()), name=model))
        endpoint.model = model
        url = self._running.enter_context(serving_endpoint(endpoint))
        self._addresses[LLM] = url.removesuffix("/v1")

    def _script(self) -> Path:
        path = self._folder / "stand-in.jsonl"
        path.write_text('{"match": "", "text": "phosphorus"}\n')
        return path


def _lines_of_idx(target: str) -> list[str]:
    """Return the lines of ``idx`` that a target runs, after its installation steps."""
    (recipe,) = re.findall(rf"^{target}:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    return re.findall(r"^\t\$\(BIN\)/(idx .*)$", recipe, flags=re.MULTILINE)


def _installs(arguments: list[str]) -> None:
    import tomllib

    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert arguments[0] == "install"
    for name in re.findall(r"\[([\w,]+)\]", " ".join(arguments)):
        assert set(name.split(",")) <= set(extras)
    for file in re.findall(r"--constraint (\S+)", " ".join(arguments)):
        assert (ROOT / file).exists()


def _sources(arguments: list[str]) -> None:
    assert arguments == [".venv/bin/activate"]


_LOOKED_AT: Mapping[str, Callable[[list[str]], None]] = {"pip": _installs, "source": _sources}
