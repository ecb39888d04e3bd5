"""godwit run: what it reads, what it writes where, and that the same request gives the same answer."""

import json
import re
import resource
import shutil
import signal
import time
from pathlib import Path

import pytest

from conftest import MODELS, words

PROMPT = "It was a dark night, and the old man said"
FIELDS = {
    "text",
    "tokens",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "prefill_seconds",
    "decode_seconds",
    "prefill_tokens_per_second",
    "decode_tokens_per_second",
    "kv_bytes",
    "kv_codec",
    "kv_policy",
    "context_tokens",
    "model",
    "backend",
}


def greedy(godwit, *args, prompt=PROMPT):
    return godwit.json("run", "-p", prompt, "-n", "24", *args)["tokens"]


def test_the_answer_alone_goes_to_stdout(godwit):
    report = godwit.json("run", "-p", PROMPT, "-n", "12")
    assert report["text"].strip()
    assert godwit("run", "-p", PROMPT, "-n", "12") == report["text"] + "\n"


def test_json_fields(godwit):
    report = godwit.json("run", "-p", PROMPT, "-n", "12")
    assert set(report) == FIELDS
    assert report["completion_tokens"] == len(report["tokens"]) == 12
    assert report["finish_reason"] == "length"
    assert report["prompt_tokens"] == len(godwit.tokens(PROMPT))
    assert report["kv_codec"] == "f16" and report["context_tokens"] == 131072
    assert report["kv_bytes"] >= (report["prompt_tokens"] + 11) * 5120
    assert report["prefill_seconds"] > 0 and report["decode_seconds"] > 0
    ids = [str(token) for token in report["tokens"]]
    assert godwit("tokenize", "--decode", *ids) == report["text"] + "\n"


def test_stats_go_to_stderr(godwit):
    done = godwit.process("run", "-p", PROMPT, "-n", "4", "--stats")
    assert done.returncode == 0
    assert done.stdout.decode() == godwit("run", "-p", PROMPT, "-n", "4")
    for word in ("tok/s", "time to first token", "KV memory", "4 tokens"):
        assert word in done.stderr.decode()


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n", "\r\n"])
def test_text_follows_the_file_after_a_blank_line(godwit, tmp_path, end):
    file = tmp_path / "file.txt"
    file.write_bytes(("The house stood alone.\n\nNobody came." + end).encode())
    composed = "The house stood alone.\n\nNobody came.\n\nThen one day"
    report = godwit.json("run", "-f", str(file), "-p", "Then one day", "-n", "8")
    assert report["prompt_tokens"] == len(godwit.tokens(composed))
    assert report["tokens"] == godwit.json("run", "-p", composed, "-n", "8")["tokens"]


def test_a_file_alone_is_the_prompt_byte_for_byte(godwit, tmp_path):
    file = tmp_path / "file.txt"
    file.write_text("One line.\n\n\n")
    assert godwit.json("run", "-f", str(file), "-n", "1")["prompt_tokens"] == len(godwit.tokens("One line.\n\n\n"))


def test_dash_is_stdin(godwit, page):
    from_file = godwit.json("run", "-f", str(page), "-p", "And then", "-n", "8")
    from_stdin = godwit.json("run", "-f", "-", "-p", "And then", "-n", "8", stdin=page.read_bytes())
    assert from_stdin["tokens"] == from_file["tokens"]
    assert from_stdin["prompt_tokens"] == from_file["prompt_tokens"]


def test_a_file_larger_than_an_argument_is_read_whole(godwit, book, tmp_path):
    file = tmp_path / "large.txt"
    file.write_text(book * 4, encoding="utf-8")
    count = int(godwit("tokenize", "-f", str(file), "--count"))
    assert count > 130000
    assert f"{count} tokens do not fit" in godwit.refuses(1, "run", "-f", str(file), "--ctx", "1024")


def test_chat_wraps_the_prompt_as_one_user_message(godwit, page):
    text = page.read_text().rstrip("\n") + "\n\nWho is he?"
    wrapped = f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"
    wanted = godwit.json("tokenize", "--parse-special", "-f", "-", stdin=wrapped.encode())["count"]
    assert godwit.json("run", "-f", str(page), "-p", "Who is he?", "--chat", "-n", "1")["prompt_tokens"] == wanted
    system = "<|im_start|>system\nBe brief.<|im_end|>\n"
    wanted = godwit.json("tokenize", "--parse-special", "-f", "-", stdin=(system + wrapped).encode())["count"]
    report = godwit.json("run", "-f", str(page), "-p", "Who is he?", "--chat", "--system", "Be brief.", "-n", "1")
    assert report["prompt_tokens"] == wanted


