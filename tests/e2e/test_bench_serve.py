"""godwit bench serve against the real server, and against servers that mean no good."""

import contextlib
import json
import signal
import socket
import threading
import time

import pytest

from serving import Server, rss_bytes

QUICK = ("--prompt", "uniform:20,60", "--output", "uniform:2,8")


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit) as running:
        yield running


def url(server):
    return f"http://{server.host}:{server.port}"


def test_closed_loop(server, godwit, tmp_path):
    page = tmp_path / "page.html"
    before = server.metric("generation_tokens_total")
    found = godwit.json("bench", "serve", url(server), "--users", "8", "-n", "40", *QUICK, "--html", str(page))
    assert found["requests"] == found["answered"] == 40 and found["failed"] == 0 and found["errors"] == []
    assert found["model"] == "built-in" and found["tokens_counted_by"] == "usage"
    # Two requests of one token find out how long words are.
    assert server.metric("generation_tokens_total") - before == found["output_tokens"] + 2
    assert 2 * 40 <= found["output_tokens"] <= 8 * 40
    assert found["prompt_tokens"] / 40 == pytest.approx(40, rel=0.2)
    for name in ("ttft_seconds", "end_to_end_seconds", "inter_token_seconds"):
        p = found[name]
        assert 0 <= p["p50"] <= p["p90"] <= p["p99"] <= p["max"]
    assert found["ttft_seconds"]["count"] == 40
    assert found["ttft_seconds"]["p50"] < found["end_to_end_seconds"]["p50"]
    assert found["output_tokens_per_second"] == pytest.approx(found["output_tokens"] / found["seconds"])
    assert found["generator"]["connections"] <= 9  # kept
    assert found["generator"]["loop_lag_seconds"]["count"] > 0
    html = page.read_text()
    assert html.count("<svg") == 6 and "http" not in html.replace(url(server), "")


def test_poisson_arrivals_and_goodput(server, godwit):
    arguments = ("--rate", "20", "--duration", "3", "--prompt", "16", "--output", "3", "--api", "completions")
    found = godwit.json("bench", "serve", url(server), *arguments, "--ttft-target", "100000", "--itl-target", "0.001")
    assert 30 <= found["requests"] <= 95 and found["failed"] == 0  # 60 ± 4 deviations
    assert found["output_tokens"] == 3 * found["answered"]
    assert found["goodput"]["requests"] < found["requests"]
    loose = godwit.json("bench", "serve", url(server), *arguments, "--ttft-target", "100000")
    assert loose["requests"] == found["requests"]  # of the same seed
    assert loose["goodput"]["share"] == 1


def test_shared_prefixes_are_found_in_the_cache(server, godwit):
    shared = ("--users", "1", "-n", "6", "--prompt", "16", "--output", "2", "--prefixes", "1", "--prefix-tokens", "600")
    found = godwit.json("bench", "serve", url(server), *shared, "--seed", "5")
    assert found["ttft_cold_seconds"]["count"] == 1 and found["ttft_cached_seconds"]["count"] == 5
    assert found["ttft_cached_seconds"]["p50"] < found["ttft_cold_seconds"]["p50"]
    alone = godwit.json("bench", "serve", url(server), "--users", "1", "-n", "6", "--prompt", "616", "--output", "2")
    assert alone["ttft_cached_seconds"]["count"] == 0


def test_trace(server, godwit, tmp_path):
    trace = tmp_path / "trace.jsonl"
    rows = [{"arrival": i * 0.1, "prompt_tokens": 30 + i, "output_tokens": 2 + i % 3} for i in range(12)]
    rows[3] |= {"prefix": "a", "prefix_tokens": 20}
    trace.write_text("\n".join(map(json.dumps, rows)))
    found = godwit.json("bench", "serve", url(server), "--trace", str(trace))
    assert found["answered"] == 12 and found["seconds"] >= 1.1
    assert found["output_tokens"] == sum(row["output_tokens"] for row in rows)
    trace.write_text('{"arrival": 0}')
    assert "line 1" in godwit.refuses(1, "bench", "serve", url(server), "--trace", str(trace))


def test_self(godwit):
    text = godwit("bench", "serve", "--self", "--users", "2", "-n", "4", *QUICK)
    assert "4 of 4 requests answered" in text and "| time to first token |" in text and "in this process" in text


