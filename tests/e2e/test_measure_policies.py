"""tools/measure_policies, with a stand-in for the program that answers at once what it is asked for."""

import collections
import importlib.machinery
import importlib.util
import json
import shutil
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree

import pytest
from conftest import REPOSITORY

# Answers `methods` as the program does, and leaves a line for every row that it measures and every speed.
STAND_IN = """#!{python} -ES
import argparse, json, os, pathlib, subprocess, sys, time
verb = sys.argv[1]
if verb == "methods":
    sys.exit(subprocess.call(["{godwit}", *sys.argv[1:]]))
if verb == "tune":
    sys.exit(pathlib.Path(sys.argv[-1]).write_text("") and 1)
parser = argparse.ArgumentParser()
for name in ("--kv-policy", "--kv-codec", "--kv-budget", "--length"):
    parser.add_argument(name, nargs="+", default=[""])
parser.add_argument("-f"), parser.add_argument("--rows"), parser.add_argument("-d"), parser.add_argument("--only", action="store_true")
args, more = parser.parse_known_args(sys.argv[2:])
row = dict(codec=args.kv_codec[0], policy=args.kv_policy[0].replace("none", ""), budget=args.kv_budget[0])
if verb == "bench":
    with open("bench.log", "a") as log: log.write("timed\\n")
    print(json.dumps([dict(tokens_per_second_to_depth=int(args.d) / 8, samples=[1, 7, 3])]))
elif args.only:
    there = pathlib.Path(args.rows)
    key = repr([row, args.length, more, len(pathlib.Path(args.f).read_text())])
    if not there.exists() or key not in there.read_text().splitlines():
        time.sleep(float(os.environ.get("SLEEP", "0")))
        with there.open("a") as file: file.write(key + "\\n")
    share = dict(asked=24, right=20)
    print(json.dumps([dict(row, length=int(args.length[0]), known=share, late=share, kv_bytes_per_token=5,
                           mean_kl=0.5, mass_lost=0.1)]))
else:
    print("[]")
"""


@pytest.fixture
def root(godwit, tmp_path):
    """A copy of what the tool reads, with the stand-in and one more text."""
    for name in ["tools/measure_policies", "tools/methods_picture.py", "tools/methods_head.md", "assets/demo/book.txt.xz"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(REPOSITORY / name, tmp_path / name)
    for folder in ["build", "docs/images"]:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "one").write_text("one more text")
    program = tmp_path / "stand_in"
    program.write_text(STAND_IN.format(python=sys.executable, godwit=godwit.path))
    program.chmod(0o755)
    return tmp_path


def command(root, *options):
    return [str(root / "tools/measure_policies"), "--godwit", str(root / "stand_in"), *options]


def measured(root):
    rows = root / "build/methods.jsonl"
    return rows.read_text().splitlines() if rows.exists() else []


def test_the_page_holds_every_method_at_both_lengths_and_every_speed(root):
    texts = ["--text", str(root / "one"), "--jobs", "8"]
    # Some rows, and an interruption; then the rest and nothing twice, though texts lie elsewhere each time.
    started = subprocess.Popen(command(root, *texts), env={"SLEEP": "0.3"}, stderr=subprocess.PIPE)
    while len(measured(root)) < 3:
        assert started.poll() is None, started.communicate()[1]
        time.sleep(0.05)
    started.send_signal(signal.SIGTERM)
    assert b"the next run goes on from here" in started.communicate(timeout=60)[1]
    assert started.returncode == 1 and not (root / "docs/methods.md").exists()
    subprocess.run(command(root, *texts), check=True, timeout=300)
    assert len(measured(root)) == len(set(measured(root))) > 200
    subprocess.run(command(root, "--speeds"), check=True, timeout=300)
    timed = (root / "bench.log").read_text().count("timed")
    subprocess.run(command(root, "--speeds"), check=True, timeout=300)
    assert (root / "bench.log").read_text().count("timed") == timed, "speeds are there already"

    page = (root / "docs/methods.md").read_text()
    rows = [line.split(" | ") for line in page.splitlines() if " | 8,192 | " in line or " | 32,768 | " in line]
    assert len(rows) == timed
    shown = xml.etree.ElementTree.parse(root / "docs/images/methods.svg")
    points = [point for point in shown.iter() if point.tag.endswith("circle") and len(point) > 0]  # with a name to hover
    planned = [row for row in rows if "`--" in row[0]]
    assert len(points) == sum(row[2] == "32,768" for row in rows) - sum(row[2] == "32,768" for row in planned)
    assert all(row[-2:] in (["1,024", "7 |"], ["4,096", "7 |"]) for row in rows)
    budgets = collections.defaultdict(set)
    for row in rows:
        budgets[row[0], row[2]].add(row[1])
    names = set(name for name, _ in budgets)
    for policy in ["streaming", "snapkv", "h2o", "cake", "chelsea", "d2o", "infinipot", "kvcrush", "kvmerger", "tova"]:
        for length in ["8,192", "32,768"]:
            assert budgets[f"| `{policy}`", length] == {"50%", "25%", "12.5%"}, (policy, length)
    for word in ["duo", "razor", "mikv", "zipcache", "q8", "q4", "kivi", "gear", "mustafar", "think", "ksort", "million",
                 "xquant", "kvtuner", "trishape", "resa"]:  # fmt: skip
        lengths = {length for name, length in budgets if f"`{word}" in name or f" {word}" in name}
        assert lengths == {"8,192", "32,768"}, (word, names)


def load_tool():
    loader = importlib.machinery.SourceFileLoader("measure_policies", str(REPOSITORY / "tools/measure_policies"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("measure_policies", loader))
    sys.dont_write_bytecode = True
    loader.exec_module(module)
    return module


def test_one_reads_a_text_first_and_only_so_many_run_at_once():
    tool = load_tool()
    rows = [tool.Row(text, length, codec) for text in (0, 1) for length in (10, 20) for codec in "abcde"]
    lock, running, done, read = threading.Lock(), set(), [], set()

    def run(row):
        with lock:
            if row.read() not in read:
                assert row.read() not in {other.read() for other in running}, "both would run full attention"
            running.add(row)
            assert len(running) <= 3
        time.sleep(0.02)
        with lock:
            if row.codec != "a":  # it was measured before, and reads nothing
                read.add(row.read())
            running.discard(row)
            done.append(row)
        return row.codec

    assert tool.run_rows(rows, 3, run, read.__contains__) == {row: row.codec for row in rows}
    assert len(done) == len(rows)
    order = []
    tool.run_rows(rows, 1, order.append, read.__contains__)
    assert [row.length for row in order[:5]] == [20, 20, 10, 10, 10], "what takes longest is read first"
    both = threading.Barrier(2, timeout=60)
    tool.run_rows([rows[0], rows[-1]], 2, lambda row: both.wait(), read.__contains__)

    def fail(row):
        done.remove(row)
        if row.codec != "b":
            raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="16 of 20 rows failed; the first: no"):
        tool.run_rows(rows, 3, fail, read.__contains__)
    assert not done, "each was tried"
