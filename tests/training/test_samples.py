"""The sample generator of training/: what it asks is in the text, what it grades is the answer, rows are whole."""
import collections
import lzma
import pathlib
import re
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "training"))

from chats import SMALL_TALK, make_chat  # noqa: E402
from corpus import Library, encode_books, train_tokenizer  # noqa: E402
from facts import DONT_KNOW, KINDS, make_fact  # noqa: E402
from samples import SampleMaker  # noqa: E402
import words as trained_words  # noqa: E402


def test_godwit_eval_asks_in_words_that_were_trained():
    """src/eval/facts.cpp has words of its own, for want of Python at run time: some of these here."""
    source = (ROOT / "src/eval/facts.cpp").read_text(encoding="utf-8")
    lists = dict(re.findall(r"constexpr std::string_view k(\w+)\[\] = \{(.*?)\};", source, re.DOTALL))
    assert len(lists) == 8 and lists.pop("Kinds")
    for name, text in lists.items():
        trained = getattr(trained_words, re.sub("(?<=[a-z])(?=[A-Z])", "_", name).upper())
        asked = set(re.findall(r'"([^"]+)"', text))
        assert asked and asked <= set(trained), name


@pytest.fixture(scope="module")
def slice_of_a_book():
    return lzma.open(ROOT / "assets/demo/book.txt.xz", "rt", encoding="utf-8").read()


@pytest.fixture(scope="module")
def tokenizer(slice_of_a_book):
    return train_tokenizer([slice_of_a_book], 2048)


@pytest.fixture
def maker(tokenizer, slice_of_a_book):
    return SampleMaker(tokenizer, 5, Library(encode_books(tokenizer, [slice_of_a_book]), 5))


def text(maker, ids):
    return maker.tokenizer.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", (400, 4000))
def test_every_answer_stands_in_the_text(maker, kind, length):
    for _ in range(10):
        s = maker.retrieval(length, kinds=[kind], unknown=0)
        assert len(s.ids) == len(s.weights) <= length
        assert s.spans
        for start, end, k in s.spans:
            assert k == kind
            answer = text(maker, s.ids[start:end])
            assert answer.endswith(".") and set(s.weights[start:end]) == {8.0}
            before = text(maker, s.ids[:start])
            parts = re.split(r", plus | is \d+|, | = (?:VAR )?", answer.strip(" ."))
            assert all(part in before for part in parts), (answer, before)


def test_chains_are_forward_and_sums_add_up(maker):
    chain = make_fact(maker.r, "chain", set(), hops=2)
    a, b, c = (s.split()[1] for s in chain.sentences)
    value = chain.sentences[0].split(" = ")[1]
    assert chain.sentences[1:] == [f"VAR {b} = VAR {a}.", f"VAR {c} = VAR {b}."]
    assert chain.lead + chain.value == f"VAR {c} = VAR {b} = VAR {a} = {value}"
    total = make_fact(maker.r, "sum", set(), hops=3)
    numbers = [int(s.rstrip(".").split()[-1]) for s in total.sentences]
    assert total.value.endswith(f" is {sum(numbers)}.")


def test_keys_are_used_once(maker):
    used = set()
    facts = [make_fact(maker.r, "lives", used) for _ in range(500)]
    assert len({f.question for f in facts}) == 500


def test_the_fact_stands_at_the_depth_asked_for(maker):
    for depth in (0.0, 0.5, 1.0):
        s = maker.retrieval(4000, kinds=["number"], n_facts=1, depth=depth, unknown=0)
        whole = text(maker, s.ids)
        at = whole.index("The special magic number") / whole.rindex("What is the special magic number")
        assert abs(at - depth) < 0.06


def test_what_is_not_in_the_text_is_not_known(maker):
    for _ in range(20):
        s = maker.retrieval(800, kinds=["lives"], unknown=1.0, chat=True)
        for start, end, kind in s.spans:
            assert kind == "unknown" and text(maker, s.ids[start:end]) == DONT_KNOW
            question = text(maker, s.ids[:start]).rsplit("<|im_start|>user\n", 1)[1]
            name = question.rsplit("Where does ", 1)[1].split(" live?")[0]
            assert f"{name} lives in" not in text(maker, s.ids)


def test_replies_follow_from_what_was_said(maker):
    kinds = collections.Counter()
    for _ in range(500):
        said = ""
        for role, words, kind in make_chat(maker.r):
            if kind == "fact":
                value = [w for w in words.rstrip(".").split() if w not in ("years", "old", "crowns")][-1]
                assert value.lower() in said.lower(), (words, said)
            if kind == "talk":
                added = re.fullmatch(r"(\d+) plus (\d+) is (\d+)\.", words)
                assert int(added[1]) + int(added[2]) == int(added[3]) if added else words in SMALL_TALK
            if kind == "unknown": assert words == DONT_KNOW
            kinds[kind] += 1
            said += words + "\n"
    assert min(kinds[k] for k in ("fact", "talk", "unknown", "noted")) > 20


def test_held_out_phrasings_are_never_trained(maker):
    held = {said[-1] for said in SMALL_TALK.values()}
    for _ in range(500):
        assert not held & {words for role, words, _ in make_chat(maker.r) if role == "user"}


@pytest.mark.parametrize("length", (129, 513, 2049, 8193))
def test_rows_are_whole(maker, length):
    shares = {"chat": 1, "retrieval": 1, "shots": 1, "prose": 1}
    for _ in range(20):
        s = maker.row(length, shares)
        assert len(s.ids) == len(s.weights) == length
        assert s.ids[0] == maker.bos and s.weights[0] == 0
        assert all(0 < a < b <= length for a, b, _ in s.spans)


def test_the_same_seed_gives_the_same_rows(tokenizer, slice_of_a_book):
    books = encode_books(tokenizer, [slice_of_a_book])
    a, b = (SampleMaker(tokenizer, 9, Library(books, 9)) for _ in range(2))
    assert all(a.row(513, {"chat": 1, "retrieval": 1}).ids == b.row(513, {"chat": 1, "retrieval": 1}).ids for _ in range(20))


def test_labels_of_many_shots_can_be_known(maker):
    for _ in range(20):
        s = maker.shots(600)
        for start, end, _ in s.spans:
            assert text(maker, s.ids[start:end]).strip() in text(maker, s.ids[:start])
