"""Sparse attention plans on the built-in model: a fact is still found, and neutral settings change nothing."""

import pytest

from conftest import words


@pytest.mark.parametrize(
    "options",
    [
        ["--prefill", "trishape:sinks=64,window=512"],
        ["--decode", "resa:share=0.05"],
        ["--decode", "resa:share=0.05,repair=0"],
    ],
    ids=words,
)
def test_a_fact_is_found(godwit, long_needle, options):
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40")
    assert long_needle.answer in godwit.json(*ask, *options)["text"]


@pytest.mark.parametrize(
    "options", [["--prefill", "trishape:window=100000"], ["--decode", "resa:share=1,repair=0"]], ids=words
)
def test_neutral_settings_change_nothing(godwit, long_needle, options):
    ask = ("run", "-f", str(long_needle.path), "-n", "24", "--ignore-eos", "--logprobs", "1")
    assert godwit.json(*ask, *options)["logprobs"] == godwit.json(*ask)["logprobs"]


def test_a_prompt_without_its_dense_tail_loses_the_fact(godwit, long_needle):
    """What the tail is for: the question's own rows must see the whole text."""
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40")
    assert long_needle.answer not in godwit.json(*ask, "--prefill", "trishape:sinks=64,window=512,tail=0")["text"]


def test_what_cannot_be_combined_is_refused(godwit, page):
    ask = ("run", "-f", str(page), "-n", "4", "--decode", "resa")
    assert "repair=0" in godwit.refuses(2, *ask, "--kv-policy", "streaming", "--kv-budget", "50%")
    assert "prefill chunk" in godwit.refuses(2, *ask[:-1], "resa:repair=65", "--prefill-chunk", "64")
