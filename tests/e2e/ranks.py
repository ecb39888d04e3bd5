"""The program under mpirun, and a text to give it."""

import re
import subprocess
import time
from pathlib import Path

TIMEOUT_S = 300


class Job:
    """The program under mpirun. Ranks may be more than cores, and the tests may run as root."""

    def __init__(self, godwit, *mpirun):
        self.godwit = godwit
        self.mpirun = mpirun
        self.env = {**godwit.env, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def command(self, ranks, *args):
        if args[0] in ("run", "chat", "serve", "eval") and "--ranks" not in args:
            args = (*args, "--ranks", str(ranks))  # or short prompts would be one rank's
        mpirun = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *self.mpirun]
        return [*mpirun, self.godwit.path, *args]

    def process(self, ranks, *args, stdin=b""):
        return subprocess.run(
            self.command(ranks, *args), input=stdin, capture_output=True, env=self.env, timeout=TIMEOUT_S
        )

    def __call__(self, ranks, *args, stdin=b""):
        done = self.process(ranks, *args, stdin=stdin)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        return done.stdout.decode()

    def start(self, ranks, *args, separate=False):
        return subprocess.Popen(
            self.command(ranks, *args),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if separate else subprocess.STDOUT,
            env=self.env,
        )


def story(sentences):
    """A text in which nothing repeats soon."""
    people = ["Mara", "the old keeper", "a boy from the harbour", "Ines", "nobody", "the captain's sister"]
    deeds = ["carried", "hid", "painted", "sold", "forgot", "measured", "found"]
    things = ["the lamp", "a map of the reef", "seven letters", "the brass key", "a jar of salt"]
    return " ".join(
        f"On day {i}, {people[i * 7 % 6]} {deeds[i * 11 % 7]} {things[i * 13 % 5]} near pier {i * i % 97}."
        for i in range(sentences)
    )


def processes(process, count):
    """Processes that mpirun started, in the order of ranks."""
    by_rank = {}
    deadline = time.monotonic() + 60
    while len(by_rank) < count and time.monotonic() < deadline:
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            rank = re.search(rb"OMPI_COMM_WORLD_RANK=(\d+)", environment)
            if parent == process.pid and rank:
                by_rank[int(rank[1])] = int(entry.name)
        time.sleep(0.05)
    return [by_rank[rank] for rank in sorted(by_rank)]


def is_alive(pid):
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2]
    except OSError:
        return False


def expect_dead(pids):
    deadline = time.monotonic() + 20  # to die takes time where the cores are busy
    while any(is_alive(pid) for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(is_alive(pid) for pid in pids)
