"""godwit bench: what it prints, what it refuses, and tools/compare around it."""

import json
import os
import signal
import statistics
import subprocess
import time

import pytest

from conftest import MODELS, REPOSITORY, TIMEOUT_S, words

TINY = ("-m", str(MODELS / "qwen3.gguf"))
QUICK = (*TINY, "-p", "16", "-n", "4", "-r", "2", "-t", "1")


def test_a_table_by_default(godwit):
    *lines, empty, backend = godwit("bench", *QUICK, "-d", "0,32").splitlines()
    assert empty == "" and backend.startswith("CPU, ") and "1 thread" in backend
    assert lines[0].startswith("| model |") and set(lines[1]) <= set("|-:")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    assert [row[-2] for row in rows] == ["pp16", "tg4", "pp16@d32", "tg4@d32"]
    for row in rows:
        assert row[0] == "qwen3.gguf" and len(row) == lines[0].count("|") - 1
        mean, deviation = (float(number) for number in row[-1].split(" ± "))
        assert mean > 0 and deviation >= 0


def test_json_has_the_figures_and_the_settings(godwit):
    rows = godwit.json(
        "bench", *TINY, "-p", "16", "-n", "4", "-d", "32", "-b", "8", "-r", "3", "-t", "1", "--kv-codec", "bf16"
    )
    assert [row["test"] for row in rows] == ["pp16@d32", "tg4@d32"]
    facts = godwit.json("inspect", TINY[1])
    for row in rows:
        assert len(row["samples"]) == row["repetitions"] == 3
        assert row["tokens_per_second"] == pytest.approx(statistics.mean(row["samples"]))
        assert row["deviation"] == pytest.approx(statistics.stdev(row["samples"]))
        assert row["model"] == TINY[1] and row["type"] == "bf16" and row["family"] == "qwen3"
        assert row["parameters"] == facts["parameters"] and row["size_bytes"] == facts["weight_bytes"]
        assert row["threads"] == 1 and row["chunk"] == 8 and row["kv_codec"] == "bf16" and row["depth"] == 32
        assert row["simd"] == godwit.json("methods")["simd"][0]
        assert godwit("--version").strip() == f"godwit {row['version']}"


def test_lists_make_every_combination(godwit):
    rows = godwit.json("bench", *TINY, "-p", "8,16", "-n", "2,3", "-d", "5,0,5", "-r", "1", "-t", "1,2")
    tests = [f"{test}{depth}" for depth in ("", "@d5") for test in ("pp8", "pp16", "tg2", "tg3")]
    most = len(os.sched_getaffinity(0))  # an engine takes no more threads
    assert [(row["threads"], row["test"]) for row in rows] == [(min(t, most), test) for t in (1, 2) for test in tests]
    assert all(row["deviation"] == 0 and len(row["samples"]) == 1 for row in rows)
    reached = [row["test"] for row in rows if row["tokens_per_second_to_depth"] > 0]
    assert reached == ["pp8@d5"] * 2, "the first that is so deep reads what is before it"


def test_zero_leaves_one_kind_of_test_out(godwit):
    assert [row["test"] for row in godwit.json("bench", *TINY, "-p", "0", "-n", "4")] == ["tg4"]
    assert [row["test"] for row in godwit.json("bench", *TINY, "-p", "16", "-n", "0")] == ["pp16"]


def test_a_hugging_face_folder_and_the_built_in_model(godwit):
    rows = godwit.json("bench", "-m", str(MODELS / "mixtral"), "-p", "8", "-n", "2", "-r", "1")
    assert rows[0]["family"] == "mixtral" and rows[0]["threads"] >= 1
    rows = godwit.json("bench", "-p", "8", "-n", "2", "-r", "1")
    assert rows[0]["model"] == "built-in" and rows[0]["type"] == "q8_0"


def test_a_codec_whose_layers_differ(godwit):
    bits = "kvtuner:bits=88-84-44-42-22-22-42-44-84-88"
    rows = godwit.json("bench", "-p", "200", "-n", "2", "-r", "1", "--kv-codec", bits)
    assert rows[0]["kv_codec"] == bits and rows[0]["tokens_per_second"] > 0


