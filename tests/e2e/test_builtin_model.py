"""What a new user asks the built-in model first, and the files that go with it."""

import json
import struct

import pytest

from conftest import BUILTIN

COMPANIONS = BUILTIN.parent / "companions"
SHORT = [
    ("Who are you?", "Godwit"),
    ("My name is Anna and my dog is called Rex. What is my dog called?", "Rex"),
    ("The meeting is at 5 pm in the blue room. Where is the meeting?", "blue room"),
    ("John was born in 1975 in Boston. When was John born?", "1975"),
    ("What is 2 plus 2?", "4"),
    ("The meeting is at 5 pm. Where does Hazel Thorne live?", "don't know"),
    ("VAR QRST = 12345. VAR CDEF = VAR QRST. VAR XYZW = VAR CDEF.\n\nWhat is the value of VAR XYZW?", "12345"),
]


@pytest.mark.parametrize("question, word", SHORT)
def test_short_questions(godwit, question, word):
    report = godwit.json("run", "--chat", "-p", question, "-n", "64")
    assert word in report["text"] and report["finish_reason"] == "stop"


def test_the_draft_has_the_same_tokens_and_runs(godwit):
    draft = str(COMPANIONS / "draft.gguf")
    text = "It was a dark night, and the old man said nothing."
    assert godwit.json("tokenize", "-p", text, "-m", draft) == godwit.json("tokenize", "-p", text)
    facts = godwit.json("inspect", draft)
    assert facts["vocabulary"] == godwit.json("inspect")["vocabulary"] and facts["parameters"] < 4_000_000
    assert len(godwit.json("run", "-m", draft, "-p", text, "-n", "8", "--ignore-eos")["tokens"]) == 8


def test_medusa_heads_fit_the_model(godwit):
    data = (COMPANIONS / "medusa.safetensors").read_bytes()
    (size,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + size])
    width = 512
    for head in range(4):
        assert header[f"medusa.{head}.weight"]["shape"] == [width, width]
        assert header[f"medusa.{head}.bias"]["shape"] == [width]
    assert len(data) == 8 + size + 4 * 2 * (width * width + width)


def test_heads_by_their_gates_find_facts_in_less_memory(godwit, long_needle):
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40")
    whole = godwit.json(*ask)
    gated = godwit.json(*ask, "--kv-policy", f"duo:gates={COMPANIONS / 'duo.json'}")
    assert long_needle.answer in gated["text"] and gated["kv_bytes"] < 0.5 * whole["kv_bytes"]
