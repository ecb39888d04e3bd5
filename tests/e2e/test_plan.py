"""godwit plan: predictions, what they are printed as, and what is refused."""

import json
import re
import subprocess

import pytest

from conftest import MODELS, REPOSITORY, TIMEOUT_S, words

LARGE = ("-m", "llama-3.1-405b", "--ffn-bits", "8", "--tp", "8", "--page", "1")


def test_the_published_times(godwit):
    report = godwit.json("plan", *LARGE, "-p", "128000", "--cp", "1,2,4,8,16", "--mode", "pass-kv")
    published = {1: 42.010, 2: 21.042, 4: 10.950, 8: 5.850, 16: 3.800}
    for row in report["rows"]:
        assert row["ttft_seconds"] == pytest.approx(published[row["cp"]], rel=0.05)
        assert row["devices"] == 8 * row["cp"]
    tokens = {row["cp"]: row["ttit_seconds"] for row in report["rows"]}
    assert tokens[1] == pytest.approx(0.04626, rel=0.1) and tokens[4] == pytest.approx(0.07131, rel=0.1)


def test_few_new_tokens_let_the_queries_go_around(godwit):
    def times(cached):
        rows = godwit.json("plan", *LARGE, "-p", "128000", "--cached", cached, "--cp", "4", "--mode", "each")["rows"]
        return {row["mode"]: row["ttft_seconds"] for row in rows}

    few, many = times("99%"), times("50%")
    assert few["pass-q"] < few["pass-kv"] and many["pass-kv"] < many["pass-q"]


def test_a_table_with_targets(godwit):
    text = godwit("plan", *LARGE, "-p", "128000", "--cp", "1,8", "--mode", "pass-kv", "--ttft", "6", "--ops")
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    assert "TTFT" in lines[0] and "TP8 x CP8" in lines[2]
    assert "TTFT of 6.00 s: TP8 x CP8, 64 devices" in text
    assert re.search(r"\| attention +\|", text) and "fitted (matmul_tflops" in text and "too much" in text


def test_a_file_and_a_link(godwit):
    slow = godwit.json("plan", "--cp", "4", "-p", "65536", "--link", "ethernet-1", "--mode", "pass-kv")
    wide = slow["rows"][0]
    narrow = godwit.json("plan", "--cp", "4", "-p", "65536", "--link", "ethernet-1", "--mode", "pass-kv", "--kv-codec", "q8")
    assert slow["model"]["name"] == "built-in" and slow["link"]["name"] == "ethernet-1"
    assert wide["prefill"]["waiting_seconds"] > 1.5 * narrow["rows"][0]["prefill"]["waiting_seconds"]
    tiny = godwit.json("plan", "-m", str(MODELS / "qwen3.gguf"), "--cp", "1", "-p", "64")
    assert tiny["rows"][0]["ttft_seconds"] > 0 and tiny["link"] is None


def test_this_machine_is_measured_once_and_kept(godwit, tmp_path):
    kept = tmp_path / "here.json"
    measured = godwit.json(
        "plan", "--hardware", "this", "-t", "1", "--cp", "1", "-p", "2048", "--save-hardware", str(kept)
    )
    constants = json.loads(kept.read_text())["constants"]
    assert constants["matmul_tflops"]["source"] == "measured" and constants["matmul_tflops"]["value"] > 0
    again = godwit.json("plan", "--hardware", str(kept), "--kv-codec", "f16", "--cp", "1", "-p", "2048")
    assert again["rows"][0]["ttft_seconds"] == pytest.approx(measured["rows"][0]["ttft_seconds"], rel=1e-6)
    assert again["rows"][0]["prefill"]["operators"]


def test_a_page_with_plots(godwit, tmp_path):
    page = tmp_path / "plan.html"
    godwit("plan", *LARGE, "-p", "32000,128000", "--cp", "1,2,4", "--plot", str(page))
    text = page.read_text()
    assert text.startswith("<!doctype html>") and text.count("<svg") == 5 and "http" not in text


