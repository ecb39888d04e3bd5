"""What the end-to-end tests share: the program, a book with a planted fact, and the tiny models.

python -m pytest -q tests/e2e --godwit build/release/apps/godwit/godwit
"""

import json
import lzma
import os
import subprocess
from pathlib import Path

import pexpect
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
MODELS = REPOSITORY / "tests/data/models"
BUILTIN = REPOSITORY / "assets/builtin.gguf"
TIMEOUT_S = 120


class Godwit:
    """The program, run as a user runs it: nothing of this machine's settings or history reaches it."""

    def __init__(self, path, home):
        self.path = str(path)
        self.env = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "XDG_STATE_HOME": str(home / "state"),
            "LANG": "C.UTF-8",
            "TERM": "xterm",
        }

    def process(self, *args, stdin=b"", **more):
        """One finished run; stdin is bytes, and the output is bytes."""
        return subprocess.run(
            [self.path, *args], input=stdin, capture_output=True, env=self.env, timeout=TIMEOUT_S, **more
        )

    def __call__(self, *args, stdin=b""):
        """stdout of a run that must succeed and say nothing on stderr."""
        done = self.process(*args, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        assert done.stderr == b""
        return done.stdout.decode()

    def json(self, *args, stdin=b""):
        return json.loads(self(*args, "--json", stdin=stdin))

    def tokens(self, text):
        """Token ids of a text, BOS included."""
        return self.json("tokenize", "-f", "-", stdin=text.encode() if isinstance(text, str) else text)["tokens"]

    def refuses(self, code, *args, stdin=b"", **more):
        """The message of a run that must fail with this exit code, nothing on stdout, and one line on stderr."""
        done = self.process(*args, stdin=stdin, **more)
        message = done.stderr.decode(errors="replace")
        assert done.returncode == code, f"exit code {done.returncode}: {done.stdout[:200]!r} {message}"
        assert done.stdout == b""
        assert message.startswith("godwit: ") and message.endswith("\n") and message.count("\n") == 1, message
        return message.removeprefix("godwit: ").rstrip("\n")

    def start(self, *args, **more):
        """A run in the background, with pipes."""
        return subprocess.Popen(
            [self.path, *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.env,
            **more,
        )

    def terminal(self, *args, command=None):
        """A run on a terminal of its own; command is a shell line in which "$0" is the program."""
        argv = [self.path, *args] if command is None else ["/bin/sh", "-c", command, self.path, *args]
        return pexpect.spawn(argv[0], argv[1:], env=self.env, encoding="utf-8", timeout=60, dimensions=(40, 200))


def words(value):
    """The name of a parametrised case that is a list of arguments."""
    return " ".join(value) if isinstance(value, list) else None


def pytest_addoption(parser):
    parser.addoption(
        "--godwit", default=str(REPOSITORY / "build/release/apps/godwit/godwit"), help="the program to test"
    )


def program(request, folder):
    path = Path(request.config.getoption("--godwit")).resolve()
    assert path.is_file(), f"{path} is not there; build it or give --godwit"
    home = folder / "home"
    home.mkdir()
    return Godwit(path, home)


@pytest.fixture
def godwit(request, tmp_path):
    return program(request, tmp_path)


@pytest.fixture(scope="module")
def module_godwit(request, tmp_path_factory):
    """For what a whole file of tests shares."""
    return program(request, tmp_path_factory.mktemp("module"))


@pytest.fixture(scope="session")
def book():
    """The demo's book, 33,000 tokens."""
    return lzma.open(REPOSITORY / "assets/demo/book.txt.xz", "rt", encoding="utf-8", newline="").read()


@pytest.fixture
def recall_of(godwit, book, tmp_path):
    """What is found again of facts planted in 2,048 tokens of the book: recall_of(kinds, facts)(question, *method)."""
    path = tmp_path / "book.txt"
    path.write_text(book[:24000], encoding="utf-8")

    def among(kinds, facts):
        where = ("-f", str(path), "--length", "2048", "--samples", "1", "--kind", kinds, "--facts", str(facts))
        return lambda question, *method: godwit.json("eval", "recall", *where, "--question", question, *method)[-1]

    return among


@pytest.fixture
def page(book, tmp_path):
    """A file with the first 1,500 characters of the book, about 400 tokens."""
    path = tmp_path / "page.txt"
    path.write_text(book[:1500], encoding="utf-8")
    return path


class Needle:
    """A slice of the book with a fact in its middle that the book does not have."""

    question = "What is the special magic number for amber-falcon?"
    answer = "4837261"

    def __init__(self, book, characters, path):
        middle = book.index(". ", characters // 2) + 1
        assert self.answer not in book
        fact = f" The special magic number for amber-falcon is {self.answer}."
        path.write_text(book[:middle] + fact + book[middle:characters], encoding="utf-8")
        self.path = path


@pytest.fixture
def needle(book, tmp_path):
    """About 1,100 tokens."""
    return Needle(book, 4000, tmp_path / "needle.txt")


@pytest.fixture
def long_needle(book, tmp_path):
    """About 4,200 tokens."""
    return Needle(book, 16500, tmp_path / "long_needle.txt")