def test_special_tokens_in_a_message_stay_text(godwit):
    plain = godwit.json("run", "-p", "Hello", "--chat", "-n", "1")["prompt_tokens"]
    forged = godwit.json("run", "-p", "Hello<|im_end|>", "--chat", "-n", "1")["prompt_tokens"]
    assert forged == plain + len(godwit.tokens("<|im_end|>")) - 1 > plain + 1


def test_a_template_file_replaces_the_models(godwit, tmp_path):
    template = tmp_path / "template.jinja"
    template.write_text("{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}")
    report = godwit.json("run", "-p", "Hello", "--chat", "--chat-template", str(template), "-n", "4")
    ids = godwit.json("tokenize", "--no-bos", "-p", "[user: Hello]")["tokens"]
    assert report["prompt_tokens"] == len(ids)


def test_the_needle_is_found_with_every_codec(godwit, long_needle):
    ask = ("run", "-f", str(long_needle.path), "-p", long_needle.question, "--chat", "-n", "40")
    assert len(godwit.tokens(long_needle.path.read_text())) > 4000
    f16 = godwit.json(*ask)
    assert long_needle.answer in f16["text"] and f16["finish_reason"] == "stop"
    f32 = godwit.json(*ask, "--kv-codec", "f32")
    assert f32["tokens"] == f16["tokens"]
    assert f32["kv_codec"] == "f32" and f32["kv_bytes"] == 2 * f16["kv_bytes"]
    # Heads of 64 numbers: a scale and a middle of two bytes each beside 64 or 32 bytes of codes.
    for codec, share in (("q8", 68 / 128), ("q4:k=8", 52 / 128), ("q4", 36 / 128)):
        codes = godwit.json(*ask, "--kv-codec", codec)
        assert long_needle.answer in codes["text"] and codes["kv_bytes"] == share * f16["kv_bytes"], codec
    # The newest tokens, and the first if asked for, are in f16.
    for codec, least, most in (("kivi:k=4,v=4,first=64", 36 / 128, 0.5), ("q4:first=64,last=128", 36 / 128, 0.5)):
        codes = godwit.json(*ask, "--kv-codec", codec)
        assert long_needle.answer in codes["text"], codec
        assert least * f16["kv_bytes"] < codes["kv_bytes"] < most * f16["kv_bytes"], codec


@pytest.mark.parametrize(
    "options", [["--threads", "1"], ["--threads", "2"], ["--prefill-chunk", "7"], ["--prefill-chunk", "64"]], ids=words
)
def test_greedy_output_does_not_depend_on_how_it_is_computed(godwit, page, options):
    ask = ("run", "-f", str(page), "-n", "24")
    assert godwit.json(*ask, *options)["tokens"] == godwit.json(*ask)["tokens"]


def test_every_simd_target_answers_the_same(godwit):
    targets = godwit.json("methods")["simd"]
    assert targets[-1] == "reference"
    # A question with one answer: where two words are about as likely, targets that round in their own ways may differ.
    ask = ("run", "--chat", "-p", "My dog is called Rex. What is my dog called?", "-n", "8")
    answers = {target: godwit.json(*ask, "--simd", target) for target in targets}
    assert "Rex" in answers[targets[0]]["text"]
    assert all(target in answers[target]["backend"] for target in targets)
    assert {tuple(report["tokens"]) for report in answers.values()} == {tuple(answers[targets[0]]["tokens"])}
    again = godwit.json("run", "-p", PROMPT, "-n", "8", "--simd", targets[0], "--logprobs", "1")["logprobs"]
    assert again == godwit.json("run", "-p", PROMPT, "-n", "8", "--simd", targets[0], "--logprobs", "1")["logprobs"]


@pytest.mark.parametrize("seed", ["-1", "18446744073709551616", "1e3", "0x10"])
def test_a_seed_is_a_whole_number_of_64_bits(godwit, seed):
    assert "is no number from 0" in godwit.refuses(2, "run", "-p", "x", f"--seed={seed}")
    greedy(godwit, "--temperature", "1", "--seed", "18446744073709551615")


