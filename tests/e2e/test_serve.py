"""The server with the clients that people use."""

import json
import math
import shutil
import threading

import anthropic
import numpy
import openai
import pytest

from conftest import MODELS
from serving import Server


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit, "--max-output-tokens", "2000") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


def ask(client, text="Hello, who are you?", **more):
    more.setdefault("max_tokens", 24)
    return client.chat.completions.create(
        model="built-in", messages=[{"role": "user", "content": text}], temperature=0, **more
    )


def test_start_says_what_fits(server):
    assert "serving built-in on http://127.0.0.1:" in server.lines[0]
    assert "131072 tokens" in server.lines[0] and "KV memory" in server.lines[0]


def test_operations(server):
    assert server.json("GET", "/health") == (200, {"status": "ok"})
    assert server.json("GET", "/version")[1]["version"].count(".") == 2
    status, headers, text = server.ask("GET", "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain")
    assert b"godwit:num_requests_running" in text


def test_models(client):
    assert [m.id for m in client.models.list()] == ["built-in"]
    assert client.models.retrieve("built-in").id == "built-in"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_answer_equals_the_command_line(client, module_godwit):
    alone = module_godwit.json("run", "--chat", "-p", "Hello, who are you?", "-n", "24")
    answer = ask(client)
    assert answer.choices[0].message.content == alone["text"]
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage.completion_tokens == len(alone["tokens"])
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")


def test_streaming(client):
    whole = ask(client, logprobs=True, top_logprobs=3)
    chunks = list(ask(client, logprobs=True, top_logprobs=3, stream=True, stream_options={"include_usage": True}))
    first, *middle, last, usage = chunks
    assert first.choices[0].delta.role == "assistant"
    assert last.choices[0].finish_reason == whole.choices[0].finish_reason
    assert usage.choices == [] and usage.usage.completion_tokens == whole.usage.completion_tokens
    assert all(c.usage is None for c in [first, *middle, last])
    assert "".join(c.choices[0].delta.content for c in middle) == whole.choices[0].message.content
    streamed = [entry for c in middle if c.choices[0].logprobs for entry in c.choices[0].logprobs.content]
    assert streamed == whole.choices[0].logprobs.content
    assert len({c.id for c in chunks}) == 1


def test_logprobs(client):
    choice = ask(client, logprobs=True, top_logprobs=3).choices[0]
    assert "".join(e.token for e in choice.logprobs.content) == choice.message.content
    for entry in choice.logprobs.content:
        assert bytes(entry.bytes).decode() == entry.token
        assert len(entry.top_logprobs) == 3
        assert entry.top_logprobs[0].logprob == entry.logprob  # greedy
        assert sum(math.exp(t.logprob) for t in entry.top_logprobs) <= 1 + 1e-5


