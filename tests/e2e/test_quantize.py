"""godwit quantize: what it writes loads and answers as it should; what it refuses leaves no file."""

import resource

import pytest

from conftest import BUILTIN, MODELS

BLOCKS_OF_32 = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"]
# Perplexity of the built-in model in this type may be this many times that of its own q8_0.
BLOCKS_OF_256 = {"q2_k": 12, "q3_k": 2, "q4_k": 1.2, "q5_k": 1.06, "q6_k": 1.02, "iq4_xs": 1.2}
# What only its config.json can say; a GGUF file has no key for it.
NOT_IN_GGUF = {"llama-yarn-mscale"}
# In fp32 throughout: the fast targets round activations to bf16 unless weights are stored as f32.
ASK = ("-p", "The cat sat on 42 mats.", "-n", "24", "--ignore-eos", "--kv-codec", "f32", "--simd", "reference")


def convert(godwit, source, kind, out, *more):
    return godwit.json("quantize", str(source), kind, str(out), *more)


@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("name", sorted({folder.parent.name for folder in MODELS.glob("*/config.json")} - NOT_IN_GGUF))
def test_exact_types_keep_the_answer(godwit, tmp_path, name, kind):
    out = tmp_path / "out.gguf"
    convert(godwit, MODELS / name, kind, out)
    wanted = godwit.json("run", "-m", str(MODELS / name), *ASK)
    answer = godwit.json("run", "-m", str(out), *ASK)
    assert answer["tokens"] == wanted["tokens"] and answer["prompt_tokens"] == wanted["prompt_tokens"]
    facts, wanted = godwit.json("inspect", str(out)), godwit.json("inspect", str(MODELS / name))
    for fact in ("context_length", "layers", "heads", "kv_heads", "head_size", "feed_forward_size", "vocabulary"):
        assert facts[fact] == wanted[fact]


@pytest.mark.parametrize("name", sorted(NOT_IN_GGUF))
def test_what_gguf_cannot_say_is_refused(godwit, tmp_path, name):
    assert "YaRN" in godwit.refuses(1, "quantize", str(MODELS / name), "bf16", str(tmp_path / "out.gguf"))
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("kind", BLOCKS_OF_32)
def test_a_folder_in_blocks_of_32(godwit, tmp_path, kind):
    out = tmp_path / "out.gguf"
    report = convert(godwit, MODELS / "llama3", kind, out)
    assert set(report) == {"file", "bytes", "weights", "bits_per_weight", "exceptions"}
    assert report["exceptions"] == [] and report["bytes"] == out.stat().st_size
    assert report["bits_per_weight"] == pytest.approx(8 * report["bytes"] / report["weights"])
    types = godwit.json("inspect", str(out))["tensor_types"]
    assert set(types) == {kind, "f32"} and types[kind]["tensors"] == 15
    assert godwit.json("run", "-m", str(out), *ASK)["completion_tokens"] == 24