def test_the_whole_context_can_be_used(godwit):
    """The last token that is sampled is never computed, yet has its place in the context."""
    length = godwit.json("inspect", TINY[1])["context_length"]
    assert godwit.json("bench", *TINY, "-p", str(length), "-n", "0", "-r", "1", "-t", "2")
    assert godwit.json("bench", *TINY, "-p", "0", "-n", "4", "-d", str(length - 5), "-r", "1", "-t", "2")
    for arguments in (["-p", str(length + 1)], ["-d", str(length - 4), "-n", "4", "-p", "0"]):
        message = godwit.refuses(2, "bench", *TINY, *arguments)
        assert str(length) in message and "lower -d" in message


def test_roofline(godwit):
    rows = godwit.json("bench", *QUICK, "-d", "64", "--roofline")
    for row in rows:
        limits = row["roofline"]
        parts = {part["operation"]: part for part in limits["operations"]}
        assert limits["int8_ops_per_second"] >= 0
        assert set(parts) == {"matrix products", "attention", "the rest", "whole"}
        assert sum(part["time_share"] for part in parts.values()) == pytest.approx(2)
        for part in parts.values():
            assert part["fma_share"] == pytest.approx(part["flops_per_second"] / limits["fma_flops_per_second"])
            assert part["read_share"] == pytest.approx(part["bytes_per_second"] / limits["read_bytes_per_second"])
            assert 0 < part["time_share"] <= 1 and (part["fma_share"] > 0) == (part["operation"] != "the rest")
    text = godwit("bench", *QUICK, "--roofline")
    assert "Limits with 1 thread:" in text and "Counted:" in text and "| tg4 | attention |" in text
    assert "roofline" not in godwit.json("bench", *QUICK)[0]


@pytest.mark.parametrize(
    "arguments, word",
    [
        (["-p", "0", "-n", "0"], "nothing to measure"),
        (["-p", "-5"], "-5"),
        (["-n", "-1"], "-1"),
        (["-d", "-1"], "-1"),
        (["-r", "0"], "-r 0"),
        (["-r", "1000000"], "1 to 10000"),
        (["-b", "0"], "chunk of 0"),
        (["-t", "-2"], "-2"),
        (["-t", "5000"], "1 to 1024"),
        (["-p", "many"], "many"),
        (["-d", "99999999"], "2048"),
        (["--kv-codec", "q9"], "f16"),
        (["--simd", "MMX"], "reference"),
        (["--kv-memory", "lots"], "lots"),
    ],
    ids=words,
)
def test_nonsense_is_refused(godwit, arguments, word):
    assert word in godwit.refuses(2, "bench", *TINY, *arguments)


def test_what_does_not_fit_is_refused(godwit):
    assert "budget" in godwit.refuses(1, "bench", *TINY, "-p", "512", "--kv-memory", "64KiB")
    assert "nowhere" in godwit.refuses(1, "bench", "-m", "nowhere.gguf")


def test_ctrl_c_ends_it(godwit):
    process = godwit.start("bench", "-p", "64", "-n", "64", "-r", "10000")
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130 and err.startswith(b"godwit: ") and b"tg64" not in out


def test_progress_on_a_terminal_only(godwit):
    terminal = godwit.terminal("bench", "-p", "256", "-n", "0", "-r", "10000")
    terminal.expect(r"pp256 \[[#.]+\]")
    terminal.sendintr()
    terminal.expect("stopped after")
    terminal.wait()
    assert terminal.exitstatus == 130
    assert godwit.process("bench", *QUICK).stderr == b""


FAKE = """#!/usr/bin/env python3
import json, sys
arguments = sys.argv[1:]
value = lambda flag: arguments[arguments.index(flag) + 1]
assert value("-o") == "json" and value("-m") == {model!r}
print("noise of the loader", file=sys.stderr)
rows = []
for depth in value("-d").split(","):
    for prompt in value("-p").split(","):
        if prompt != "0": rows.append(dict(n_prompt=int(prompt), n_gen=0, n_depth=int(depth), avg_ts=10.0, stddev_ts=1.0))
    for generated in value("-n").split(","):
        if generated != "0": rows.append(dict(n_prompt=0, n_gen=int(generated), n_depth=int(depth), avg_ts=5.0, stddev_ts=0.5))
print(json.dumps(rows))
"""