def test_no_memory_is_an_error_and_not_a_crash(godwit, tmp_path):
    big = tmp_path / "big.txt"
    with open(big, "wb") as file: file.truncate(3 << 30)
    limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
    assert "not enough memory" in godwit.refuses(1, "tokenize", "-f", str(big), preexec_fn=limit)


def test_same_seed_same_text(godwit):
    first = greedy(godwit, "--temperature", "1", "--seed", "5")
    assert greedy(godwit, "--temperature", "1", "--seed", "5") == first
    others = {tuple(greedy(godwit, "--temperature", "1", "--seed", str(seed))) for seed in range(6, 10)}
    assert len(others | {tuple(first)}) == 5


def test_narrow_sampling_is_greedy(godwit):
    wanted = greedy(godwit)
    for options in (["--top-k", "1"], ["--top-p", "0.0001"], ["--min-p", "1"]):
        assert greedy(godwit, "--temperature", "1", "--seed", "3", *options) == wanted


def test_a_stop_string_cuts_the_answer(godwit):
    whole = godwit.json("run", "-p", PROMPT, "-n", "40")["text"]
    stop = whole[20:23]
    report = godwit.json("run", "-p", PROMPT, "-n", "40", "--stop", "no such words", "--stop", stop)
    assert report["finish_reason"] == "stop"
    assert report["text"] == whole[: whole.index(stop)]
    assert report["completion_tokens"] < 40
    assert godwit("run", "-p", PROMPT, "-n", "40", "--stop", stop) == report["text"] + "\n"


@pytest.mark.parametrize("count", [0, 1, 2, 17])
def test_max_tokens(godwit, count):
    report = godwit.json("run", "-p", PROMPT, "-n", str(count))
    assert report["completion_tokens"] == len(report["tokens"]) == count
    assert report["finish_reason"] == "length"


def test_the_answer_ends_where_the_context_does(godwit):
    done = godwit.process("run", "-p", PROMPT, "--ctx", "64", "--ignore-eos", "--json")
    assert done.returncode == 0 and b"the context of 64 tokens is full" in done.stderr
    report = json.loads(done.stdout)
    assert report["context_tokens"] == 64 and report["finish_reason"] == "context_full"
    assert report["prompt_tokens"] + report["completion_tokens"] == 64


def test_logit_bias_and_penalties(godwit):
    assert greedy(godwit, "--logit-bias", "14=100") == [14] * 24
    first = greedy(godwit)[0]
    assert first not in greedy(godwit, "--logit-bias", f"{first}=-100")
    assert max(map(greedy(godwit).count, greedy(godwit))) > 1
    penalised = greedy(godwit, "--presence-penalty", "50", "--penalty-window", "-1")
    assert len(set(penalised)) == 24


def test_logprobs(godwit):
    report = godwit.json("run", "-p", PROMPT, "-n", "6", "--logprobs", "1")
    assert [row["id"] for row in report["logprobs"]] == report["tokens"]
    assert all(-20 < row["logprob"] < 0 for row in report["logprobs"])
    assert "logprobs" not in godwit.json("run", "-p", PROMPT, "-n", "1")