def test_completions(client):
    one = client.completions.create(model="built-in", prompt="Once upon", max_tokens=8, temperature=0, logprobs=2)
    assert one.object == "text_completion"
    assert "".join(one.choices[0].logprobs.tokens) == one.choices[0].text
    assert one.choices[0].logprobs.text_offset[0] == 0
    assert len(one.choices[0].logprobs.top_logprobs[0]) == 2
    assert one.usage.completion_tokens == 8 and one.choices[0].finish_reason == "length"
    two = client.completions.create(model="built-in", prompt=["Once upon", "The old"], max_tokens=8, temperature=0)
    assert [c.index for c in two.choices] == [0, 1] and two.choices[0].text == one.choices[0].text
    tokens = client.post("/../tokenize", body={"prompt": "Once upon"}, cast_to=object)["tokens"]
    ids = client.completions.create(model="built-in", prompt=tokens, max_tokens=8, temperature=0)
    assert ids.choices[0].text == one.choices[0].text
    streamed = client.completions.create(
        model="built-in", prompt="Once upon", max_tokens=8, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(streamed)
    assert "".join(c.choices[0].text for c in chunks if c.choices) == one.choices[0].text
    assert chunks[-1].usage == one.usage


def test_embeddings(client, module_godwit):
    texts = ["The king rode home.", "The king rode to his home.", "7 + 5 = 12"]
    answer = client.embeddings.create(model="built-in", input=texts)  # the client asks for base64
    plain = client.embeddings.create(model="built-in", input=texts, encoding_format="float")
    assert [d.index for d in answer.data] == [0, 1, 2] and answer.usage.prompt_tokens > 10
    assert answer.usage.total_tokens == answer.usage.prompt_tokens
    vectors = numpy.array([d.embedding for d in answer.data])
    assert numpy.allclose(vectors, [d.embedding for d in plain.data], atol=1e-7)
    assert numpy.allclose(numpy.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="built-in", input="x", dimensions=8)


def test_tokenize_and_back(server):
    text = "Wer wagt es — 世界 <|im_end|>"
    status, tokens = server.json("POST", "/tokenize", {"prompt": text, "add_special_tokens": False})
    assert status == 200 and tokens["count"] == len(tokens["tokens"]) and tokens["max_model_len"] == 131072
    assert server.json("POST", "/detokenize", {"tokens": tokens["tokens"]}) == (200, {"prompt": text})
    chat = server.json("POST", "/tokenize", {"messages": [{"role": "user", "content": "Hello"}]})[1]
    assert chat["count"] > server.json("POST", "/tokenize", {"prompt": "Hello"})[1]["count"]


def test_sampling_is_the_seeds(client):
    def say(seed, **more):
        answer = client.completions.create(
            model="built-in", prompt="The", max_tokens=12, temperature=1.0, seed=seed, **more
        )
        return [c.text for c in answer.choices]

    assert say(5) == say(5)
    assert len({say(seed)[0] for seed in range(6)}) > 1
    several = say(5, n=4)
    assert several[0] == say(5)[0] and len(set(several)) > 1
    assert say(-3) == say(-3)


def test_stop(client):
    free = ask(client).choices[0].message.content
    stop = free[10:14]
    choice = ask(client, stop=["no such text", stop]).choices[0]
    assert choice.message.content == free[: free.index(stop)] and choice.finish_reason == "stop"
    assert ask(client, stop=stop).choices[0].message.content == choice.message.content


def test_a_repeated_prompt_is_found_in_the_cache(client, book):
    question = book[:4000] + "\n\nWho is it?"
    cold, warm = (ask(client, question, extra_body={"cache_salt": "t"}) for _ in range(2))
    other = ask(client, question, extra_body={"cache_salt": "u"})
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens > 800
    assert other.usage.prompt_tokens_details.cached_tokens == 0
    assert cold.choices[0].message.content == warm.choices[0].message.content == other.choices[0].message.content


@pytest.mark.parametrize(
    "field, value",
    [
        ("temperature", "hot"),
        ("temperature", 3),
        ("top_p", 0),
        ("n", 0),
        ("n", 17),
        ("n", 1.5),
        ("max_tokens", 0),
        ("max_tokens", 2001),
        ("max_tokens", 10**30),
        ("min_tokens", 5),
        ("seed", 1.5),
        ("seed", 10**30),
        ("stop", 7),
        ("stop", [""]),
        ("stop", ["x"] * 17),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 1000}),
        ("top_logprobs", 3),
        ("top_logprobs", 21),
        ("stream", "yes"),
        ("stream_options", {}),
        ("priority", 1),
        ("messages", []),
        ("messages", "hello"),
        ("stop_token_ids", [-1]),
    ],
)
def test_wrong_fields_are_named(server, field, value):
    status, body = server.json("POST", "/v1/chat/completions", server.chat(max_tokens=4) | {field: value})
    assert status == 400, body
    error = body["error"]
    assert error["param"] == field and field in error["message"], error
    assert error["type"] == "invalid_request_error" and set(error) == {"message", "type", "param", "code"}


@pytest.mark.parametrize(
    "messages, param",
    [
        ([{"role": "king", "content": "x"}], "messages[0].role"),
        ([{"role": "user", "content": "x"}, {"role": "user"}], "messages[1].content"),
        ([{"role": "user", "content": 5}], "messages[0].content"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "messages[0].content[0].type"),
        (["hello"], "messages[0]"),
    ],
)
def test_wrong_messages_are_named(server, messages, param):
    status, body = server.json("POST", "/v1/chat/completions", {"messages": messages})
    assert status == 400 and body["error"]["param"] == param, body


def test_errors_reach_the_client_as_its_own(client, server):
    with pytest.raises(openai.NotFoundError, match="no model 'gpt-9'"):
        client.chat.completions.create(model="gpt-9", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="built-in", prompt=[5] * 131072)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="vocabulary"):
        client.completions.create(model="built-in", prompt=[10**6])
    assert server.json("POST", "/v1/nothing", {})[0] == 404
    status, headers, _ = server.ask("GET", "/v1/completions")
    assert status == 405 and headers["Allow"] == "POST"
    assert server.ask("POST", "/v1/completions", b"{}", {"Content-Type": "text/plain"})[0] == 415


def test_request_ids(server):
    _, headers, _ = server.ask("GET", "/health", headers={"X-Request-Id": "abc-1.2_3"})
    assert headers["X-Request-Id"] == "abc-1.2_3"
    for bad in ("a b", "x" * 65, 'q"uote', ""):
        _, headers, _ = server.ask("GET", "/health", headers={"X-Request-Id": bad})
        assert headers["X-Request-Id"] not in ("", bad)
    assert server.logged(request_id="abc-1.2_3", path="/health", status=200)


def test_the_log_has_numbers_and_no_secrets(server):
    secret = "hunter2-the-secret"
    server.json(
        "POST",
        f"/v1/chat/completions?token={secret}",
        server.chat(secret, max_tokens=4),
        headers={"Authorization": f"Bearer {secret}", "X-Request-Id": "log-1"},
    )
    (line,) = server.logged(request_id="log-1")
    assert line["completion_tokens"] == 4 and line["prompt_tokens"] > 4 and line["finish"] == "length"
    assert 0 < line["first_token_seconds"] <= line["seconds"]
    assert secret not in "".join(server.lines)


