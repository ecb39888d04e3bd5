"""Exit codes and messages: 0 done, 1 failed, 2 wrong usage; one line on stderr that says why, nothing on stdout.

130, after Ctrl-C, is in test_run.py.
"""

import json
import os
import shutil
import subprocess

import pytest

from conftest import BUILTIN, MODELS, TIMEOUT_S, words

LLAMA = str(MODELS / "llama.gguf")


def test_help_and_version(godwit):
    assert "run" in godwit("--help") and "--max-tokens" in godwit("run", "--help")
    assert godwit("--version").startswith("godwit ")


@pytest.mark.parametrize(
    "arguments, word",
    [
        ([], "subcommand"),
        (["bogus"], "bogus"),
        (["run", "-p", "Hello", "--bogus"], "--bogus"),
        (["run", "-p", "Hello", "-n", "many"], "many"),
        (["quantize", LLAMA], "type"),
        (["eval", "bogus"], "bogus"),
        (["eval", "perplexity"], "--file"),
    ],
    ids=words,
)
def test_wrong_usage_names_the_argument(godwit, arguments, word):
    done = godwit.process(*arguments)
    assert done.returncode == 2 and done.stdout == b""
    assert word in done.stderr.decode() and done.stderr.count(b"\n") <= 2


@pytest.mark.parametrize(
    "options, word",
    [
        (["--kv-codec", "q7"], "bf16, f16, f32, gear, kivi, ksort, kvtuner, million, mustafar, q4, q8, think, xquant"),
        (["--kv-codec", "million"], "godwit tune million"),
        (["--kv-codec", "xquant"], "godwit tune xquant"),
        (["--kv-codec", "q4:last=100"], "multiple of 64"),
        (["--prefill", "bogus"], "dense"),
        (["--decode", "bogus"], "dense"),
        (["--simd", "MMX"], "reference"),
        (["--simd", "scalar"], "reference"),
        (["--threads", "-3"], "1 to 1024"),
        (["--threads", "100000"], "1 to 1024"),
        (["--prefill-chunk", "0"], "prefill chunk of 0"),
        (["--ctx", "-5"], "-5"),
        (["--ctx", "200000"], "131072"),
        (["--kv-memory", "1zb"], "1zb"),
        (["--kv-memory", "-1GiB"], "-1GiB"),
        (["--temperature", "-1"], "temperature"),
        (["--min-tokens", "9"], "--min-tokens 9"),
        (["--temperature", "nan"], "temperature"),
        (["--top-p", "2"], "top_p"),
        (["--top-k", "-2"], "top_k"),
        (["--min-p", "3"], "min_p"),
        (["--repetition-penalty", "0"], "repetition_penalty"),
        (["--logit-bias", "14"], "ID=VALUE"),
        (["--logit-bias", "999999=1"], "999999"),
        (["--stop", ""], "stop"),
        (["--system", "Be brief."], "--chat"),
        (["--chat-template", str(MODELS / "qwen3/chat_template.jinja")], "--chat"),
        (["--chat", "--chat-template", "/dev/null"], "/dev/null"),
        (["--logprobs", "2"], "--json"),
        (["--ring", "pass-kv"], "mpirun"),
        (["--ranks", "2"], "mpirun"),
        (["--no-overlap"], "mpirun"),
        (["--no-balance"], "mpirun"),
        (["--no-steal"], "mpirun"),
    ],
    ids=words,
)
def test_senseless_options_are_refused(godwit, options, word):
    assert word in godwit.refuses(2, "run", "-p", "Hello", "-n", "2", *options)


@pytest.mark.parametrize(
    "option",
    ["--ctx", "--temperature", "--seed", "--kv-codec", "--kv-memory", "--simd", "--stop", "--rank-timeout", "--link"],
)
def test_an_empty_value_is_refused(godwit, option):
    assert option in godwit.refuses(2, "run", "-p", "Hello", "-n", "2", option, "")


@pytest.mark.parametrize("arguments", [["bench", "-p", ""], ["inspect", ""], ["quantize", LLAMA, "q8_0", ""]], ids=words)
def test_an_empty_value_is_refused_by_every_verb(godwit, arguments):
    assert "empty" in godwit.refuses(2, *arguments)


def test_a_seed_without_randomness_is_refused(godwit, tmp_path):
    out = tmp_path / "out.gguf"
    assert "--random" in godwit.refuses(2, "quantize", LLAMA, "q8_0", str(out), "--seed", "3")
    assert not out.exists()


@pytest.mark.parametrize(
    "option", [["--kv-codec", "kvtuner:file={}"], ["--kv-policy", "razor:gates={}", "--kv-budget", "50%"]], ids=words
)
def test_an_empty_side_file_is_said_to_be_empty(godwit, tmp_path, option):
    side = tmp_path / "side.json"
    side.write_text("")
    arguments = [part.format(side) for part in option]
    assert f"{side}: the file is empty" in godwit.refuses(1, "run", "-p", "Hello", "-n", "2", *arguments)