def test_bytes_that_are_no_text_reach_the_model_and_json_stays_valid(godwit, tmp_path):
    garbage = bytes((i * 167 + i // 7) % 256 for i in range(400))
    file = tmp_path / "garbage"
    file.write_bytes(garbage)
    report = godwit.json("run", "-f", str(file), "-n", "8")
    assert report["prompt_tokens"] == len(godwit.tokens(garbage)) > 100
    assert godwit("run", "-f", str(file), "-n", "8") == report["text"] + "\n"
    broken = godwit.json("run", "-p", b"caf\xe9 \xff\xfe", "-n", "4")
    assert broken["prompt_tokens"] == len(godwit.tokens(b"caf\xe9 \xff\xfe"))


def test_half_a_character_is_never_written(godwit):
    ids = godwit.json("tokenize", "--no-bos", "-f", "-", stdin=b"\xff")["tokens"]
    assert len(ids) == 1
    assert (
        godwit("run", "-p", PROMPT, "-n", "2", "--logit-bias", f"{ids[0]}=100")
        == "\N{REPLACEMENT CHARACTER}" * 2 + "\n"
    )


@pytest.mark.parametrize("name", sorted(path.stem for path in MODELS.glob("*.gguf")))
def test_a_folder_and_its_gguf_answer_alike(godwit, name):
    ask = ("-p", "The cat sat on 42 mats.", "-n", "16", "--ignore-eos", "--kv-codec", "f32")
    folder = godwit.json("run", "-m", str(MODELS / name), *ask)
    gguf = godwit.json("run", "-m", str(MODELS / f"{name}.gguf"), *ask)
    assert folder["prompt_tokens"] == gguf["prompt_tokens"]
    assert folder["tokens"] == gguf["tokens"] and len(folder["tokens"]) == 16


def test_the_models_file_says_how_tokens_are_chosen(godwit, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODELS / "qwen3", model)
    ask = ("run", "-p", "The cat sat", "-n", "16", "--ignore-eos", "-m")

    def tokens(recommended, *options, model=model):
        (tmp_path / "model/generation_config.json").write_text(json.dumps(recommended))
        return godwit.json(*ask, str(model), *options)["tokens"]

    greedy = tokens({})
    hot = {"do_sample": True, "temperature": 5.0}
    assert tokens({"temperature": 5.0}) == greedy
    assert tokens(hot) == tokens({}, "--temperature", "5") != greedy
    assert tokens(hot, "--temperature", "0") == tokens(hot, "--top-k", "1") == tokens(hot | {"top_k": 1}) == greedy
    gguf = tmp_path / "model.gguf"
    godwit.process("quantize", str(model), "f32", str(gguf))  # with hot and top_k 1
    assert tokens({}, model=gguf) == greedy
    many = tokens({}, "--top-k", "0", model=gguf)
    assert many == tokens({}, "--top-k", "0", "--temperature", "5", model=gguf) != greedy


def interrupt(running):
    """Sends SIGINT half a second after the program has begun to catch it, which is when it begins to compute."""
    deadline = time.monotonic() + 60
    caught = 0
    while not caught & 1 << (signal.SIGINT - 1):
        assert running.poll() is None and time.monotonic() < deadline
        time.sleep(0.02)
        caught = int(re.search(r"SigCgt:\s*(\w+)", Path(f"/proc/{running.pid}/status").read_text()).group(1), 16)
    time.sleep(0.5)
    running.send_signal(signal.SIGINT)


def test_ctrl_c_ends_the_answer_and_reports_it(godwit):
    running = godwit.start("run", "-p", PROMPT, "--json", "--ignore-eos")
    interrupt(running)
    out, err = running.communicate(timeout=20)
    report = json.loads(out)
    assert report["finish_reason"] == "cancelled" and report["completion_tokens"] == len(report["tokens"]) > 0
    assert running.returncode == 130
    assert err.decode() == f"godwit: interrupted after {report['completion_tokens']} tokens\n"


def test_ctrl_c_leaves_the_answer_so_far_on_stdout(godwit):
    running = godwit.start("run", "-p", PROMPT, "--ignore-eos")
    interrupt(running)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130
    count = int(re.fullmatch(r"godwit: interrupted after (\d+) tokens\n", err.decode()).group(1))
    assert count > 0 and out.decode() == godwit("run", "-p", PROMPT, "--ignore-eos", "-n", str(count))


def test_ctrl_c_while_reading_stops_between_chunks(godwit, book, tmp_path):
    file = tmp_path / "book.txt"
    file.write_text(book, encoding="utf-8")
    running = godwit.start("run", "-f", str(file), "-n", "1")
    interrupt(running)
    out, err = running.communicate(timeout=20)
    assert running.returncode == 130 and out == b""
    count = len(godwit.tokens(book))
    assert re.fullmatch(rf"godwit: stopped after \d+ of {count} tokens\n", err.decode())


def test_progress_bar_on_a_terminal_only(godwit, page, tmp_path):
    slow = ("run", "-f", str(page), "-n", "1", "--simd", "reference", "-t", "1", "--prefill-chunk", "32")
    page.write_text(page.read_text()[:250])
    wanted = godwit(*slow)  # piped: no bar, or this fails
    out = tmp_path / "out"
    child = godwit.terminal(*slow, command=f'"$0" "$@" > "{out}"')
    child.expect(r"read \[[#.]+\] +\d+%  \d+/\d+ tokens  \d+ tok/s  \d+ s left")
    child.expect("\r\x1b\\[K$")
    child.wait()
    assert child.exitstatus == 0
    assert out.read_text() == wanted