def test_rows_that_no_block_fits_are_reported(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    report = convert(godwit, MODELS / "llama3", "q4_k", out)
    kinds = {tensor["name"]: tensor["type"] for tensor in godwit.json("inspect", "--tensors", str(out))["tensors"]}
    assert len(report["exceptions"]) == 15
    assert all(kinds[row["tensor"]] == row["type"] == "q8_0" for row in report["exceptions"])
    done = godwit.process("quantize", str(MODELS / "llama3"), "q4_k", str(out))
    assert done.returncode == 0 and done.stdout == b""
    assert done.stderr.decode().count("no multiple of the block of the type asked for") == 15


@pytest.fixture(scope="module")
def perplexity(book, tmp_path_factory):
    file = tmp_path_factory.mktemp("perplexity") / "text.txt"
    file.write_text(book[:2300], encoding="utf-8")

    def measure(godwit, *model):
        return godwit.json("eval", "perplexity", "-f", str(file), "--window", "512", "--windows", "1", *model)[
            "perplexity"
        ]

    return measure


@pytest.mark.parametrize("kind", BLOCKS_OF_256)
def test_a_gguf_file_in_blocks_of_256(godwit, tmp_path, perplexity, kind):
    out = tmp_path / "out.gguf"
    report = convert(godwit, BUILTIN, kind, out)
    assert report["exceptions"] == [] and out.stat().st_size < 0.8 * BUILTIN.stat().st_size
    ratio = perplexity(godwit, "-m", str(out)) / perplexity(godwit)
    assert 0.97 < ratio < BLOCKS_OF_256[kind]


def test_the_same_type_again_changes_nothing(godwit, tmp_path):
    first, second = tmp_path / "first.gguf", tmp_path / "second.gguf"
    convert(godwit, MODELS / "qwen3", "q8_0", first)
    convert(godwit, first, "q8_0", second)
    assert first.read_bytes() == second.read_bytes()
    convert(godwit, MODELS / "qwen3", "q8_0", second, "--threads", "1")
    assert first.read_bytes() == second.read_bytes()


def test_embedding_type_and_name(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    convert(godwit, MODELS / "llama", "q4_0", out, "--embedding-type", "q8_0", "--name", "My model")
    report = godwit.json("inspect", "--tensors", str(out))
    kinds = {tensor["name"]: tensor["type"] for tensor in report["tensors"]}
    assert kinds["token_embd.weight"] == kinds["output.weight"] == "q8_0" and kinds["blk.0.attn_q.weight"] == "q4_0"
    assert report["metadata"]["general.name"] == "My model"


def test_the_chat_template_and_tokenizer_travel_along(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    convert(godwit, MODELS / "qwen3", "bf16", out)
    chat = ("run", "--chat", "--system", "Be brief.", "-p", "Hello, 東京", "-n", "8")
    assert (
        godwit.json(*chat, "-m", str(out))["prompt_tokens"]
        == godwit.json(*chat, "-m", str(MODELS / "qwen3"))["prompt_tokens"]
    )


@pytest.mark.parametrize("kind", ["q9_0", "i32", "Q8"])
def test_unknown_types_are_refused_with_the_list(godwit, tmp_path, kind):
    message = godwit.refuses(2, "quantize", str(MODELS / "llama"), kind, str(tmp_path / "out.gguf"))
    assert f"'{kind}'" in message and "q4_k" in message
    assert not (tmp_path / "out.gguf").exists()


def test_an_unknown_embedding_type_is_refused(godwit, tmp_path):
    arguments = ("quantize", str(MODELS / "llama"), "q8_0", str(tmp_path / "out.gguf"), "--embedding-type", "q9_0")
    assert "q9_0" in godwit.refuses(2, *arguments)


def test_missing_models_are_refused(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    assert "nowhere" in godwit.refuses(1, "quantize", str(tmp_path / "nowhere"), "q8_0", str(out))
    assert "config.json" in godwit.refuses(1, "quantize", str(tmp_path), "q8_0", str(out))
    assert not out.exists()


def test_the_source_is_never_overwritten(godwit, tmp_path):
    source = tmp_path / "model.gguf"
    source.write_bytes((MODELS / "llama.gguf").read_bytes())
    (tmp_path / "link.gguf").symlink_to(source)
    (tmp_path / "hard.gguf").hardlink_to(source)
    for target in (source, tmp_path / "." / "model.gguf", tmp_path / "link.gguf", tmp_path / "hard.gguf"):
        assert "model itself" in godwit.refuses(2, "quantize", str(source), "q8_0", str(target))
    assert source.read_bytes() == (MODELS / "llama.gguf").read_bytes()


def test_a_folder_or_device_as_target_is_refused(godwit, tmp_path):
    godwit.refuses(2, "quantize", str(MODELS / "llama"), "q8_0", str(tmp_path))
    godwit.refuses(2, "quantize", str(MODELS / "llama"), "q8_0", "/dev/full")
    assert "nowhere" in godwit.refuses(
        1, "quantize", str(MODELS / "llama"), "q8_0", str(tmp_path / "nowhere" / "out.gguf")
    )


def test_a_write_that_fails_leaves_what_was_there(godwit, tmp_path):
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "out.gguf"

    def full_disk():
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))

    # Without restored signals SIGXFSZ stays ignored, so that the write itself fails as on a full disk.
    limits = {"preexec_fn": full_disk, "restore_signals": False}
    assert "out.gguf" in godwit.refuses(1, "quantize", str(MODELS / "llama"), "q8_0", str(target), **limits)
    assert list(folder.iterdir()) == []
    target.write_bytes(b"what was there")
    godwit.refuses(1, "quantize", str(MODELS / "llama"), "q8_0", str(target), **limits)
    assert list(folder.iterdir()) == [target] and target.read_bytes() == b"what was there"


def test_a_damaged_folder_leaves_no_file(godwit, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    for file in (MODELS / "llama").iterdir():
        (model / file.name).write_bytes(file.read_bytes())
    weights = model / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    assert "truncated" in godwit.refuses(1, "quantize", str(model), "q8_0", str(tmp_path / "out.gguf"))
    assert not (tmp_path / "out.gguf").exists()


def test_json_with_a_file_name_that_is_no_text(godwit, tmp_path):
    out = bytes(tmp_path) + b"/\xff.gguf"
    assert godwit.json("quantize", str(MODELS / "llama"), "q8_0", out)["bytes"] > 0
    assert godwit.json("inspect", out)["family"] == "llama"
    assert godwit.json("run", "-m", out, "-p", "The cat", "-n", "2")["completion_tokens"] == 2


@pytest.mark.parametrize("threads", ["-4", "2000000000"])
def test_senseless_threads_are_refused(godwit, tmp_path, threads):
    out = tmp_path / "out.gguf"
    assert "threads make no sense" in godwit.refuses(2, "quantize", str(MODELS / "llama3"), "q8_0", str(out), "--threads", threads)
    assert not out.exists()


def test_a_folder_given_with_a_slash_has_its_name(godwit, tmp_path):
    for path in (f"{MODELS}/qwen3/", f"{MODELS}/qwen3/."):
        out = tmp_path / "out.gguf"
        convert(godwit, path, "bf16", out)
        assert godwit.json("inspect", str(out))["metadata"]["general.name"] == "qwen3"


def test_what_a_file_says_cannot_steer_the_terminal(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    convert(godwit, MODELS / "llama", "bf16", out, "--name", "\x1b[31mred\x07 \u009b")
    shown = godwit("inspect", str(out))
    assert "\\x1b[31mred\\x07 \\x9b" in shown
    assert not any(ord(c) < 32 and c != "\n" or 0x7F <= ord(c) < 0xA0 for c in shown)


RANDOM = ("quantize", "--random", "llama-tiny")


@pytest.mark.parametrize("kind", ["q4_0", "q8_0", "q4_k", "bf16"])
def test_random_weights_in_a_public_shape(godwit, tmp_path, kind):
    out = tmp_path / "out.gguf"
    report = godwit.json(*RANDOM, kind, str(out))
    assert report["bytes"] == out.stat().st_size and report["exceptions"] == []
    facts = godwit.json("inspect", str(out))
    assert facts["family"] == "llama" and facts["parameters"] == report["weights"] == 1443072
    assert facts["tensor_types"][kind]["tensors"] == 15
    # What other programs ask of a vocabulary.
    for key in ("model", "pre", "tokens", "token_type", "merges", "bos_token_id", "eos_token_id"):
        assert f"tokenizer.ggml.{key}" in facts["metadata"]
    answer = godwit.json("run", "-m", str(out), "-p", "Hello, 東京", "-n", "8", "--ignore-eos")
    assert answer["completion_tokens"] == 8 and len(set(answer["tokens"])) > 1


def test_random_weights_follow_the_seed(godwit, tmp_path):
    files = [tmp_path / f"{i}.gguf" for i in range(3)]
    for file, seed in zip(files, ["5", "5", "6"]):
        godwit.json(*RANDOM, "q8_0", str(file), "--seed", seed)
    assert files[0].read_bytes() == files[1].read_bytes() != files[2].read_bytes()


def test_shapes_are_listed(godwit, tmp_path):
    rows = {row["name"]: row for row in godwit.json("quantize", "--random", "list")}
    assert rows["llama-3.2-1b"]["parameters"] == 1235814400 and rows["mixtral-small"]["family"] == "mixtral"
    text = godwit("quantize", "--random", "list")
    assert all(name in text for name in rows)
    message = godwit.refuses(2, "quantize", "--random", "llama-9", "q4_0", str(tmp_path / "out.gguf"))
    assert "'llama-9'" in message and "llama-3.1-8b" in message
    for arguments in ([], ["llama-tiny"], ["llama-tiny", "q4_0"]):
        assert "shape" in godwit.refuses(2, "quantize", "--random", *arguments)
    assert not (tmp_path / "out.gguf").exists()