def test_keys(godwit, tmp_path):
    keys, key = tmp_path / "keys", tmp_path / "key"
    keys.write_text("me:sesame\n")
    key.write_text("sesame\n")
    with Server(godwit, "--api-keys", str(keys)) as locked:
        arguments = ("bench", "serve", url(locked), "--users", "1", "-n", "1", *QUICK)
        assert "401" in godwit.refuses(1, *arguments)
        assert godwit.json(*arguments, "--api-key-file", str(key))["answered"] == 1
        godwit.env["THE_KEY"] = "sesame"
        assert godwit.json(*arguments, "--api-key-env", "THE_KEY")["answered"] == 1
        assert "NO_KEY" in godwit.refuses(2, *arguments, "--api-key-env", "NO_KEY")
        godwit.env["THE_KEY"] = "a\r\nX: b"
        assert "header" in godwit.refuses(2, *arguments, "--api-key-env", "THE_KEY")


def test_refusals_are_counted_by_kind(godwit):
    with Server(godwit, "--max-running", "1", "--max-waiting", "1") as small:
        found = godwit.json("bench", "serve", url(small), "--rate", "200", "-n", "40", "--prompt", "64", "--output", "40")
    assert found["answered"] + found["failed"] == 40
    assert [e["kind"] for e in found["errors"]] == ["http 429"] and found["errors"][0]["count"] == found["failed"] > 0
    assert found["errors"][0]["example"]


@pytest.mark.parametrize(
    "arguments, word",
    [
        ((), "--self"),
        (("http://127.0.0.1:1", "--self"), "--self"),
        (("http://127.0.0.1:1",), "--rate"),
        (("http://127.0.0.1:1", "--rate", "1", "--users", "2"), "--rate"),
        (("http://127.0.0.1:1", "--users", "2"), "--duration"),
        (("https://127.0.0.1:1", "--users", "2", "-n", "1"), "plain HTTP"),
        (("ftp://x", "--users", "2", "-n", "1"), "http://"),
        (("http://127.0.0.1:1", "--users", "2", "-n", "1", "--prompt", "uniform:3"), "uniform:3"),
        (("http://127.0.0.1:1", "--users", "2", "-n", "1", "--prefixes", "3"), "--prefix-tokens"),
        (("http://127.0.0.1:1", "--users", "2", "-n", "1", "--max-running", "3"), "--max-running is for --self"),
        (("http://127.0.0.1:1", "--users", "2", "-n", "1", "-m", "model.gguf"), "--model is for --self"),
        (("http://127.0.0.1:1", "--rate", "nan", "-n", "1"), "--rate: nan is no number from"),
        (("http://127.0.0.1:1", "--rate", "1e999", "-n", "1"), "--rate: 1e999 is no number from"),
        (("http://127.0.0.1:1", "--rate", "4x", "-n", "1"), "--rate: 4x is no number from"),
        (("http://127.0.0.1:1", "--rate", "1", "--duration", "-nan"), "--duration: -nan is no number from"),
        (("http://127.0.0.1:1", "--rate", "1", "-n", "1", "--ttft-target", "nan"), "--ttft-target: nan"),
        (("http://127.0.0.1:1", "--rate", "1", "-n", "1", "--timeout", "nan"), "--timeout: nan"),
        (("http://127.0.0.1:1", "--rate", "1", "-n", "1", "--tokens-per-word", "nan"), "--tokens-per-word: nan"),
    ],
)
def test_wrong_usage(godwit, arguments, word):
    assert word in godwit.refuses(2, "bench", "serve", *arguments)


def test_nobody_there(godwit):
    message = godwit.refuses(1, "bench", "serve", "http://127.0.0.1:1", "--users", "1", "-n", "1")
    assert "connect" in message and "URL" in message


def test_ctrl_c(server, godwit, tmp_path):
    page = tmp_path / "load.html"
    arguments = ("--users", "2", "--duration", "100", "--json", "--html", str(page), *QUICK)
    process = godwit.start("bench", "serve", url(server), *arguments)
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and b"stopped before its end" in err
    report = json.loads(out)
    assert report["answered"] == report["requests"] > 0 and 0 <= report["stopped"]["open_requests"] <= 2
    assert 0 < report["seconds"] < 90 and report["ttft_seconds"]["count"] == report["answered"]
    assert "stopped before its end" in page.read_text()