class Compare:
    def __init__(self, godwit, folder):
        self.godwit, self.folder = godwit, folder
        self.fake = folder / "fake-bench"
        self.write(FAKE.format(model=TINY[1]))

    def write(self, text):
        self.fake.write_text(text)
        os.chmod(self.fake, 0o755)

    def __call__(self, *arguments):
        return subprocess.run(
            [str(REPOSITORY / "tools/compare"), "--godwit", self.godwit.path, *arguments],
            capture_output=True,
            text=True,
            env=self.godwit.env,
            timeout=TIMEOUT_S,
        )


@pytest.fixture
def compare(godwit, tmp_path):
    return Compare(godwit, tmp_path)


SIZES = ("-p", "16", "-n", "4", "-d", "0,32", "-r", "1", "-t", "1")


def test_compare_prints_ratios(compare):
    done = compare("--llama-bench", str(compare.fake), *TINY, *SIZES, "--rounds", "2")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("|")]
    rows = {cells[1].strip(): cells for cells in (line.split("|") for line in lines[2:])}
    assert list(rows) == ["pp16", "tg4", "pp16@d32", "tg4@d32"]
    for name, cells in rows.items():
        theirs, ours, ratio = (cells[i].split("(")[0].strip() for i in (2, 3, 4))
        assert float(theirs) == (10 if name.startswith("pp") else 5)
        assert float(ratio.rstrip("×")) == pytest.approx(float(ours) / float(theirs), rel=0.02)


def test_compare_as_json(compare):
    done = compare("--llama-bench", str(compare.fake), *TINY, *SIZES, "--rounds", "3", "--json")
    rows = json.loads(done.stdout)
    for row in rows:
        assert len(row["ratios"]) == len(row["godwit"]) == len(row["llama_bench"]) == 3
        assert row["ratio"] == pytest.approx(statistics.median(row["ratios"]))


def test_compare_takes_the_best_of_several(compare):
    slow = compare.folder / "slow-bench"
    # With -fa 1 this one is the quicker at generation, and slower at prompts.
    slow.write_text(compare.fake.read_text().replace("10.0", "4.0").replace("5.0", '9.0 if "-fa" in arguments else 3.0'))
    os.chmod(slow, 0o755)
    both = ("--llama-bench", str(compare.fake), "--llama-bench", str(slow))
    done = compare(*both, "--llama-args=", "--llama-args=-fa 1", *TINY, *SIZES, "--rounds", "1", "--json")
    for row in json.loads(done.stdout):
        assert len(row["all"]) == 4
        prompt = row["test"].startswith("pp")
        assert row["llama_bench"] == [10.0 if prompt else 9.0]
        assert row["best"].startswith(str(compare.fake)) if prompt else row["best"] == f"{slow} -fa 1"
    done = compare(*both, *TINY, *SIZES, "--rounds", "1")
    assert "best of theirs" in done.stdout and str(slow) not in done.stdout


def test_compare_passes_extra_arguments_to_either_side(compare):
    compare.write(FAKE.format(model=TINY[1]).replace("rows = []", 'rows = []; assert value("-fa") == "1"'))
    arguments = ("--llama-bench", str(compare.fake), *TINY, *SIZES, "--rounds", "1")
    assert compare(*arguments).returncode == 1
    assert compare(*arguments, "--llama-args=-fa 1", "--godwit-args=--kv-codec bf16").returncode == 0
    assert "q9" in compare(*arguments, "--llama-args=-fa 1", "--godwit-args=--kv-codec q9").stderr


@pytest.mark.parametrize(
    "text, word",
    [
        ("#!/bin/sh\necho out of memory >&2; exit 3\n", "out of memory"),
        ("#!/bin/sh\necho not json\n", "JSON"),
        ("#!/bin/sh\necho '[]'\n", "pp16"),
        ('#!/bin/sh\necho \'[{"n_prompt": 16, "n_gen": 0, "n_depth": 0}]\'\n', "tokens per second"),
    ],
)
def test_compare_says_what_went_wrong(compare, text, word):
    compare.write(text)
    done = compare("--llama-bench", str(compare.fake), *TINY, *SIZES, "--rounds", "1")
    assert done.returncode == 1 and done.stdout == "" and word in done.stderr
    assert done.stderr.startswith("compare: ") and "Traceback" not in done.stderr


def test_compare_without_a_binary(compare):
    done = compare("--llama-bench", str(compare.folder / "nowhere"), *TINY, *SIZES)
    assert done.returncode == 1 and "nowhere" in done.stderr
    assert compare(*TINY).returncode == 2