@pytest.mark.parametrize(
    "arguments, code, word",
    [
        (["-p", "0"], 2, "0 tokens"),
        (["-p", "many"], 2, "many"),
        (["-d", "-1"], 2, "-1 cached"),
        (["--cp", "0"], 2, "1 to 512"),
        (["--tp", "3"], 2, "does not divide"),
        (["--cached", "100%"], 2, "100%"),
        (["--cached", "half"], 2, "half"),
        (["--cached", "50%", "-d", "5"], 2, "--depth"),
        (["--mode", "pass-v"], 2, "pass-v"),
        (["--kv-codec", "q9"], 2, "f16"),
        (["--hardware", "h1000"], 1, "h100, h200"),
        (["--link", "string"], 1, "rdma-400"),
        (["--link", "h100"], 1, "rdma-400"),
        (["-m", "llama-9"], 1, "llama-3.1-405b"),
        (["--weight-bits", "0"], 2, "1 to 32"),
        (["--ttft", "-1"], 2, "-1"),
        (["--ttit", "nan"], 2, "nan"),
        (["--threads", "4"], 2, "--hardware this"),
        (["--cached-shares", "50,60", "--cp", "2"], 2, "100%"),
        (["--slowest", "0"], 2, "from 1"),
        (["--batch", "0"], 2, "batch of 0"),
        (["--page", "0"], 2, "pages of 0"),
        (["-b", "-3"], 2, "-3"),
        (["--plot", "/nowhere/plan.html"], 1, "/nowhere"),
    ],
    ids=words,
)
def test_nonsense_is_refused(godwit, arguments, code, word):
    assert word in godwit.refuses(code, "plan", *arguments)


def test_hostile_hardware_is_refused(godwit, tmp_path):
    file = tmp_path / "hw.json"
    for text, word in [
        ("", "not valid JSON"),
        ('{"kind": "device"}', "'name'"),
        ("[" * 100000, "hw.json"),
        ('{"kind": "device", "name": "x", "description": "y", "constants": {"speed": 1}}', "'speed'"),
    ]:
        file.write_text(text)
        message = godwit.refuses(1, "plan", "--hardware", str(file), "--cp", "1")
        assert word in message and "hw.json" in message


class Fit:
    def __init__(self, godwit, folder):
        self.godwit, self.folder = godwit, folder

    def __call__(self, *arguments):
        command = [str(REPOSITORY / "tools/fit_hardware"), "--godwit", self.godwit.path, *arguments]
        return subprocess.run(command, capture_output=True, text=True, env=self.godwit.env, timeout=TIMEOUT_S)

    def file(self, name, text):
        (self.folder / name).write_text(text)
        return str(self.folder / name)


@pytest.fixture
def fit(godwit, tmp_path):
    return Fit(godwit, tmp_path)


def test_the_shipped_constants_are_what_the_fit_finds(fit, tmp_path):
    shipped = json.loads((REPOSITORY / "assets/hardware/h100.json").read_text())
    start = json.loads(json.dumps(shipped))
    keys = ["matmul_tflops", "prefill_layer_us", "ring_step_us"]
    for key in keys:
        start["constants"][key]["value"] *= 1.5
    begin, out = fit.file("start.json", json.dumps(start)), tmp_path / "out.json"
    runs = str(REPOSITORY / "tests/data/plan/paper_prefill.txt")
    done = fit("--hardware", begin, "--fit", ",".join(keys), "--out", str(out), runs)
    assert done.returncode == 0, done.stderr
    found = json.loads(out.read_text())["constants"]
    for key in keys:
        assert found[key]["value"] == pytest.approx(shipped["constants"][key]["value"], rel=0.01), key
        assert found[key]["source"] == "fitted"
    assert "worst 2." in done.stdout


@pytest.mark.parametrize(
    "runs, key, word",
    [
        ("-p 100 --cp 1 => ttft\n", "matmul_tflops", "runs.txt:1"),
        ("-p 100 --cp 1 => ttft 1\n", "speed", "speed"),
        ("-p 0 --cp 1 => ttft 1\n", "matmul_tflops", "0 tokens"),
        ("-p 100 --cp 1,2 => ttft 1\n", "matmul_tflops", "2 rows"),
    ],
)
def test_the_fit_says_what_is_wrong(fit, runs, key, word):
    hardware = str(REPOSITORY / "assets/hardware/h100.json")
    done = fit("--hardware", hardware, "--fit", key, fit.file("runs.txt", runs))
    assert done.returncode == 1 and word in done.stderr and "Traceback" not in done.stderr
