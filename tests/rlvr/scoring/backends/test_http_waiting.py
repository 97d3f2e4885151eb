"""Messages about reward servers that do not answer, and mistakes that no retry mends."""

from __future__ import annotations

import re
import shutil
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rlvr.config.specs import RewardSpec
from rlvr.scoring import outage_notices
from rlvr.scoring.backends.http_connection import ServerConnection, Unavailable
from rlvr.scoring.registry import load_rewards
from rlvr.scoring.scorer import START_TIMEOUT_S, Scored, Scorer
from tests.support.reward_servers import RewardServer, accept

NAMES = ("code_format", "answer_format")  # two that share nothing, and are asked for by different threads


@pytest.fixture(scope="module")
def server() -> Iterator[RewardServer]:
    with RewardServer("--rewards", ",".join(NAMES), env={"GRPO_REWARDS_KEY": ""}) as started:
        yield started


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(outage_notices, "FIRST_AFTER_S", 0.3)
    monkeypatch.setattr(outage_notices, "FAILING_AFTER_S", 0.2)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # no key of a server
    monkeypatch.delenv("GRPO_REWARDS_KEY", raising=False)
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)


@pytest.fixture
def free_port() -> Iterator[int]:
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        line.bind(("127.0.0.1", 0))  # no other process gets it
        yield int(line.getsockname()[1])


def scorer(where: str, start_timeout_s: float = START_TIMEOUT_S, batch_timeout_s: float = 60.0) -> Scorer:
    rewards = load_rewards([RewardSpec(name, where=where) for name in NAMES])
    return Scorer(rewards, start_timeout_s=start_timeout_s, batch_timeout_s=batch_timeout_s)


def score(scoring: Scorer) -> Scored:
    return scoring.score([f"p{row}" for row in range(8)], ["```python\n1\n```"] * 8, {})


