"""KV methods of a server: the operator's, and those that requests choose within what the operator allows."""

import concurrent.futures

import pytest

from serving import Server, until

POLICIES = ("--allow-kv-policy", "snapkv:window=16", "--allow-kv-policy", "streaming", "--allow-kv-policy", "none",
            "--least-kv-budget", "10%", "--largest-kv-budget", "200")  # fmt: skip
TEXT = " ".join(f"Box {i} holds {i * 37 % 101} shells." for i in range(60))


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit, *POLICIES) as running:
        yield running


def ask(server, kv=None, tokens=40, **more):
    extra = {"kv": kv} if kv else {}
    answer = server.openai().completions.create(
        model="built-in", prompt=TEXT, temperature=0, max_tokens=tokens, extra_body={"ignore_eos": True, **extra}, **more
    )
    return answer.choices[0].text, answer.usage


def test_requests_choose(server, module_godwit):
    kinds = [None, {"policy": "none"}, {"policy": "snapkv", "budget": "20%"}, {"policy": "snapkv:window=16", "budget": 100},
             {"policy": "streaming", "budget": "80", "trigger": "chunk"}]  # fmt: skip
    alone = [ask(server, kind)[0] for kind in kinds]
    assert alone[0] == alone[1] and len(set(alone)) >= 3  # less of the text is there
    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        together = list(pool.map(lambda i: ask(server, kinds[i % 5]), range(20)))
    assert [text for text, _ in together] == alone * 4
    # Reading a prompt is the same until entries are dropped.
    assert all(usage.prompt_tokens_details.cached_tokens > 0 for _, usage in together[:4])
    with Server(module_godwit, "--kv-policy", "snapkv:window=16", "--kv-budget", "20%") as whole:
        assert ask(whole)[0] == alone[2]


@pytest.mark.parametrize(
    "kv, param, mention",
    [
        ({"policy": "h2o", "budget": "25%"}, "kv", "there are snapkv, streaming, none"),
        ({"policy": "snapkv:window=1", "budget": "25%"}, "kv", "may not be chosen"),
        ({"policy": "snapkv", "budget": "5%"}, "kv", "less than 10%"),
        ({"policy": "snapkv", "budget": 201}, "kv", "more than 200"),
        ({"policy": "snapkv", "budget": "64GiB"}, "kv", "more than 200"),
        ({"policy": "snapkv", "budget": "much"}, "kv", "no KV budget"),
        ({"policy": "snapkv", "budget": 10**30}, "kv.budget", "string"),
        ({"policy": "snapkv"}, "kv", "needs a budget"),
        ({"policy": "snapkv", "budget": -1}, "kv.budget", "string"),
        ({"policy": "none", "budget": "25%"}, "kv", "does nothing"),
        ({"policy": "streaming", "budget": "25%", "trigger": "1"}, "kv", "prefill or chunk"),
        ({"policy": "streaming", "size": 3}, "kv.size", "unknown"),
        ({"budget": "25%"}, "kv.policy", "missing"),
        ("snapkv", "kv", "object"),
    ],
)
def test_refused_with_a_reason(server, kv, param, mention):
    body = {"prompt": TEXT, "max_tokens": 2, "kv": kv}
    for path in ("/v1/completions", "/v1/chat/completions"):
        if path.endswith("chat/completions"):
            body = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 2, "kv": kv}
        status, answer = server.json("POST", path, body)
        assert status == 400 and answer["error"]["param"] == param and mention in answer["error"]["message"], answer


def test_nothing_is_allowed_unless_said(module_godwit):
    with Server(module_godwit) as plain:
        status, answer = plain.json("POST", "/v1/completions", {"prompt": "a", "kv": {"policy": "none"}})
        assert status == 400 and "may not choose" in answer["error"]["message"]
        assert plain.json("GET", "/status")[1]["kv"]["choices"] == []


def test_status_shows_method_and_what_is_retained(server):
    stream = server.openai().completions.create(
        model="built-in", prompt=TEXT, max_tokens=5000, stream=True,
        extra_body={"ignore_eos": True, "kv": {"policy": "snapkv", "budget": "20%"}},
    )  # fmt: skip
    with stream:
        next(iter(stream))
        until(lambda: any(r["state"] == "generating" for r in server.json("GET", "/status")[1]["requests"]), 30)
        body = server.json("GET", "/status")[1]
        (request,) = body["requests"]
        assert request["kv_policy"] == "snapkv" and request["kv_budget"] == "20%"
        assert 0.15 < request["kv_retained"] < 0.9
        assert body["kv"]["retained"] < 0.9 and body["kv"]["choices"] == ["snapkv", "streaming", "none"]


def test_wrong_flags(godwit):
    for flags, mention in (
        (("--allow-kv-policy", "lru"), "no KV policy is named 'lru'"),
        (("--least-kv-budget", "10%"), "do nothing"),
        (("--allow-kv-policy", "snapkv", "--largest-kv-budget", "x"), "no KV budget"),
        (("--allow-kv-policy", "snapkv", "--least-kv-budget", "9", "--largest-kv-budget", "8"), "none is between"),
    ):
        assert mention in godwit.refuses(2, "serve", "--port", "0", *flags)
