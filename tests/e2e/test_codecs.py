"""KV codecs that seal whole pages, on the built-in model: facts are found in fewer bytes, with side files of `godwit tune`."""

import pytest


@pytest.fixture(scope="module")
def side_files(module_godwit, book, tmp_path_factory):
    folder = tmp_path_factory.mktemp("codecs")
    text = folder / "text.txt"
    text.write_text(book[-40000:], encoding="utf-8")
    for codec, options in (("million", ("--tokens", "1024", "--iterations", "4")), ("think", ("--tokens", "1024"))):
        report = module_godwit.json("tune", codec, "-f", str(text), "-o", str(folder / f"{codec}.gguf"), *options)
        assert report["codec"] == codec and set(report["tables"]) == ({"k", "v"} if codec == "million" else {"queries"})
    report = module_godwit.json("tune", "xquant", "-o", str(folder / "xquant.gguf"))  # no text
    assert report["tables"] == {"k": [20, 64, 64], "v": [20, 64, 64], "rope": [20, 32]}
    return folder


def test_the_needle_is_found_with_forms_of_whole_pages(godwit, long_needle, side_files):
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40")
    whole = godwit.json(*ask)["kv_bytes"]
    # Shares of f16's 16 bits, and what is open.
    for codec, bits in (
        ("ksort:first=64", 4.6),
        ("gear:k=4,v=4,first=64", 6.3),
        (f"think:file={side_files}/think.gguf,first=64", 12.8),
        (f"xquant:file={side_files}/xquant.gguf,first=64", 3.6),
    ):
        answer = godwit.json(*ask, "--kv-codec", codec)
        assert long_needle.answer in answer["text"], codec
        assert bits / 16 * whole < answer["kv_bytes"] < (bits / 16 + 0.12) * whole, codec


# Codebooks know the positions that they were fitted to: a needle at 2,000 is not found with these.
def test_codebooks_leave_what_is_likely_where_it_is(godwit, book, side_files):
    ask = ("eval", "kl", "-f", "-", "--length", "1024", "--tail", "64", "--windows", "1")
    whole, million, two_bits = (
        godwit.json(*ask, "--kv-codec", codec, stdin=book[:8000].encode())
        for codec in ("f16", f"million:file={side_files}/million.gguf", "kivi")
    )
    assert million["mean_kl"] < 0.05 and million["mean_kl"] < two_bits["mean_kl"]
    assert million["kv_bytes_per_token"] < 0.5 * whole["kv_bytes_per_token"]


def test_side_files_of_others_are_refused(godwit, side_files):
    for code, codec, word in (
        (2, f"million:file={side_files}/think.gguf", "made for KV codec 'think'"),
        (1, f"think:file={side_files}/none.gguf", "none.gguf"),
        (2, f"xquant:file={side_files}/million.gguf", "made for KV codec 'million'"),
    ):
        assert word in godwit.refuses(code, "run", "-p", "x", "-n", "1", "--kv-codec", codec)
