"""A running `godwit serve`, and raw connections to it."""

import contextlib
import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time

import anthropic
import openai


class Server:
    """The program under test with its log collected; leaves no process behind."""

    def __init__(self, godwit, *args):
        self.key = "no-key"
        self.process = godwit.start("serve", "--port", "0", *args)
        self.lines = []
        self.started = threading.Event()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        assert self.started.wait(60), self.lines
        match = next(filter(None, (re.search(r"https?://([\d.]+):(\d+) ", line) for line in self.lines)), None)
        assert match, self.lines
        self.host, self.port = match[1], int(match[2])

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line.decode(errors="replace"))
            self.started.set()
        self.started.set()

    @property
    def requests(self):
        """The log, one dict per request that is over."""
        return [json.loads(line) for line in self.lines if line.startswith("{")]

    def logged(self, count=1, seconds=10, **wanted):
        """Waits until the log has that many requests with these values."""

        def found():
            return [r for r in self.requests if all(r.get(k) == v for k, v in wanted.items())]

        until(lambda: len(found()) >= count, seconds)
        return found()

    def openai(self, **more):
        return openai.OpenAI(
            base_url=f"http://{self.host}:{self.port}/v1", api_key=self.key, max_retries=0, timeout=100, **more
        )

    def anthropic(self, **more):
        return anthropic.Anthropic(
            base_url=f"http://{self.host}:{self.port}", api_key=self.key, max_retries=0, timeout=100, **more
        )

    def ask(self, method, path, body=None, headers=None, timeout=60):
        """Status, headers and body of one request; body is JSON or bytes."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        with contextlib.closing(connection):
            headers = dict(headers or {})
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            if body is not None:
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, dict(response.headers), response.read()

    def json(self, method, path, body=None, **more):
        status, _, text = self.ask(method, path, body, **more)
        return status, json.loads(text)

    def metric(self, name, **labels):
        """One number of /metrics."""
        for line in self.ask("GET", "/metrics")[2].decode().splitlines():
            if line.startswith(f"godwit:{name}{{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
                return float(line.rsplit(" ", 1)[1])
        return None

    def connect(self, timeout=20):
        return socket.create_connection((self.host, self.port), timeout=timeout)

    def raw(self, data, timeout=20):
        """What comes back for these bytes until the server closes."""
        with self.connect(timeout) as connection:
            connection.sendall(data)
            return read_all(connection)

    def chat(self, text="Hello, who are you?", **more):
        return {"messages": [{"role": "user", "content": text}], "temperature": 0, **more}

    def alive(self):
        return self.ask("GET", "/health", timeout=10)[0] == 200

    def stop(self, number=signal.SIGTERM, timeout=30):
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(timeout)
        self.reader.join(10)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(10)
        self.process.stdout.close()
        self.process.stderr.close()


def until(done, seconds=10):
    """Waits for a condition."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.02)


def read_all(connection):
    data = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65536):
            data += part
    return data


def rss_bytes(process):
    with open(f"/proc/{process.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def open_files(process):
    return int(subprocess.check_output(["sh", "-c", f"ls /proc/{process.pid}/fd | wc -l"]))