def test_a_negative_length_is_refused(godwit):
    assert "-5" in godwit.refuses(2, "run", "-p", "Hello", "--ctx", "64", "-n", "-5")


@pytest.mark.parametrize("arguments", [[], ["-p", ""], ["-f", "-"], ["-f", "/dev/null"]], ids=words)
@pytest.mark.parametrize("more", [[], ["--chat"], ["--json"]], ids=words)
def test_an_empty_prompt_is_refused(godwit, arguments, more):
    assert "prompt" in godwit.refuses(2, "run", "-n", "2", *arguments, *more)


@pytest.mark.parametrize("option", ["-f", "-m", "--chat-template"])
def test_an_empty_path_is_refused(godwit, option):
    ask = ("run", "-p", "Hello", "-n", "2", "--chat")
    assert godwit.json(*ask)["completion_tokens"] == 2
    godwit.refuses(2, *ask, option, "")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-f", "{}"],
        ["run", "-p", "Hello", "-m", "{}"],
        ["run", "-p", "Hello", "--chat", "--chat-template", "{}"],
        ["tokenize", "-f", "{}"],
        ["tokenize", "-p", "Hello", "-m", "{}"],
        ["inspect", "{}"],
        ["chat", "-m", "{}"],
        ["eval", "perplexity", "-f", "{}"],
        ["eval", "recall", "-f", "{}"],
    ],
    ids=words,
)
@pytest.mark.parametrize("form", [[], ["--json"]], ids=words)
def test_a_missing_file_is_named(godwit, tmp_path, arguments, form):
    missing = str(tmp_path / "missing.bin")
    assert missing in godwit.refuses(1, *[argument.format(missing) for argument in arguments], *form)


def test_a_folder_as_text_is_refused(godwit, tmp_path):
    assert str(tmp_path) in godwit.refuses(1, "run", "-f", str(tmp_path))
    assert str(tmp_path) in godwit.refuses(1, "tokenize", "-f", str(tmp_path))


def test_folders_that_are_no_model(godwit, tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    ask = ("run", "-p", "Hello", "-n", "2", "-m", str(model))
    assert "config.json" in godwit.refuses(1, *ask)
    (model / "config.json").write_text("{")
    assert "config.json" in godwit.refuses(1, *ask)
    shutil.copy(MODELS / "llama/config.json", model)
    assert "model.safetensors" in godwit.refuses(1, *ask)
    shutil.copy(MODELS / "llama/model.safetensors", model)
    assert "tokenizer.json" in godwit.refuses(1, *ask)
    shutil.copy(MODELS / "llama/tokenizer.json", model)
    assert godwit.json(*ask)["completion_tokens"] == 2


@pytest.mark.parametrize("keep", [0, 3, 4, 20, 1000, 15_000, 100_000, 240_000])
def test_a_truncated_gguf_file(godwit, tmp_path, keep):
    whole = (MODELS / "llama.gguf").read_bytes()
    assert keep < len(whole)
    file = tmp_path / "truncated.gguf"
    file.write_bytes(whole[:keep])
    for verb in (["run", "-p", "Hello", "-n", "1", "-m"], ["inspect"], ["tokenize", "-p", "Hello", "-m"]):
        assert str(file) in godwit.refuses(1, *verb, str(file))


def test_a_quantized_checkpoint_is_refused_by_its_method(godwit, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODELS / "llama", model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "awq", "bits": 4}}))
    for verb in (["run", "-p", "Hello", "-n", "1", "-m"], ["inspect"]):
        assert "quantized by awq" in godwit.refuses(1, *verb, str(model))


def test_files_that_are_no_model(godwit, tmp_path, page):
    assert "not a GGUF" in godwit.refuses(1, "run", "-p", "Hello", "-m", str(page))
    damaged = bytearray((MODELS / "llama.gguf").read_bytes())
    damaged[8:16] = b"\xff" * 8  # the number of tensors
    (tmp_path / "damaged.gguf").write_bytes(damaged)
    assert "damaged.gguf" in godwit.refuses(1, "inspect", str(tmp_path / "damaged.gguf"))


def test_a_prompt_longer_than_the_context_is_an_error_and_not_a_cut(godwit, page):
    count = len(godwit.tokens(page.read_text()))
    message = godwit.refuses(1, "run", "-f", str(page), "--ctx", "64", "-n", "1")
    assert f"{count} tokens" in message and "64" in message
    godwit.refuses(1, "run", "-f", str(page), "--ctx", str(count - 1), "-n", "1")
    assert godwit.json("run", "-f", str(page), "--ctx", str(count), "-n", "0")["prompt_tokens"] == count