def test_metrics_add_up(server, client):
    before = {
        name: server.metric(name)
        for name in ("generation_tokens_total", "time_to_first_token_seconds_count", "inter_token_latency_seconds_count")
    }
    ask(client, max_tokens=10, stop=None)
    assert server.metric("generation_tokens_total") == before["generation_tokens_total"] + 10
    assert server.metric("time_to_first_token_seconds_count") == before["time_to_first_token_seconds_count"] + 1
    assert server.metric("inter_token_latency_seconds_count") == before["inter_token_latency_seconds_count"] + 9
    assert server.metric("num_requests_running") == 0


def test_responses(client):
    whole = client.responses.create(model="built-in", input="Hello, who are you?", max_output_tokens=12, temperature=0)
    assert whole.status == "incomplete" and whole.incomplete_details.reason == "max_output_tokens"
    assert whole.output_text == ask(client, max_tokens=12).choices[0].message.content
    assert whole.usage.output_tokens == 12
    events = list(
        client.responses.create(
            model="built-in",
            input=[{"role": "user", "content": [{"type": "input_text", "text": "Hello, who are you?"}]}],
            max_output_tokens=12,
            temperature=0,
            stream=True,
        )
    )
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert events[0].type == "response.created" and events[-1].type == "response.incomplete"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    assert events[-1].response.output_text == whole.output_text
    with pytest.raises(openai.BadRequestError, match="not stored"):
        client.responses.create(model="built-in", input="x", previous_response_id="resp_1")


def test_anthropic(server, client):
    other = server.anthropic()
    same = {
        "model": "built-in",
        "max_tokens": 12,
        "extra_body": {"temperature": 0},
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello, who are you?"}]}],
    }
    message = other.messages.create(**same)
    assert message.content[0].text == ask(client, max_tokens=12).choices[0].message.content
    assert message.stop_reason == "max_tokens" and message.usage.output_tokens == 12
    assert other.messages.count_tokens(model="built-in", messages=same["messages"]).input_tokens == (
        message.usage.input_tokens + message.usage.cache_read_input_tokens
    )
    with other.messages.stream(**same) as stream:
        assert "".join(stream.text_stream) == message.content[0].text
        final = stream.get_final_message()
    assert final.stop_reason == "max_tokens" and final.usage.output_tokens == 12
    stop = message.content[0].text[5:9]
    stopped = other.messages.create(**same, stop_sequences=["no such text", stop])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == stop
    with_system = other.messages.create(**same, system="Be brief.")
    assert with_system.usage.input_tokens > message.usage.input_tokens
    with pytest.raises(anthropic.BadRequestError) as caught:
        other.messages.create(**(same | {"max_tokens": 0}))
    assert caught.value.body["error"]["type"] == "invalid_request_error"
    with pytest.raises(anthropic.NotFoundError):
        other.messages.create(**(same | {"model": "claude"}))


def test_many_streams_at_once_are_each_as_alone(server, client, book):
    """64 streams of mixed lengths; then each alone."""

    def request(i):
        return {"prompt": book[i * 50 : i * 50 + 40 + i * 37 % 900], "max_tokens": 4 + i * 7 % 60, "seed": i}

    def collect(i):
        text, finish = "", None
        options = request(i) | {"temperature": 0.8 if i % 2 else 0}
        for chunk in client.completions.create(model="built-in", stream=True, **options):
            text += chunk.choices[0].text
            finish = chunk.choices[0].finish_reason or finish
        return text, finish

    results = [None] * 64

    def work(i):
        results[i] = collect(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [collect(i) for i in range(64)] == results


def test_raw_stream_form(server):
    _, headers, body = server.ask("POST", "/v1/chat/completions", server.chat(max_tokens=3, stream=True))
    assert headers["Content-Type"].startswith("text/event-stream")
    events = body.decode().split("\n\n")
    assert events[-1] == "" and events[-2] == "data: [DONE]"
    for event in events[:-2]:
        assert event.startswith("data: ") and "\n" not in event
        assert json.loads(event[6:])["object"] == "chat.completion.chunk"


def test_what_a_request_leaves_out_is_as_the_models_file_recommends_it(module_godwit, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(MODELS / "qwen3", model)
    (model / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 2.0, "top_k": 1}))
    with Server(module_godwit, "-m", str(model)) as server:

        def text(**more):
            body = {"prompt": "The cat sat", "max_tokens": 16, "ignore_eos": True, "seed": 7, **more}
            return server.json("POST", "/v1/completions", body)[1]["choices"][0]["text"]

        assert text() == text(temperature=0) == text(temperature=1)
        assert text(top_k=0) == text(top_k=0, temperature=2) != text()