@pytest.mark.slow
def test_a_server_that_is_not_up_yet_is_named_once_and_when_it_is_there(
    free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    url = f"http://127.0.0.1:{free_port}"
    started: list[RewardServer] = []

    def start() -> None:
        time.sleep(0.6)
        started.append(RewardServer("--rewards", ",".join(NAMES), port=free_port))

    thread = threading.Thread(target=start)
    thread.start()
    try:
        with scorer(url) as scoring:
            scored = score(scoring)
    finally:
        thread.join()
        for server in started:
            server.end()
    assert not scored.failures
    lines = capsys.readouterr().out.splitlines()
    # Refused, or with 503 as long as it makes its imports.
    assert len(lines) == 2 and all(url in line for line in lines), lines


@pytest.mark.slow
def test_a_wait_is_printed_repeatedly_with_the_time_that_is_left(
    free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage_notices, "REPEAT_AFTER_S", 1.5)
    with scorer(f"http://127.0.0.1:{free_port}", start_timeout_s=8.0) as scoring:
        scored = score(scoring)
    assert scored.values == [[None, None]] * 8
    lines = capsys.readouterr().out.splitlines()
    matches = [re.search(rf"http://127.0.0.1:{free_port}: Connection refused .*?(\d+) s", line) for line in lines]
    left = [int(match[1]) for match in matches if match is not None]
    assert len(left) == len(lines) and len(left) >= 2 and left == sorted(left, reverse=True), lines


def test_without_a_server_all_rows_are_masked_and_only_the_main_process_prints(
    free_port: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    url, begun = f"http://127.0.0.1:{free_port}", time.monotonic()
    with scorer(url, start_timeout_s=1.0) as scoring:
        scored = score(scoring)
    assert time.monotonic() - begun < 60, "and not after five minutes"
    assert capsys.readouterr() == ("", "")
    assert scored.values == [[None, None]] * 8 and len(scored.failures) == 2
    assert all(fault.status == "unavailable" and url in fault.message for fault in scored.failures)


@pytest.mark.slow
def test_one_of_two_that_is_gone_is_named_once_and_once_more_when_it_is_back(
    server: RewardServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with RewardServer("--rewards", ",".join(NAMES)) as other, scorer(f"{server.url},{other.url}") as scoring:
        assert not score(scoring).failures
        other.kill()

        def lines_after(changed: Callable[[], object]) -> list[str]:
            """Score batches until a line is printed, and some more; return all lines."""
            changed()
            err, end = "", time.monotonic() + 100
            while not err and time.monotonic() < end:
                assert not score(scoring).failures
                err += capsys.readouterr().err
                time.sleep(0.05)
            for _ in range(5):
                assert not score(scoring).failures
                time.sleep(0.1)
            return (err + capsys.readouterr().err).splitlines()

        (line,) = lines_after(other.kill)
        assert line.startswith("warning: ") and f"{other.url}: Connection refused" in line
        (line,) = lines_after(other.start)
        assert other.url in line and not line.startswith("warning: ")


# ----------------------------------------------------------------------------------------------------------------------
# What no wait would mend


class Tls:
    """Speaks TLS in the place of a reward server, with a certificate for 127.0.0.1 that it has signed itself."""

    def __init__(self, folder: Path, port: int) -> None:
        self.certificate, key = folder / "certificate.pem", folder / "key.pem"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        words += ["-keyout", str(key), "-out", str(self.certificate), "-subj", "/CN=127.0.0.1"]
        words += ["-addext", "subjectAltName=IP:127.0.0.1", "-days", "2"]
        subprocess.run(words, check=True, capture_output=True, timeout=30)
        self.port = port
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(self.certificate, key)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"
        accept(self.listening, self._serve)

    def _serve(self, line: socket.socket) -> None:
        line.settimeout(30)
        try:
            with self.context.wrap_socket(line, server_side=True) as safe:
                while request := _whole(safe):
                    with socket.create_connection(("127.0.0.1", self.port)) as server:
                        server.sendall(request)
                        safe.sendall(_whole(server))
        except OSError:  # it is closed on either side, or the client has refused the certificate
            line.close()


def _whole(line: socket.socket) -> bytes:
    """A message of HTTP with the length that its head tells."""
    text = b""
    while b"\r\n\r\n" not in text:
        part = line.recv(1 << 16)
        if not part:
            return b""
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: (\d+)", head)
    while length is not None and len(body) < int(length[1]):
        body += line.recv(1 << 16)
    return head + b"\r\n\r\n" + body


@pytest.fixture(scope="module")
def tls(server: RewardServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tls]:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    started = Tls(tmp_path_factory.mktemp("tls"), server.port)
    yield started
    started.listening.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("at", "fix", "why"),
    [("server", "http://", "a server without TLS"), ("tls", "SSL_CERT_FILE", "self-signed")],
)
def test_a_wrong_scheme_or_certificate_is_reported_at_once_with_the_fix(
    at: str, fix: str, why: str, server: RewardServer, tls: Tls
) -> None:
    url = f"https://{tls.address if at == 'tls' else server.url.removeprefix('http://')}"
    begun = time.monotonic()
    with scorer(url) as scoring:
        scored = score(scoring)
    assert time.monotonic() - begun < 60, "and not after five minutes"
    assert scored.values == [[None, None]] * 8 and len(scored.failures) == 2
    for failure in scored.failures:
        assert failure.status == "unavailable" and fix in failure.message and url in failure.message, why


def test_a_broken_connection_to_a_port_with_tls_names_the_other_scheme(tls: Tls) -> None:
    with pytest.raises(Unavailable, match="https://"):
        ServerConnection(f"http://{tls.address}", None).ask("/readyz", end=time.monotonic() + 60)


def test_a_certificate_that_is_made_known_is_trusted(
    server: RewardServer, tls: Tls, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.certificate))
    with scorer(f"https://{tls.address}") as safe, scorer(server.url) as plain:
        scored = score(safe)
        assert not scored.failures and scored.values == score(plain).values


@pytest.fixture(scope="module")
def locked() -> Iterator[RewardServer]:
    with RewardServer("--rewards", ",".join(NAMES), env={"GRPO_REWARDS_KEY": "the-key-of-the-server"}) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "state", "why"), [(None, "none is set", "forgotten"), ("another-key-0123456", "another one", "an old one")]
)
def test_a_key_that_is_missing_or_wrong_names_the_variable_to_set(
    key: str | None, state: str, why: str, locked: RewardServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))  # without the key of another server on this machine
    if key is not None:
        monkeypatch.setenv("GRPO_REWARDS_KEY", key)
    begun = time.monotonic()
    with scorer(locked.url) as scoring:
        scored = score(scoring)
    assert time.monotonic() - begun < 60 and scored.values == [[None, None]] * 8 and len(scored.failures) == 2, why
    for failure in scored.failures:
        assert all(part in failure.message for part in ("401", "GRPO_REWARDS_KEY", state)), why
        assert "the-key-of" not in failure.message and "another-key" not in failure.message


@pytest.mark.slow
def test_one_of_two_that_comes_up_with_other_rewards_is_named_for_that(
    server: RewardServer, free_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    late = f"http://127.0.0.1:{free_port}"
    with scorer(f"{server.url},{late}") as scoring:
        assert not score(scoring).failures
        with RewardServer("--rewards", "repetition", port=free_port):
            err, end = "", time.monotonic() + 100
            while "--config" not in err and time.monotonic() < end:
                assert not score(scoring).failures
                err += capsys.readouterr().err
                time.sleep(0.05)
            for _ in range(5):
                assert not score(scoring).failures
            err += capsys.readouterr().err
    (line,) = [line for line in err.splitlines() if "--config" in line]
    assert late in line and any(name in line for name in NAMES) and err.count("\n") <= 2, err
