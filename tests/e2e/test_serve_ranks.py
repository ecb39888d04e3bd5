"""godwit serve over several ranks: mpirun -n 2 godwit serve, with the answers of one process."""

import os
import signal
import threading
import time

import pytest
from ranks import Job, expect_dead, processes, story
from serving import Server, until


class Served(Server):
    """A server under mpirun; stopping is told to rank 0, as by Ctrl-C on a terminal."""

    def __init__(self, godwit, ranks, *args, mpirun=()):
        self.job = Job(godwit, *mpirun)
        self.ranks = ranks
        super().__init__(self, *args)

    # Server asks this for its process.
    def start(self, *args):
        process = self.job.start(self.ranks, *args, separate=True)
        self.pids = processes(process, self.ranks)
        return process


@pytest.fixture(scope="module")
def pair(module_godwit):
    """One process and two ranks, at the same time."""
    args = ["-t", "1", "--prefill-chunk", "128"]
    with Server(module_godwit, *args) as alone, Served(module_godwit, 2, *args) as ranks:
        yield alone, ranks


def text_of(server, prompt, tokens=24, **more):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, **more}
    status, answer = server.json("POST", "/v1/completions", body)
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["usage"]


def test_answers_at_once_are_those_of_one_process(pair):
    alone, ranks = pair
    prompts = [story(20 + 37 * i)[i * 5 :] for i in range(6)]
    want = [text_of(alone, prompt)[0] for prompt in prompts]
    got = [None] * len(prompts)

    def ask(i):
        got[i] = text_of(ranks, prompts[i])[0]

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(prompts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == want


def test_a_second_request_reuses_the_first_ones_pages(pair):
    alone, ranks = pair
    prompt = "Once more. " + story(200)
    for server in pair:
        first, used = text_of(server, prompt)
        assert used["prompt_tokens_details"]["cached_tokens"] == 0
        again, reused = text_of(server, prompt)
        assert again == first
        cached = reused["prompt_tokens_details"]["cached_tokens"]
        assert reused["prompt_tokens"] - 64 <= cached + 1 < reused["prompt_tokens"] + 1
    assert text_of(alone, prompt)[0] == text_of(ranks, prompt)[0]


def test_streams_and_cancels(pair):
    alone, ranks = pair
    prompt = story(30)
    parts = [
        chunk.choices[0].text
        for chunk in ranks.openai().completions.create(
            model="built-in", prompt=prompt, max_tokens=24, temperature=0, stream=True
        )
    ]
    assert len(parts) > 4 and "".join(parts) == text_of(alone, prompt)[0]
    stream = ranks.openai().completions.create(model="built-in", prompt=story(400), max_tokens=20000, stream=True)
    next(iter(stream))
    stream.close()
    until(lambda: ranks.metric("num_requests_running") == 0, 20)
    assert text_of(ranks, prompt)[0] == text_of(alone, prompt)[0]


def test_embeddings_are_refused(pair):
    _, ranks = pair
    status, answer = ranks.json("POST", "/v1/embeddings", {"input": "hello"})
    assert 400 <= status < 600 and "embeddings are not computed over 2 ranks" in answer["error"]["message"]


def test_requests_choose_their_ranks(module_godwit):
    prompt = story(60)
    with Served(module_godwit, 2, "-t", "1", "--allow-ranks", "2", "--no-prefix-cache") as server:
        texts = set()
        for ranks, decode, took in [(1, None, (1, 1)), (2, None, (2, 2)), (2, 1, (2, 1)), (None, None, (2, 2))]:
            asked = {key: value for key, value in (("ranks", ranks), ("decode_ranks", decode)) if value}
            text, usage = text_of(server, prompt, **asked)
            texts.add(text)
            assert (usage["prefill_ranks"], usage["decode_ranks"]) == took  # the last: what Job gives as --ranks
        assert len(texts) == 1
        assert server.json("GET", "/status")[1]["ranks"] == {"count": 2, "most_per_request": 2}
        stream = server.openai().chat.completions.create(
            model="built-in", messages=[{"role": "user", "content": prompt}], max_tokens=3, stream=True,
            stream_options={"include_progress": True}, extra_body={"ranks": 1},
        )  # fmt: skip
        told = [chunk.progress for chunk in stream if getattr(chunk, "progress", None)]
        assert told and told[-1]["prefill_ranks"] == 1
        for field in ("ranks", "decode_ranks"):
            status, answer = server.json("POST", "/v1/completions", {"prompt": "a", field: 3})
            assert status == 400 and answer["error"]["param"] == "ranks", answer
            assert "1 to 2" in answer["error"]["message"]
    with Served(module_godwit, 2, "-t", "1") as server:
        status, answer = server.json("POST", "/v1/completions", {"prompt": "a", "ranks": 1})
        assert status == 400 and "may not choose" in answer["error"]["message"]


def test_policies_by_request(module_godwit):
    """Rounding differs once entries were dropped, so that answers are compared where they are long settled: short ones."""
    prompt = story(80)
    policies = ("none", "streaming", "infinipot", "snapkv", "h2o", "chelsea")
    allowed = [word for policy in policies for word in ("--allow-kv-policy", policy)]
    args = ("-t", "1", "--prefill-chunk", "128", "--kv-codec", "f32", *allowed)
    kinds = [None, {"policy": "streaming", "budget": "40%"}, {"policy": "infinipot", "budget": 300, "trigger": "chunk"}]
    kinds += [{"policy": policy, "budget": "40%"} for policy in ("snapkv", "h2o", "chelsea")]
    with Server(module_godwit, *args) as alone, Served(module_godwit, 2, *args) as ranks:
        for kv in kinds:
            more = {"kv": kv} if kv else {}
            assert text_of(ranks, prompt, 6, **more)[0] == text_of(alone, prompt, 6, **more)[0], kv


def test_policies_that_do_not_work_are_refused_when_it_starts(module_godwit):
    args = ("serve", "--port", "0", "--kv-codec", "q4:last=64", "--allow-kv-policy", "zipcache")
    done = Job(module_godwit).process(2, *args)
    assert done.returncode != 0
    assert b"KV policy 'zipcache' does not work over 2 ranks: it demotes entries" in done.stderr


def test_an_orderly_end(module_godwit):
    with Served(module_godwit, 2, "-t", "1") as server:
        assert text_of(server, "Hello")[0]
        os.kill(server.pids[0], signal.SIGTERM)
        assert server.process.wait(30) == 0


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_rank_fails_its_requests_and_ends_the_server(module_godwit, how):
    with Served(module_godwit, 2, "-t", "1", "--rank-timeout", "3") as server:
        assert text_of(server, "Hello")[0]
        outcome = []

        def ask():
            try:
                outcome.append(server.json("POST", "/v1/completions", {"prompt": story(2000), "max_tokens": 9}))
            except OSError as error:
                outcome.append(error)

        asking = threading.Thread(target=ask)
        asking.start()
        until(lambda: server.metric("num_requests_running") == 1, 30)
        os.kill(server.pids[1], how)
        start = time.monotonic()
        asking.join(40)
        assert server.process.wait(40) != 0
        assert time.monotonic() - start < 40
        server.reader.join(10)
        said = "".join(server.lines)
        (end,) = outcome
        if how == signal.SIGSTOP:  # noticed by rank 0, which can still say so
            status, answer = end
            assert status >= 500 and "rank 1 has not " in answer["error"]["message"], end
            assert "rank 1 has not " in said
        else:  # noticed by mpirun, which ends the job
            assert isinstance(end, OSError) or end[0] >= 500
            assert "rank 1" in said
    expect_dead(server.pids)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("link", ["vader,self", "tcp,self"])
def test_a_server_that_outlives_its_ranks_goes_on_alone(module_godwit, how, link):
    """An answer that is amid its text says the rest of it as if nothing had been."""
    prompt, tokens = story(100), 300
    args = ("-t", "1", "--rank-timeout", "3", "--allow-ranks", "3")
    mpirun = ("--enable-recovery", "--mca", "btl", link)
    with Server(module_godwit, "-t", "1") as alone:
        want = text_of(alone, prompt, tokens, ignore_eos=True)[0]
    with Served(module_godwit, 3, *args, mpirun=mpirun) as server:
        body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
        stream = server.openai().completions.create(
            model="built-in", stream=True, extra_body={"ignore_eos": True}, **body
        )
        text = ""
        for count, chunk in enumerate(stream):
            text += chunk.choices[0].text
            if count == 10:
                os.kill(server.pids[2], how)
                lost = time.monotonic()
        assert text == want
        assert time.monotonic() - lost < 30
        ranks = server.json("GET", "/status")[1]["ranks"]
        assert ranks["count"] == 1 and "rank 2 has " in ranks["lost"], ranks
        assert server.metric("ranks") == 1
        status, answer = server.json("POST", "/v1/completions", {**body, "max_tokens": 1, "ranks": 3})
        assert status == 400 and "3 ranks were asked for, and one is left: rank 2 has " in answer["error"]["message"]
        if how == signal.SIGSTOP and link.startswith("vader"):  # the other one stays as it is, and ends nevertheless
            os.kill(server.pids[2], signal.SIGCONT)  # it may write where it thinks that others read
        assert text_of(server, story(99), 9) and text_of(server, prompt, tokens, ignore_eos=True)[0] == want
        os.kill(server.pids[0], signal.SIGTERM)
        assert server.process.wait(40) == 0
        server.reader.join(10)
        assert "this server goes on with one rank" in "".join(server.lines)
    expect_dead(server.pids)


def test_an_idle_server_notices_that_a_rank_has_ended(module_godwit):
    with Served(module_godwit, 2, "-t", "1", mpirun=("--enable-recovery",)) as server:
        assert server.metric("ranks") == 2
        os.kill(server.pids[1], signal.SIGKILL)
        until(lambda: server.metric("ranks") == 1, 20)
        assert text_of(server, "Hello")[0]


def test_a_stopped_rank_0_ends_the_job(module_godwit):
    with Served(module_godwit, 2, "-t", "1", "--rank-timeout", "1") as server:
        assert text_of(server, "Hello")[0]
        time.sleep(12)  # longer than ten of these: idle is not lost
        assert server.process.poll() is None
        os.kill(server.pids[0], signal.SIGSTOP)
        assert server.process.wait(40) != 0
        server.reader.join(10)
        assert "rank 0 has not answered" in "".join(server.lines)
    expect_dead(server.pids)


def test_an_end_does_not_wait_for_a_stopped_rank(module_godwit):
    with Served(module_godwit, 2, "-t", "1", "--rank-timeout", "2") as server:
        assert text_of(server, "Hello")[0]
        os.kill(server.pids[1], signal.SIGSTOP)
        os.kill(server.pids[0], signal.SIGTERM)
        server.process.wait(40)
    expect_dead(server.pids)