def test_ctrl_c_before_the_first_answer(server, godwit):
    arguments = ("--users", "1", "-n", "1", "--tokens-per-word", "1", "--output", "4000")
    process = godwit.start("bench", "serve", url(server), *arguments)
    time.sleep(1)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == b"" and b"with 1 open" in err


def test_progress_with_time_left(server, godwit):
    terminal = godwit.terminal("bench", "serve", url(server), "--users", "2", "--duration", "60", *QUICK)
    terminal.expect(r"load \[[#.]+\].*answered.*left")
    terminal.sendintr()
    terminal.expect("stopped before")
    terminal.wait()


class Hostile:
    """Answers every request with the same bytes; `more` is sent again and again after them."""

    def __init__(self, reply, more=b"", close=True):
        self.reply, self.more, self.close = reply, more, close
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        with contextlib.suppress(OSError), connection:
            connection.recv(1 << 20)
            connection.sendall(self.reply)
            while self.more:
                connection.sendall(self.more)
            if not self.close:
                connection.recv(1)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.listener.close()


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n"
TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'


@pytest.mark.parametrize(
    "name, reply, more, close, kind",
    [
        ("garbage", b"\x00\xff nonsense\r\n\r\n", b"", True, "protocol"),
        ("nothing", b"", b"", True, "closed"),
        ("silence", b"", b"", False, "timeout"),
        ("half a head", b"HTTP/1.1 200", b"", False, "timeout"),
        ("headers without end", b"HTTP/1.1 200 OK\r\n", b"A: " + b"b" * 1000 + b"\r\n", True, "too long"),
        ("stream cut off", HEAD + TOKEN, b"", True, "protocol"),
        ("body cut off", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + TOKEN, b"", True, "closed"),
        ("event without end", HEAD + b"data: ", b"x" * 65536, True, "too long"),
        ("comments without end", HEAD, b": stay\n\n" * 9000, True, "too long"),
        ("tokens without end", HEAD, TOKEN, True, "too long"),
        ("no JSON", HEAD + b"data: {{{\n\n", b"", True, "protocol"),
        ("deep JSON", HEAD + b"data: " + b"[" * 100000 + b"\n\n", b"", True, "too long"),
        ("failure in the stream", HEAD + TOKEN + b'data: {"error": {"message": "on fire"}}\n\n', b"", True, "server"),
        ("no token", HEAD + b"data: [DONE]\n\n", b"", True, "empty"),
        ("redirect", b"HTTP/1.1 307 X\r\nLocation: http://x/\r\nContent-Length: 0\r\n\r\n", b"", True, "http 307"),
        ("huge chunk", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"", False, None),
    ],
)
def test_hostile_servers(godwit, name, reply, more, close, kind):
    with Hostile(reply, more, close) as hostile:
        process = godwit.start(
            *("bench", "serve", f"http://127.0.0.1:{hostile.port}", "--users", "2", "-n", "4"),
            *("--timeout", "30" if kind not in ("timeout", None) else "2"),  # a busy machine is no silent server
            *("--model-name", "m", "--tokens-per-word", "1", "--prompt", "8", "--output", "4"),
        )
        most, end = 0, time.monotonic() + 60
        while process.poll() is None and time.monotonic() < end:
            with contextlib.suppress(OSError, StopIteration):
                most = max(most, rss_bytes(process))
            time.sleep(0.05)
        out, err = process.communicate(timeout=5)
    assert process.returncode == 1 and out == b"", (name, err)
    message = err.decode()
    assert message.startswith("godwit: none of 4 requests was answered") and message.count("\n") == 1
    if kind:
        assert f"failed by {kind}: " in message, message
    assert most < 200 << 20


def test_answers_beside_failures_are_reported(godwit):
    good = HEAD + TOKEN * 4 + b'data: {"choices":[{"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
    with Hostile(good) as server:
        arguments = ("--users", "1", "-n", "3", "--model-name", "m", "--tokens-per-word", "1", "--prompt", "8", "--output", "4")
        found = godwit.json("bench", "serve", f"http://127.0.0.1:{server.port}", *arguments)
        assert found["answered"] == 3 and found["tokens_counted_by"] == "events" and found["output_tokens"] == 12
        assert found["generator"]["connections"] == 3  # this one closes them
        # Without usage nobody knows how long a prompt is.
        message = godwit.refuses(1, "bench", "serve", f"http://127.0.0.1:{server.port}", "--users", "1", "-n", "1", "--model-name", "m")
        assert "answer" in message
