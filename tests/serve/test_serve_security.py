"""What a server that anyone on the machine can reach refuses, and how soon."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from conftest import RunGpusim, environment, process_group, refused
from served import SOME_S, Served, served

GEMM = "gemm:256x256x256:fp16"
LONG = {"workload": "resnet50", "step": {"mode": "train", "precision": "amp-fp16", "sizes": {"batch": 64}}}
SOON_S = 5.0
"""For what needs no prediction, on a busy machine."""


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "10.0.0.1", "", "[::", "a b"]
)
def test_a_foreign_host_is_refused(server: Served, host: str) -> None:
    for path in ("", "api/gpus", "docs", "assets/vega.js"):
        assert server.client.get(path, headers={"Host": host}).status_code == 400
    answer = server.client.post("api/predict", headers={"Host": host}, json={"workload": GEMM, "gpu": "t4"})
    assert answer.status_code == 400


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1234", "[::1]:80"])
def test_names_of_this_machine_are_answered(server: Served, host: str) -> None:
    assert server.client.get("api/knobs", params={"gpu": "t4"}, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "name",
    [
        *(
            "/etc/passwd",
            "../../etc/passwd",
            "experiments/models/bert_base.yaml",
            "bert_base.yaml",
            "bert_base.yaml.gz",
        ),
        *("./bert_base", "file:///etc/passwd", "bert_base\x00", "$(touch x)", "~", "..", "", "x" * 300),
    ],
)
def test_no_name_is_a_path(server: Served, name: str, tmp_path: Path) -> None:
    assert not (tmp_path / "x").exists()
    for asked in ({"workload": name, "gpu": "t4"}, {"workload": GEMM, "gpu": name}):
        detail = server.refusal(json=asked)
        assert detail.startswith(("workload: ", "gpu: "))
        assert "root:" not in detail


def test_no_value_names_a_file(server: Served) -> None:
    for key_path in ("library.kernel_catalogues", "dram.technology", "host.graph_gap_us"):
        for value in (1, "1.5x", [1]):
            detail = server.refusal(json={"workload": GEMM, "gpu": "t4", "overrides": {key_path: value}})
            assert detail == f"overrides: {key_path} is not a number of the GPU; leave it out"
    detail = server.refusal(json={"workload": GEMM, "gpu": "t4", "overrides": {"sm.count": "/etc/passwd"}})
    assert detail.startswith("overrides.sm.count: expected a number")


@pytest.mark.parametrize(
    "path", ["assets/../records.py", "assets/%2e%2e/records.py", "assets/..%2frecords.py", "app.py", "assets/"]
)
def test_no_file_is_served_that_is_not_of_the_page(server: Served, path: str) -> None:
    with closing(socket.create_connection(("127.0.0.1", int(server.url.rstrip("/").rpartition(":")[2])))) as raw:
        raw.sendall(f"GET /{path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: raw.recv(65_536), b""))
    assert answer.startswith((b"HTTP/1.1 404", b"HTTP/1.1 400"))
    assert b"import" not in answer


def test_large_bodies_are_refused_at_once(server: Served) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(200):
            yield b"x" * 65_536

    headers = {"Content-Type": "application/json"}
    began = time.monotonic()
    for content in (b"x" * 1_000_000, parts()):
        assert server.client.post("api/predict", content=content, headers=headers).status_code == 413
    assert time.monotonic() - began < SOON_S


@pytest.mark.parametrize(
    "asked",
    [
        {"workload": f"gemm:{10**30}x1x1:fp16"},
        {"workload": "gemm:16777217x1x1:fp16"},
        {"workload": "gemm:16777216x16777216x16777216:fp16"},
        {"workload": "softmax:4294967296x4096:fp32"},
        {"workload": "attention_fwd:128x128x64:fp16:batch=99999999"},
        {"workload": "bert_base", "step": {"sizes": {"batch": 10**9}}},
        {"workload": "bert_base", "step": {"sizes": {"seq_len": 65_536}}},
    ],
    ids=lambda asked: str(asked)[:60],
)
def test_huge_sizes_are_refused_at_once(server: Served, asked: dict[str, Any]) -> None:
    began = time.monotonic()
    assert server.refusal(json={**asked, "gpu": "t4"})
    assert time.monotonic() - began < SOON_S


def test_deep_and_wide_bodies_are_refused_at_once(server: Served) -> None:
    began = time.monotonic()
    headers = {"Content-Type": "application/json"}
    assert server.refusal(content="[" * 60_000, headers=headers)
    wide = {"workload": GEMM, "gpu": "t4", "overrides": {f"sm.x{at}": 1 for at in range(1000)}}
    assert server.refusal(json=wide)
    assert time.monotonic() - began < SOON_S


def test_text_of_another_page_is_no_request(server: Served) -> None:
    """A form or a script of another page can send text without asking this server first, and JSON only after."""
    body = b'{"workload": "gemm:64x64x64:fp16", "gpu": "t4"}'
    assert server.refusal(content=body, headers={"Content-Type": "text/plain"})
    answer = server.client.options(
        "api/predict", headers={"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    )
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]


def test_every_answer_has_its_policy(server: Served) -> None:
    for path in ("", "docs", "api/gpus", "assets/page.js", "nothing"):
        headers = server.client.get(path).headers
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "unsafe" not in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
    assert "server" not in headers


def test_long_requests_do_not_block_short_ones(server: Served) -> None:
    async def run() -> None:
        async with httpx2.AsyncClient(base_url=server.url, timeout=SOME_S) as client:
            long = [
                asyncio.ensure_future(client.post("api/predict", json={**LONG, "gpu": "t4", "knobs": {"sms": sms}}))
                for sms in range(20, 26)
            ]
            await asyncio.sleep(1.0)
            for sms in range(20, 30):
                short = await client.post("api/predict", json={"workload": GEMM, "gpu": "t4", "knobs": {"sms": sms}})
                assert short.status_code == 200
            assert not all(one.done() for one in long)
            for one in long:
                one.cancel()

    asyncio.run(run())


def test_a_deadline_and_a_full_queue_are_said_in_one_line() -> None:
    from starlette.testclient import TestClient

    from gpusim.serve.app import Limits, create_app
    from gpusim.serve.choices import Choices

    app = create_app(Choices(("T4",)), Limits(step_s=0.05, waiting=0), hosts=["testserver"])
    with TestClient(app) as client:
        late = client.post("/api/predict", json={**LONG, "gpu": "t4"})
        assert (late.status_code, late.headers["Retry-After"]) == (503, "2")
        assert late.json() == {
            "detail": "no answer within 0.05 s; ask for less, or try again when less is asked for at once"
        }
        busy = client.post("/api/predict", json={"workload": GEMM, "gpu": "t4"})
        assert busy.status_code == 503
        assert busy.json() == {"detail": "busy: 0 requests wait already; try again in some seconds"}


def test_ctrl_c_ends_the_server_and_its_workers() -> None:
    """While a step is predicted; its standard error ends with the last process that has it."""
    with served("--jobs", "1", "--no-cache") as own:
        _ = own.predict(workload=GEMM, gpu="t4")
        with own.client.stream(
            "POST", "api/predict", json={**LONG, "gpu": "t4"}, headers={"Accept": "application/x-ndjson"}
        ) as answer:
            assert "progress" in next(answer.iter_lines())
            own.process.send_signal(signal.SIGINT)


def test_another_address_than_loopback_is_warned_of() -> None:
    with process_group("serve", "--host", "0.0.0.0", "--port", "0", "--no-open", "--jobs", "1") as process:  # noqa: S104
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"http://0.0.0.0:")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=SOME_S)
    assert said.decode().startswith("gpusim: 0.0.0.0 can be reached from other machines, and there is no password;")


def test_wrong_options_end_with_one_line(command: RunGpusim, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        text = refused(command("serve", "--port", str(port)))
        assert text.endswith("Address already in use; choose another, or --port 0 for a free port")
    assert "choose another" in refused(command("serve", "--host", "203.0.113.1"))
    assert refused(command("serve", "--models", str(tmp_path / "no"))).endswith(
        "no such folder of models; correct the path"
    )
    _ = (tmp_path / "resnet50.yaml").write_text("title: mine\n", "utf-8")
    assert "is called resnet50; rename the file" in refused(command("serve", "--models", str(tmp_path)))


def test_the_extra_is_named_where_it_is_missing() -> None:
    script = "import sys; sys.modules['fastapi'] = None; from gpusim.cli import run_cli; sys.exit(run_cli(['serve']))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, env=environment()
    )
    assert done.returncode == 2
    assert "install gpusim[serve]" in done.stderr
