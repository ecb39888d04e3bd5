"""godwit over several ranks: mpirun -n N godwit …, with the answers of one process."""

import json
import os
import re
import signal
import subprocess
import threading
import time

import pytest
from ranks import TIMEOUT_S, Job, expect_dead, processes, story


@pytest.fixture
def job(godwit):
    return Job(godwit)


def answers(output):
    return [json.loads(line)["tokens"] for line in output.splitlines()]


def test_three_turns_are_those_of_one_rank(job, godwit):
    turns = [story(150) + " Who found the lamp?", "And what became of the map?", story(20) + " Tell me more."]
    args, stdin = ["chat", "-n", "12", "--json"], "".join(turn + "\n" for turn in turns).encode()
    alone = answers(godwit(*args, stdin=stdin))
    assert len(alone) == 3
    sent = ["--no-shared-memory"]
    for ranks, more in [(2, []), (4, []), (8, []), (2, ["--ring", "pass-q"]), (4, ["--ring", "pass-kv"]), (2, sent), (3, sent)]:
        assert answers(job(ranks, *args, *more, stdin=stdin)) == alone, (ranks, more)


def test_8_bit_kv_and_small_chunks(job, godwit):
    args = ["run", "-p", story(60), "-n", "8", "--kv-codec", "q8", "--prefill-chunk", "100", "--json"]
    got, want = json.loads(job(3, *args)), json.loads(godwit(*args))
    assert got["tokens"] == want["tokens"]
    assert got["ranks"] == 3 and got["ring"].endswith("over mpi and shared memory")
    assert "ranks" not in want


@pytest.mark.parametrize("codec", ["kivi", "q4:first=64,last=128", "mustafar", "ksort"])
def test_codecs_that_seal_pages(job, godwit, codec):
    args = ["run", "-p", story(110), "-n", "70", "--kv-codec", codec, "--json"]
    got, want = json.loads(job(3, *args)), json.loads(godwit(*args))
    assert got["tokens"] == want["tokens"]
    assert got["ring"].endswith("over mpi")


@pytest.mark.parametrize(
    "policy,budget",
    [("streaming", "256"), ("random", "30%"), ("infinipot", "512"), ("snapkv", "30%"), ("h2o", "40%"), ("kvmerger", "50%")],
)
def test_policies_keep_what_one_process_keeps(job, godwit, policy, budget):
    args = ["run", "-p", story(110), "-n", "8", "--kv-policy", policy, "--kv-budget", budget, "--json"]
    got, want = json.loads(job(2, *args)), json.loads(godwit(*args))
    assert got["tokens"] == want["tokens"]
    assert got["ring"].startswith("pass-q")


def test_prompts_and_answers_have_ranks_of_their_own(job, godwit):
    args = ["run", "-p", story(110), "-n", "8", "--json"]
    want = json.loads(godwit(*args))["tokens"]
    for prefill, decode in [(3, 1), (1, 3), (2, 2)]:
        for more in [[], ["--kv-codec", "kivi"]]:
            got = json.loads(job(3, *args, *more, "--ranks", str(prefill), "--decode-ranks", str(decode)))
            assert (got["prefill_ranks"], got["decode_ranks"]) == (prefill, decode)
            assert got["tokens"] == (json.loads(godwit(*args, *more))["tokens"] if more else want)
    done = subprocess.run(job.command(2, *args)[:-2], capture_output=True, env=job.env, timeout=300)
    got = json.loads(done.stdout)
    assert got["tokens"] == want and got["prefill_ranks"] in (1, 2)


def test_eval_and_bench_work_too(job, godwit, tmp_path):
    text = tmp_path / "text"
    text.write_text(story(230))
    for args in [["perplexity"], ["kl", "--kv-codec", "q8"]]:
        args = ["eval", *args, "-f", str(text), "--json"]
        assert json.loads(job(2, *args)) == json.loads(godwit(*args))
    (row,) = json.loads(job(2, "bench", "-p", "256", "-n", "0", "-r", "1", "--json"))
    assert row["tokens_per_second"] > 0


def test_bench_ring_counts_what_the_formulas_say(job):
    rows = json.loads(
        job(2, "bench", "ring", "-p", "2048", "-d", "1024", "-n", "2", "--rings", "auto,pass-kv,pass-q", "--json")
    )
    assert [row["ring"] for row in rows] == ["auto", "pass-kv", "pass-q"]
    for row in rows:
        assert row["ranks"] == 2 and len(row["per_layer"]) == 2
        assert row["sent_bytes"] == pytest.approx(row["formula_bytes"])
        assert sum(rank["rows"] for rank in row["per_layer"]) == 2048
        assert row["decode_seconds_per_token"] > 0
        for rank in row["per_layer"]:
            parts = rank["attention_seconds"] + rank["exposed_seconds"] + rank["merge_seconds"]
            assert 0 < parts <= rank["total_seconds"]
    assert rows[1]["steps_pass_q"] == 0 and rows[2]["steps_pass_q"] == rows[2]["steps"]


