"""godwit eval: small measurements of the built-in model."""

import json
import math
import re
import xml.etree.ElementTree

import pytest

from conftest import words


@pytest.fixture
def book_file(book, tmp_path):
    path = tmp_path / "book.txt"
    path.write_text(book[:24000], encoding="utf-8")
    return str(path)


def test_perplexity_is_sound_and_deterministic(godwit, book_file):
    ask = ("eval", "perplexity", "-f", book_file, "--window", "512", "--windows", "2")
    report = godwit.json(*ask)
    assert set(report) == {"tokens", "mean_nll", "perplexity"} and report["tokens"] == 1024
    assert 15 < report["perplexity"] < 60
    assert report["perplexity"] == pytest.approx(math.exp(report["mean_nll"]), rel=1e-9)
    assert godwit.json(*ask) == report
    assert godwit.json(*ask, "--prefill-chunk", "100")["perplexity"] == pytest.approx(report["perplexity"], rel=1e-3)
    assert f"perplexity {report['perplexity']:.6f}" in godwit(*ask)


def test_more_context_helps_and_noise_hurts(godwit, book_file):
    ask = ("eval", "perplexity", "-f", "-")
    text = open(book_file, "rb").read()[:8000]
    short = godwit.json(*ask, "--window", "64", "--windows", "16", stdin=text)
    long = godwit.json(*ask, "--window", "1024", "--windows", "1", stdin=text)
    assert short["tokens"] == long["tokens"] == 1024
    assert long["perplexity"] < short["perplexity"]
    reversed_text = godwit.json(*ask, "--window", "1024", "--windows", "1", stdin=text[::-1])
    assert reversed_text["perplexity"] > 3 * long["perplexity"]


def test_recall_of_numbers_at_2k(godwit, book_file):
    rows = godwit.json("eval", "recall", "-f", book_file, "--length", "2048", "--kind", "number", "--samples", "3")
    assert [row["kind"] for row in rows] == ["number", "all"]
    for row in rows:
        assert set(row) == {"length", "kind", "question", "asked", "right", "recall", "kv_bytes_per_token"}
        assert row["length"] == 2048 and row["question"] == "turns" and 5000 < row["kv_bytes_per_token"] < 5400
        assert row["asked"] >= 3 and row["recall"] == pytest.approx(row["right"] / row["asked"])
        assert row["recall"] >= 0.9


def test_recall_table_and_seed(godwit, book_file):
    ask = (
        "eval",
        "recall",
        "-f",
        book_file,
        "--length",
        "512",
        "--kind",
        "number,lives",
        "--samples",
        "2",
        "--facts",
        "1",
    )
    rows = godwit.json(*ask)
    assert [row["kind"] for row in rows] == ["number", "lives", "all"]
    assert rows[2]["asked"] == rows[0]["asked"] + rows[1]["asked"] == 4
    assert godwit.json(*ask) == rows
    lines = godwit(*ask).splitlines()
    assert lines[0].split() == ["length", "kind", "asked", "right", "recall", "KV-bytes/tok"]
    assert [line.split()[1] for line in lines[1:]] == ["number", "lives", "all"]


def test_a_sweep_resumes_and_draws(godwit, book_file, tmp_path):
    rows, page = tmp_path / "rows.jsonl", tmp_path / "page.html"
    ask = ("eval", "sweep", "-f", book_file, "--length", "1024", "--facts", "4", "--kind", "number", "--rows", str(rows))
    ask += ("--kv-budget", "25%", "--question", "late", "--kv-policy", "infinipot")
    report = godwit.json(*ask, "--html", str(page))
    assert [row["policy"] for row in report] == ["", "streaming", "random", "infinipot"]
    full, *others = report
    assert full["late"]["recall"] == 1 and full["mass_lost"] == 0 and "known" not in full
    assert all(row["mass_lost"] > 0 and row["kv_bytes_per_token"] < 2000 for row in others)
    lines = rows.read_text().splitlines()
    assert len(lines) == 4 and json.loads(lines[3])["answers"][0]["kind"] == "number"
    assert godwit.json(*ask) == report, "nothing is measured twice, times neither"
    kept = tmp_path / "new/full"
    for _ in range(2):
        rows.unlink()
        again = godwit.json(*ask, "--keep-full", str(kept))
        assert [row["mean_kl"] for row in again] == [row["mean_kl"] for row in report]
        assert len(list(kept.iterdir())) == 1
    drawings = re.findall("<svg.*?</svg>", page.read_text(), re.DOTALL)
    assert len(drawings) == 3 + 4, "recall and KL over bytes, recall over speed; where facts are found by each method"
    for drawing in drawings:
        xml.etree.ElementTree.fromstring(drawing)
    table = godwit(*ask).splitlines()
    assert table[0].split()[:4] == ["method", "budget", "length", "bytes/tok"] and len(table) == 5


@pytest.mark.parametrize(
    "options, word",
    [
        (["perplexity", "--window", "0"], "window"),
        (["kl", "--length", "200", "--tail", "200"], "200 tokens"),
        (["kl", "--length", "99999"], "less than one window"),
        (["recall", "--question", "never"], "turns"),
        (["perplexity", "--window", "-3"], "window"),
        (["perplexity", "--window", "999999"], "less than one window"),
        (["recall", "--kind", "bogus"], "number, hex, lives, keeps, multi, chain, sum, shots"),
        (["recall", "--length", "10"], "10 tokens"),
        (["recall", "--length", "999999"], "999999"),
        (["recall", "--length", "512", "--kind", "number", "--samples", "0"], "samples"),
        (["sweep", "--kv-policy", "streaming", "--length", "0"], "0 tokens"),
    ],
    ids=words,
)
def test_senseless_requests_are_refused(godwit, book_file, options, word):
    assert word in godwit.refuses(2, "eval", *options, "-f", book_file)


def test_an_empty_text_is_refused(godwit):
    assert "0 tokens" in godwit.refuses(2, "eval", "perplexity", "-f", "-")
    assert "0 tokens" in godwit.refuses(2, "eval", "recall", "-f", "-", "--length", "512")
