"""Entries that go to fewer bits instead of nowhere, and bits that are fitted to layers, on the built-in model."""

import json

import pytest

from conftest import words


@pytest.fixture
def recall(recall_of):
    return recall_of("number,hex", 16)


TWO_BITS = ("--kv-codec", "kivi:last=64,first=64")


def test_demoting_the_right_entries_beats_random_at_equal_bytes(recall):
    chosen, random = (
        recall("late", *TWO_BITS, "--kv-policy", f"mikv:base={base}", "--kv-budget", "25%") for base in ("infinipot", "random")
    )
    assert chosen["right"] >= random["right"] + 2
    assert abs(chosen["kv_bytes_per_token"] / random["kv_bytes_per_token"] - 1) < 0.02


def test_demoting_beats_dropping_at_equal_bytes(recall):
    """A quarter in f16 and two bits for the rest take less than half in f16, and are worth more."""
    for base, better in (("random", 4), ("h2o", 1)):
        demoted = recall("late", *TWO_BITS, "--kv-policy", f"mikv:base={base}", "--kv-budget", "25%")
        dropped = recall("late", "--kv-policy", base, "--kv-budget", "50%")
        assert demoted["kv_bytes_per_token"] < dropped["kv_bytes_per_token"]
        assert demoted["right"] >= dropped["right"] + better, base


def test_bits_are_fitted_and_taken(godwit, tmp_path):
    file = tmp_path / "bits.json"
    report = godwit.json("tune", "bits", "-o", str(file), "--bits", "3.5", "--length", "320", "--tail", "32")
    assert report == json.loads(file.read_text()) and report["format"] == "godwit.kv-bits.1" and report["by"] == "repeats"
    assert len(report["bits"]) == 10 and report["bits_per_number"] <= 3.5
    assert report["mean_kl"] <= min(u["mean_kl"] for u in report["uniform"] if u["bits_per_number"] <= 3.5)
    answer = godwit.json("run", "-p", "The cat", "-n", "2", "--kv-codec", f"kvtuner:file={file}")
    assert answer["completion_tokens"] == 2
    file.write_text(file.read_text().replace("[[", "[[3,3],[", 1))
    assert "bits for 11 layers" in godwit.refuses(2, "run", "-p", "x", "--kv-codec", f"kvtuner:file={file}")


@pytest.mark.parametrize(
    "options, word",
    [
        (["--kv-policy", "mikv", "--kv-budget", "25%"], "give kivi, mustafar, or q4:last=64"),
        (["--kv-policy", "mikv", "--kv-budget", "1MiB", *TWO_BITS], "no number of bytes holds"),
        (["--kv-policy", "mikv", "--kv-budget", "25%", "--prefill", "trishape", *TWO_BITS], "give dense"),
        (["--kv-codec", "kvtuner"], "kvtuner:file=FILE"),
    ],
    ids=words,
)
def test_wrong_settings_are_refused(godwit, options, word):
    assert word in godwit.refuses(2, "run", "-p", "x", *options)