def test_too_little_kv_memory_is_refused_with_the_numbers(godwit):
    message = godwit.refuses(1, "run", "-p", "Hello", "--ctx", "10000", "--kv-memory", "1MiB")
    assert "10000 tokens" in message and "49.1 MiB" in message and "1.0 MiB" in message
    assert "1.0 KiB" in godwit.refuses(1, "run", "-p", "Hello", "--kv-memory", "1KiB")
    assert (
        godwit.json("run", "-p", "Hello", "--ctx", "10000", "--kv-memory", "50MiB", "-n", "1")["context_tokens"]
        == 10000
    )


def test_kv_memory_bounds_the_context(godwit, page):
    report = godwit.json("run", "-p", "Hello", "--kv-memory", "1MiB", "-n", "1")
    assert 64 <= report["context_tokens"] <= 1024 * 1024 // 5120
    godwit.refuses(1, "run", "-f", str(page), "--kv-memory", "1MiB", "-n", "1")


def test_a_context_beyond_the_models_is_refused(godwit):
    assert "512" in godwit.refuses(2, "run", "-p", "Hello", "-m", LLAMA, "--ctx", "513")


def test_a_template_that_does_not_parse_is_named(godwit, tmp_path):
    template = tmp_path / "broken.jinja"
    template.write_text("line one\n{{ messages")
    message = godwit.refuses(1, "run", "-p", "Hello", "--chat", "--chat-template", str(template))
    assert "line 2" in message and "broken.jinja" in message
    template.write_text("{% frobnicate %}")
    assert "frobnicate" in godwit.refuses(1, "run", "-p", "Hello", "--chat", "--chat-template", str(template))
    template.write_text("{{ raise_exception('no such role') }}")
    assert "no such role" in godwit.refuses(2, "run", "-p", "Hello", "--chat", "--chat-template", str(template))


def test_a_reader_that_goes_away_ends_the_program(godwit):
    running = godwit.start("run", "-p", "It was", "--ignore-eos")
    assert len(running.stdout.read(1)) == 1
    running.stdout.close()
    assert running.wait(timeout=20) == 1
    assert running.stderr.read().decode().count("\n") == 1


def test_an_output_that_cannot_be_written_is_refused_before_the_work(godwit, page, tmp_path):
    rows, nowhere = tmp_path / "rows.jsonl", str(tmp_path / "nowhere/out")
    sweep = ("eval", "sweep", "-f", str(page), "--kv-policy", "streaming", "--length", "256", "--facts", "1")
    assert nowhere in godwit.refuses(1, *sweep, "--rows", str(rows), "--html", nowhere)
    assert not rows.exists()
    for verb in (["tune", "razor"], ["tune", "bits"]):
        assert nowhere in godwit.refuses(1, *verb, "-o", nowhere)


def test_a_verb_that_fails_leaves_its_output_as_it_was(godwit, tmp_path):
    out = tmp_path / "gates.json"
    out.write_text("as it was")
    assert "do not fit" in godwit.refuses(1, "tune", "razor", "-o", str(out), "--copies", "999999", "--tokens", "32")
    assert out.read_text() == "as it was" and {path.name for path in tmp_path.iterdir()} == {"home", "gates.json"}


def test_a_model_that_is_shortened_in_use_is_an_error_and_not_a_crash(godwit, tmp_path):
    model = tmp_path / "model.gguf"
    shutil.copy(BUILTIN, model)
    with subprocess.Popen(
        [godwit.path, "chat", "--json", "-n", "2", "--map-weights", "-m", str(model)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=godwit.env,
    ) as running:
        running.stdin.write(b"Hello\n")
        running.stdin.flush()
        assert b"completion_tokens" in running.stdout.readline()
        os.truncate(model, 4096)
        _, err = running.communicate(b"Hello again\n", timeout=TIMEOUT_S)
    assert running.returncode == 1
    assert err.startswith(b"godwit: a file in use was shortened") and err.count(b"\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "-p", "Hello", "-n", "2"],
        ["run", "-p", "Hello", "-n", "2", "--json"],
        ["tokenize", "-p", "Hello"],
        ["inspect"],
        ["inspect", "--json"],
        ["methods"],
        ["chat", "-n", "2"],
        ["chat", "-n", "2", "--json"],
    ],
    ids=words,
)
@pytest.mark.parametrize("closed", [False, True], ids=["full", "closed"])
def test_output_that_cannot_be_written_is_an_error(godwit, arguments, closed):
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [godwit.path, *arguments],
            input=b"Hello\n",
            stdout=full,
            stderr=subprocess.PIPE,
            env=godwit.env,
            timeout=TIMEOUT_S,
            preexec_fn=(lambda: os.close(1)) if closed else None,
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"godwit: ") and done.stderr.count(b"\n") == 1 and b"stdout" in done.stderr
