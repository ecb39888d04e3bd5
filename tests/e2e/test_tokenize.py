"""godwit tokenize: text to ids and back."""

import pytest

from conftest import MODELS, words

TEXTS = ["Hello, world", "  two  spaces\tand\n\nlines", "Zürich 東京 🙂 e\u0301", "x" * 300, "<|im_end|>"]


@pytest.mark.parametrize("text", TEXTS)
def test_round_trip(godwit, text):
    ids = godwit("tokenize", "--no-bos", "-f", "-", stdin=text.encode()).split()
    assert godwit("tokenize", "--decode", *ids) == text + "\n"


def test_stdin_is_the_default_and_sources_agree(godwit, page):
    from_file = godwit.json("tokenize", "-f", str(page))
    assert (
        from_file == godwit.json("tokenize", stdin=page.read_bytes()) == godwit.json("tokenize", "-p", page.read_text())
    )
    assert from_file["count"] == len(from_file["tokens"]) > 300


def test_output_forms_agree(godwit):
    report = godwit.json("tokenize", "-p", "Hello there", "--pieces")
    assert set(report) == {"count", "tokens", "pieces"}
    assert len(report["pieces"]) == report["count"] == len(report["tokens"]) > 2
    assert godwit("tokenize", "-p", "Hello there", "--count") == f"{report['count']}\n"
    assert godwit.json("tokenize", "-p", "Hello there", "--count") == {"count": report["count"]}
    assert godwit("tokenize", "-p", "Hello there") == " ".join(map(str, report["tokens"])) + "\n"
    lines = "".join(f"{token}\t{piece}\n" for token, piece in zip(report["tokens"], report["pieces"]))
    assert godwit("tokenize", "-p", "Hello there", "--pieces") == lines


def test_bos_and_special_tokens(godwit):
    with_bos = godwit.json("tokenize", "-p", "Hello")["tokens"]
    assert with_bos[0] == 0 and with_bos[1:] == godwit.json("tokenize", "-p", "Hello", "--no-bos")["tokens"]
    assert godwit.json("tokenize", "-p", "<|im_end|>", "--no-bos", "--parse-special")["tokens"] == [2]
    assert len(godwit.json("tokenize", "-p", "<|im_end|>", "--no-bos")["tokens"]) > 1


def test_bytes_that_are_no_text(godwit):
    ids = godwit("tokenize", "--no-bos", "-f", "-", stdin=b"a\x00b\xff\xfe\xe9").split()
    done = godwit.process("tokenize", "--decode", *ids)
    assert done.returncode == 0 and done.stdout == b"a\x00b\xff\xfe\xe9\n"
    report = godwit.json("tokenize", "--pieces", "-f", "-", stdin=b"\xff\xfe")
    assert report["count"] == len(report["pieces"]) == 3


@pytest.mark.parametrize("name", ["llama", "llama3", "gemma2", "qwen3"])
def test_folder_and_gguf_have_the_same_tokenizer(godwit, name):
    text = "The cat's 12345 mats — naïve 東京 🙂"
    folder = godwit.json("tokenize", "-m", str(MODELS / name), "-p", text, "--pieces")
    assert folder == godwit.json("tokenize", "-m", str(MODELS / f"{name}.gguf"), "-p", text, "--pieces")
    ids = godwit("tokenize", "-m", str(MODELS / name), "-p", text, "--no-bos").split()
    assert godwit("tokenize", "-m", str(MODELS / name), "--decode", *ids).strip() == text


def test_decode_as_json(godwit):
    ids = [str(token) for token in godwit.json("tokenize", "-p", "Hello there", "--no-bos")["tokens"]]
    assert godwit.json("tokenize", "--decode", *ids)["text"] == "Hello there"


def test_an_id_outside_the_vocabulary_is_refused(godwit):
    assert "999999" in godwit.refuses(2, "tokenize", "--decode", "999999")


def test_two_texts_are_refused(godwit, page):
    godwit.refuses(2, "tokenize", "-p", "Hello", "-f", str(page))


def test_an_empty_text_is_not_stdin(godwit):
    assert godwit.json("tokenize", "-p", "", stdin=b"Hello")["tokens"] == godwit.json("tokenize", stdin=b"")["tokens"]


@pytest.mark.parametrize("option", [["-p", "Hello"], ["--count"], ["--pieces"], ["--parse-special"], ["--no-bos"]], ids=words)
def test_what_says_nothing_about_ids_is_refused_beside_them(godwit, option):
    assert option[0].lstrip("-") in godwit.refuses(2, "tokenize", *option, "--decode", "3")


def test_a_count_has_no_pieces(godwit):
    assert "--count" in godwit.refuses(2, "tokenize", "-p", "Hello", "--count", "--pieces")