def test_bench_ring_counts_pages_in_the_form_they_travel_in(job):
    for ring in ["pass-kv", "pass-q"]:
        args = ["bench", "ring", "-p", "1100", "-d", "1024", "--rings", ring, "--kv-codec", "kivi:last=128", "--json"]
        (row,) = json.loads(job(2, *args))
        assert row["sent_bytes"] == pytest.approx(row["formula_bytes"]), ring


def test_the_sweep_says_what_the_choice_lost(job):
    rows = json.loads(job(2, "bench", "ring", "-p", "1024", "-t", "1", "--sweep", "5,100", "--json"))
    assert [row["new_tokens"] for row in rows] == [51, 1024]
    assert [row["depth"] for row in rows] == [973, 0]
    for row in rows:
        both = {"pass-kv": row["pass_kv_seconds"], "pass-q": row["pass_q_seconds"]}
        assert row["better"] == min(both, key=both.get)
        assert row["chosen"] == "both" or row["chosen_seconds"] == both[row["chosen"]]
        assert row["loss"] == pytest.approx(row["chosen_seconds"] / min(both.values()) - 1)


def test_errors_are_said_once(job):
    demoting = ["--kv-policy", "zipcache", "--kv-budget", "50%", "--kv-codec", "q4:last=64"]
    for args, code, mention in [
        (["run", "-p", "hi", *demoting], 1, "'zipcache' does not work over 2 ranks: it demotes"),
        (["run", "-p", "hi", "--ranks", "3"], 2, "3 ranks were asked for, and there are 2"),
        (["run", "-p", "hi", "--ring", "pass-x"], 2, "there is no ring 'pass-x'"),
        (["run", "-p", "hi", "--link", "fast"], 2, "--link fast is not"),
        (["bench", "ring", "--sweep", "0,10"], 2, "--sweep takes percents"),
        (["run", "-p", "hi", "-m", "/nowhere.gguf"], 1, "/nowhere.gguf"),
        (["walk"], 2, "there is no 'walk'"),
    ]:
        done = job.process(2, *args)
        said = [line for line in done.stderr.decode().splitlines() if line.startswith("godwit: ")]
        assert len(said) == 1 and mention in said[0], done.stderr.decode()
        assert done.returncode == code
        assert done.stdout == b""


def hold_back(process, pid):
    """Lets a rank run a quarter of the time until the job is over."""

    def turns():
        while process.poll() is None:
            try:
                os.kill(pid, signal.SIGSTOP)
                time.sleep(0.03)
                os.kill(pid, signal.SIGCONT)
                time.sleep(0.01)
            except ProcessLookupError:
                return

    thread = threading.Thread(target=turns)
    thread.start()
    return thread


def with_a_slow_rank(job, *args):
    process = job.start(2, *args, separate=True)
    pids = processes(process, 2)
    thread = hold_back(process, pids[1])
    try:
        output = process.communicate(timeout=TIMEOUT_S)[0]
    finally:
        process.kill()
        thread.join()
    assert process.returncode == 0
    return json.loads(output)


def test_a_slow_rank_computes_less_and_answers_are_the_same(job, godwit):
    def rows(run):
        return [rank["rows"] for rank in run[0]["per_layer"]]

    args = ["bench", "ring", "-p", "6144", "--prefill-chunk", "256", "-t", "1", "--json"]
    quick, slow = rows(with_a_slow_rank(job, *args))
    assert quick + slow == 6144 and slow < 0.75 * quick
    assert rows(with_a_slow_rank(job, *args, "--no-balance")) == [3072, 3072]
    args = ["run", "-p", story(150), "-n", "8", "--prefill-chunk", "128", "--json"]
    want = json.loads(godwit(*args))["tokens"]
    assert with_a_slow_rank(job, *args)["tokens"] == want


# --- faults


@pytest.mark.parametrize(
    "how,mention,mpirun",
    [
        (signal.SIGKILL, r"rank 2", []),
        (signal.SIGKILL, r"godwit: rank 2 has ended", ["--enable-recovery"]),
        (signal.SIGSTOP, r"rank 2 has not", []),
    ],
)
def test_a_lost_rank_ends_the_run_in_time_and_is_named(godwit, tmp_path, how, mention, mpirun):
    book = tmp_path / "book"
    book.write_text(story(3000))
    process = Job(godwit, *mpirun).start(3, "run", "-f", str(book), "-n", "5", "--rank-timeout", "3")
    try:
        pids = processes(process, 3)
        assert len(pids) == 3
        time.sleep(4)  # into the prompt
        assert process.poll() is None
        os.kill(pids[2], how)
        start = time.monotonic()
        output = process.communicate(timeout=60)[0].decode(errors="replace")
        assert time.monotonic() - start < 40
        assert process.returncode != 0 or mpirun  # whose own code says nothing then
        assert re.search(mention, output), output
    finally:
        process.kill()
        process.communicate()
    expect_dead(pids)
