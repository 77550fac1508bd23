"""The server as a process of its own, and a client of it."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gpusim.models.loading import shipped_models

MINE = "mine"
"""The model of a folder."""
SOME_S = 120
"""For answers on a busy machine."""


@dataclass(frozen=True, slots=True)
class Served:
    """A server that runs."""

    process: subprocess.Popen[str]
    url: str
    """With a slash at its end."""
    client: Any

    def predict(self, **asked: Any) -> dict[str, Any]:
        """The answer to a request that is fine."""
        answer = self.client.post("api/predict", json=asked)
        assert answer.status_code == 200, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def refusal(self, path: str = "api/predict", **asked: Any) -> str:
        """The line with which a request is refused."""
        answer = self.client.post(path, **asked)
        assert answer.status_code == 422, answer.text
        (detail,) = answer.json().values()
        assert "\n" not in detail
        return str(detail)


@contextmanager
def served(*options: str) -> Iterator[Served]:
    """A server on a free port, which Ctrl-C ends."""
    import httpx2
    from conftest import environment

    command = [sys.executable, "-m", "gpusim", "serve", "--port", "0", "--no-open", *options]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(), start_new_session=True
    ) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            assert url, process.communicate()[1]
            with httpx2.Client(base_url=url, timeout=SOME_S) as client:
                yield Served(process, url, client)
        finally:
            process.send_signal(signal.SIGINT)  # a second one changes nothing
            try:
                _, said = process.communicate(timeout=SOME_S)
            finally:
                process.kill()
        assert (process.returncode, said) == (128 + signal.SIGINT, "")


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server of shipped GPUs and models, and of a folder with one that has the layers of BERT."""
    folder = tmp_path_factory.mktemp("models")
    _ = (folder / f"{MINE}.yaml").write_bytes(shipped_models()["bert_base"].read_bytes())
    with served("--models", str(folder)) as found:
        yield found
