"""How a server starts, who may ask, and how it ends."""

import json
import signal
import socket
import ssl
import subprocess
import threading
import time
import urllib.request

import openai
import pytest

from serving import Server, read_all, until


def begin_stream(server, tokens=400):
    """A stream that is under way, in a thread; its end is put into the list."""
    result = []
    first = threading.Event()

    def work():
        try:
            for chunk in server.openai().chat.completions.create(
                model="built-in", messages=[{"role": "user", "content": "Tell me a story"}], max_tokens=tokens,
                stream=True, extra_body={"ignore_eos": True}
            ):  # fmt: skip
                first.set()
                result.append(chunk.choices[0].finish_reason)
        except (openai.APIError, OSError) as error:
            result.append(error)
        first.set()

    thread = threading.Thread(target=work)
    thread.start()
    assert first.wait(20)
    return thread, result


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_lets_requests_finish(godwit, number):
    with Server(godwit) as server:
        idle = server.connect()
        thread, result = begin_stream(server)
        server.process.send_signal(number)
        assert read_all(idle) == b""  # closed at once
        until(lambda: refused(server), 3)
        thread.join(60)
        assert result[-1] == "length" and len(result) > 100
        assert server.process.wait(10) == 0


def refused(server):
    try:
        socket.create_connection((server.host, server.port), timeout=1).close()
        return False
    except ConnectionRefusedError:
        return True


def test_a_second_signal_aborts(godwit):
    with Server(godwit) as server:
        thread, result = begin_stream(server, 100000)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.process.poll() is None
        start = time.monotonic()
        assert server.stop() == 130
        assert time.monotonic() - start < 5
        thread.join(10)
        assert isinstance(result[-1], Exception)


def test_keys(godwit, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:sk-ann-secret\nbob:sk-bob-secret\n")
    with Server(godwit, "--api-keys", str(keys)) as server:
        assert server.alive() and server.ask("GET", "/version")[0] == 200
        for headers in ({}, {"Authorization": "Bearer sk-ann"}, {"Authorization": "sk-ann-secret"}, {"x-api-key": ""}):
            for method, path in (("GET", "/v1/models"), ("GET", "/metrics"), ("POST", "/v1/completions")):
                status, reply = server.json(method, path, headers=headers)
                assert status == 401 and reply["error"]["code"] == "invalid_api_key"
        # Refused by its head: nothing of the body is waited for.
        reply = server.raw(b"POST /v1/completions HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n", timeout=10)
        assert reply.startswith(b"HTTP/1.1 401 ")
        server.key = "sk-ann-secret"
        prompt = "once upon a time " * 60

        def cached():
            answer = server.openai().completions.create(model="built-in", prompt=prompt, max_tokens=2, temperature=0)
            return answer.usage.prompt_tokens_details.cached_tokens

        assert cached() == 0
        assert cached() > 0
        server.key = "sk-bob-secret"
        assert cached() == 0  # what Ann's prompt left is hers
        same = {"model": "built-in", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
        assert server.anthropic().messages.create(**same).usage.output_tokens == 2
        assert server.logged(principal="ann", count=2) and server.logged(principal="bob", path="/v1/messages")
        assert "secret" not in "".join(server.lines)


def test_tls(godwit, tmp_path):
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
         "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert], check=True, capture_output=True
    )  # fmt: skip
    with Server(godwit, "--tls-cert", str(cert), "--tls-key", str(key), "--request-timeout", "2") as server:
        context = ssl.create_default_context(cafile=str(cert))
        url = f"https://{server.host}:{server.port}"
        with urllib.request.urlopen(f"{url}/health", context=context, timeout=20) as reply:
            assert reply.read() == b'{"status":"ok"}'
        body = json.dumps(server.chat(max_tokens=5, stream=True)).encode()
        request = urllib.request.Request(f"{url}/v1/chat/completions", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=context, timeout=60) as reply:
            assert reply.read().endswith(b"data: [DONE]\n\n")
        assert b"HTTP/1.1 200" not in server.raw(b"GET /health HTTP/1.1\r\nHost: h\r\n\r\n")
        with server.connect() as silent:
            assert read_all(silent) == b""  # a handshake that never comes times out
        # A client that leaves is noticed through TLS too.
        with context.wrap_socket(server.connect(), server_hostname=server.host) as connection:
            body = json.dumps(server.chat(max_tokens=100000, ignore_eos=True)).encode()
            connection.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\n")
            connection.sendall(f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
            time.sleep(0.5)
        assert server.logged(client_gone=True)


def test_config_file(godwit, tmp_path):
    config = tmp_path / "godwit.toml"
    config.write_text('[serve]\nserved-model-name = ["small", "tiny"]\nmax-output-tokens = 7\nctx = 2048\n')
    with Server(godwit, "--config", str(config), "--ctx", "1024") as server:
        listed = server.json("GET", "/v1/models")[1]["data"]
        assert [m["id"] for m in listed] == ["small", "tiny"]
        assert listed[0]["max_model_len"] == 1024  # flags win
        answer = server.json("POST", "/v1/chat/completions", server.chat("Tell me a story", model="tiny", ignore_eos=True))[1]
        assert answer["usage"]["completion_tokens"] == 7 and answer["choices"][0]["finish_reason"] == "length"
    config.write_text("[serve]\nprot = 1\n")
    assert "prot" in godwit.refuses(2, "serve", "--config", str(config))


def test_what_it_refuses_to_start_with(godwit, tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert f"port {port}" in godwit.refuses(1, "serve", "--port", port)
    assert "no IP address" in godwit.refuses(2, "serve", "--host", "localhost.example")
    assert "both" in godwit.refuses(2, "serve", "--tls-cert", "x.pem")
    assert "no certificate" in godwit.refuses(1, "serve", "--tls-cert", "x.pem", "--tls-key", "y.pem", "--port", "0")
    assert "nokeys" in godwit.refuses(1, "serve", "--api-keys", "nokeys")
    empty = tmp_path / "empty"
    empty.write_text("\n")
    assert "NAME:KEY" in godwit.refuses(1, "serve", "--api-keys", str(empty))
    assert "repair=0" in godwit.refuses(1, "serve", "--port", "0", "--decode", "resa")
    assert "at once" in godwit.refuses(2, "serve", "--port", "0", "--max-running", "0")


def test_priorities_where_they_are_allowed(godwit):
    with Server(godwit, "--client-priorities") as server:
        assert server.json("POST", "/v1/chat/completions", server.chat(max_tokens=1, priority=-5))[0] == 200
        status, body = server.json("POST", "/v1/chat/completions", server.chat(max_tokens=1, priority=10**9))
        assert status == 400 and body["error"]["param"] == "priority"
