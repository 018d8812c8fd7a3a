"""Models behind servers that idx starts: a child process on the loopback address, used as any endpoint.

The child has a session of its own, so that Ctrl-C reaches only idx. A guard between them ends it, with all that it has started, when the
model is closed or idx has ended in whatever way.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import os
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from wikidx.base.errors import IdxError
from wikidx.runtimes.errors import LLMError

from .openai_model import OpenAIHttp
from .options import ConnectionOptions

_GUARD = """
import os, signal, subprocess, sys, threading, time
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def end():
    sys.stdin.read()
    child.terminate()
    time.sleep(20)
    child.kill()
threading.Thread(target=end, daemon=True).start()
child.wait()
os.killpg(0, signal.SIGKILL)
"""
_PAUSE_S, _PROBE_S = 0.1, 5.0
_TIMEOUT_S = 3600.0  # a slow processor is no failure
_LONGEST = 300  # characters of the last line of a log

logger = logging.getLogger(__name__)

Explain = Callable[[str], IdxError | None]
"""The log of a server that has ended -> the error for the user; None: the log tells nothing that is known."""


class Address:
    """A free port of the loopback address, and a random key."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.port: int = listener.getsockname()[1]
        self.key = secrets.token_urlsafe()

    def is_ready(self) -> bool:
        """Return whether the server says that it is ready."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PROBE_S)
        with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
            connection.request("GET", "/health")
            return connection.getresponse().status == http.HTTPStatus.OK
        return False


class ServedLLM(OpenAIHttp):
    """A model behind a server that is started with it and ends with it; must be closed.

    Args:
        model: the model's name at the server.
        command: the server's command line, which names the port of ``address``.
        address: the server's address.
        environment: variables of the server.
        options: options of the connection; time limits, retries and key are set here.
        explain: reader of the log of a server that does not start.

    Raises:
        IdxError: the server has ended before it was ready.
    """

    def __init__(
        self,
        model: str,
        command: Sequence[str],
        address: Address,
        *,
        environment: Mapping[str, str],
        options: ConnectionOptions,
        explain: Explain,
    ) -> None:
        self._server = _start(options.name or model, command, address, environment, explain)
        options = replace(options, timeout=_TIMEOUT_S, token_timeout=_TIMEOUT_S, retries=1, api_key=address.key)
        super().__init__(model, f"http://127.0.0.1:{address.port}/v1", options=options)

    def close(self) -> None:
        """End the server, with the calls in progress, and close the connections."""
        super().close()
        _end(self._server)


def _start(
    name: str, command: Sequence[str], address: Address, environment: Mapping[str, str], explain: Explain
) -> subprocess.Popen[bytes]:
    """Start a server and wait until it is ready. The log is kept if it is needed to understand a failure."""
    file, path = tempfile.mkstemp(prefix="idx-", suffix=".log")
    with open(file, "wb") as log:
        guard = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _GUARD, *command],
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    try:
        while guard.poll() is None:
            if address.is_ready():
                return guard
            time.sleep(_PAUSE_S)
        text = Path(path).read_text(encoding="utf-8", errors="replace")
        if (known := explain(text)) is not None:
            raise known
        kept, path = path, ""
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it wrote nothing")
        raise LLMError(f"the server of {name} ended before it was ready: {last:.{_LONGEST}}; its log is {kept}")
    except BaseException:
        _end(guard)
        raise
    finally:
        if path:
            os.unlink(path)


def _end(guard: subprocess.Popen[bytes]) -> None:
    assert guard.stdin is not None
    guard.stdin.close()
    guard.wait()
