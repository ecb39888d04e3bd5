"""KV policies on the built-in model: which find a fact in a quarter of the cache, and when the question must be known."""

import json

import pytest

from conftest import words


@pytest.fixture
def recall(recall_of):
    return recall_of("number", 8)


QUARTER = ("--kv-budget", "25%")
# A fact is some twenty tokens long: votes for its first ones have to reach the last.
OBSERVING = ("snapkv:kernel=31", "cake:kernel=31")


def test_everything_is_found_in_the_whole_cache(recall):
    known, late = recall("known"), recall("late")
    assert known["right"] == late["right"] == 8
    assert known["kv_bytes_per_token"] == late["kv_bytes_per_token"]


def test_random_finds_next_to_nothing(recall):
    for question in ("known", "late"):
        row = recall(question, "--kv-policy", "random", *QUARTER)
        assert row["right"] <= 2 and row["kv_bytes_per_token"] < 1500


@pytest.mark.parametrize("policy", OBSERVING)
def test_who_looks_at_the_question_finds_the_answer_if_there_is_one_to_look_at(recall, policy):
    assert recall("known", "--kv-policy", policy, *QUARTER)["right"] >= 7
    # The failure that only late questions show.
    assert recall("late", "--kv-policy", policy, *QUARTER)["right"] <= 4


def test_who_does_not_look_at_the_question_finds_it_late_too(recall):
    row = recall("late", "--kv-policy", "infinipot", *QUARTER)
    assert row["right"] >= 7 and row["kv_bytes_per_token"] < 1500


@pytest.mark.parametrize("policy", ["chelsea", "kvmerger"])
def test_merging_beats_random_at_equal_bytes(recall, policy):
    half = ("--kv-budget", "50%")
    merged, random = (recall("late", "--kv-policy", p, *half) for p in (policy, "random"))
    assert merged["right"] >= random["right"] + 2
    assert merged["kv_bytes_per_token"] <= 1.02 * random["kv_bytes_per_token"]


def test_heads_that_retrieve_are_found_and_enough(godwit, book, recall, tmp_path):
    gates = tmp_path / "gates.json"
    report = godwit.json("tune", "razor", "-o", str(gates), "--tokens", "256")
    assert report["format"] == "godwit.duo-gates.1" and len(report["gates"]) == 10
    assert report == json.loads(gates.read_text())
    best, worst = (recall("late", "--kv-policy", f"razor:gates={gates},recent=128,share=0,threshold={t}") for t in (0.4, 1))
    assert best["right"] > worst["right"], "no head sees the whole text"
    assert best["kv_bytes_per_token"] > worst["kv_bytes_per_token"]
    small = ("--length", "1024", "--facts", "4", "--samples", "1")
    by_facts = godwit.json("tune", "duo", "-f", "-", "-o", str(gates), *small, stdin=book[:24000].encode())
    assert by_facts["by"] == "facts" and by_facts["gates"] != report["gates"]


def test_streaming_finds_what_is_near_the_end(recall):
    known, late = (recall(question, "--kv-policy", "streaming", *QUARTER) for question in ("known", "late"))
    assert 1 <= late["right"] == known["right"] <= 4


def test_a_small_cache_reads_a_long_text(godwit, long_needle):
    """Some 4,200 tokens through a cap of 1,024 and the memory for little more."""
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40", "--ctx", "5000")
    cap = ("--kv-policy", "infinipot", "--kv-budget", "1024", "--kv-trigger", "chunk")
    answer = godwit.json(*ask, *cap, "--kv-memory", "9MiB")
    assert answer["kv_bytes"] < 1.2 * 1024 * 5120 and long_needle.answer in answer["text"]
    assert "5000 tokens need" in godwit.refuses(1, *ask, "--kv-memory", "9MiB")


def test_kl_grows_with_what_is_dropped(godwit, book):
    ask = ("eval", "kl", "-f", "-", "--length", "1024", "--tail", "64", "--windows", "1")
    text = book[:8000].encode()
    whole = godwit.json(*ask, stdin=text)
    assert set(whole) == {"tokens", "mean_kl", "max_kl", "same_top", "kv_bytes_per_token"} and whole["tokens"] == 64
    assert whole["mean_kl"] < 0.01 and whole["same_top"] > 0.9
    half, tenth = (godwit.json(*ask, "--kv-policy", "streaming", "--kv-budget", b, stdin=text) for b in ("50%", "10%"))
    assert whole["mean_kl"] < half["mean_kl"] < tenth["mean_kl"]
    assert whole["kv_bytes_per_token"] > half["kv_bytes_per_token"] > tenth["kv_bytes_per_token"]
    assert "KL " in godwit(*ask, stdin=text)


@pytest.mark.parametrize(
    "options, word",
    [
        (["--kv-policy", "lru"], "cake, chelsea, d2o, duo, h2o"),
        (["--kv-policy", "snapkv"], "needs a budget"),
        (["--kv-budget", "25%"], "without a KV policy"),
        (["--kv-trigger", "chunk"], "without a KV policy"),
        (["--kv-policy", "snapkv", "--kv-budget", "lots"], "no KV budget"),
        (["--kv-policy", "snapkv", "--kv-budget", "25%", "--kv-trigger", "now"], "prefill, chunk"),
        (["--kv-policy", "streaming", "--kv-budget", "25%:split=all"], "heads cannot compete"),
        (["--kv-policy", "duo"], "gates=FILE"),
    ],
    ids=words,
)
def test_wrong_settings_are_refused(godwit, options, word):
    assert word in godwit.refuses(2, "run", "-p", "x", *options)
