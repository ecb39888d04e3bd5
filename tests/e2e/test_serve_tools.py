"""Tools: calls that may come, that must come, and their way back into the conversation."""

import json

import jsonschema
import openai
import pytest

from serving import Server

WEATHER = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
CLOCK = {"type": "object", "properties": {"zone": {"enum": ["UTC", "CET"]}}, "required": ["zone"], "additionalProperties": False}
SCHEMAS = {"weather": WEATHER, "clock": CLOCK}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"The {name}.", "parameters": schema}}
    for name, schema in SCHEMAS.items()
]
QUESTION = [{"role": "user", "content": "What is the weather in Rome?"}]


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit, "--tools-in-prompt") as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


def ask(client, messages=QUESTION, tools=TOOLS, **more):
    more = {"max_tokens": 2000, "seed": 1} | more
    return client.chat.completions.create(model="built-in", messages=messages, tools=tools, **more)


def check(calls):
    assert calls
    for call in calls:
        jsonschema.validate(json.loads(call.function.arguments), SCHEMAS[call.function.name])
    assert len({call.id for call in calls}) == len(calls)


def test_a_call_that_must_come(client):
    for seed in range(4):
        choice = ask(client, tool_choice="required", seed=seed).choices[0]
        assert choice.finish_reason == "tool_calls" and choice.message.content is None
        check(choice.message.tool_calls)


def test_one_call_of_a_named_tool(client):
    named = {"type": "function", "function": {"name": "clock"}}
    (call,) = ask(client, tool_choice=named).choices[0].message.tool_calls
    assert call.function.name == "clock"
    check([call])
    single = ask(client, tool_choice="required", parallel_tool_calls=False, seed=5).choices[0].message.tool_calls
    assert len(single) == 1


def test_a_stream_has_the_same_calls(client):
    whole = ask(client, tool_choice="required").choices[0].message.tool_calls
    calls, finish = [], None
    for chunk in ask(client, tool_choice="required", stream=True):
        delta = chunk.choices[0].delta
        calls += delta.tool_calls or []
        finish = chunk.choices[0].finish_reason or finish
        assert not delta.content
    assert finish == "tool_calls" and [c.index for c in calls] == list(range(len(whole)))
    assert [c.function.arguments for c in calls] == [c.function.arguments for c in whole]


def test_calls_that_may_come_or_not(client):
    choice = ask(client, temperature=0, max_tokens=60).choices[0]
    if choice.message.tool_calls:
        assert choice.finish_reason == "tool_calls"
    else:
        assert choice.message.content
    none = ask(client, tool_choice="none", temperature=0, max_tokens=20)
    plain = client.chat.completions.create(model="built-in", messages=QUESTION, temperature=0, max_tokens=20)
    assert none.choices[0].message == plain.choices[0].message
    assert none.usage.prompt_tokens == plain.usage.prompt_tokens  # the tools are not in the prompt


def test_results_come_back(client):
    call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Rome","days":1}'}}
    turn = [
        *QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "It is sunny."},
    ]
    answer = ask(client, turn, temperature=0, max_tokens=20)
    assert answer.usage.prompt_tokens > ask(client, max_tokens=1).usage.prompt_tokens + 10
    assert answer.choices[0].message.content or answer.choices[0].message.tool_calls


def respond(client, **more):
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    same = {"model": "built-in", "input": QUESTION, "tools": tools, "max_output_tokens": 2000, "extra_body": {"seed": 3}}
    return client.responses.create(**(same | more))


def test_responses(client):
    whole = respond(client, tool_choice="required")
    calls = whole.output
    assert whole.status == "completed" and {c.type for c in calls} == {"function_call"} and whole.output_text == ""
    for call in calls:
        jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert len({c.call_id for c in calls}) == len({c.id for c in calls}) == len(calls)
    assert whole.tool_choice == "required" and [tool.name for tool in whole.tools] == list(SCHEMAS)
    (named,) = respond(client, tool_choice={"type": "function", "name": "clock"}).output
    assert named.name == "clock"
    assert len(respond(client, tool_choice="required", parallel_tool_calls=False).output) == 1
    # As a stream: each call whole, in its place.
    events = list(respond(client, tool_choice="required", stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert [e.arguments for e in events if e.type == "response.function_call_arguments.done"] == [c.arguments for c in calls]
    assert [e.delta for e in events if e.type == "response.function_call_arguments.delta"] == [c.arguments for c in calls]
    assert [e.output_index for e in events if e.type == "response.output_item.done"] == list(range(len(calls)))
    assert [c.arguments for c in events[-1].response.output] == [c.arguments for c in calls]
    # Calls and results on their way back, as the client has them.
    turn = [*QUESTION, *(c.to_dict() for c in calls)]
    turn += [{"type": "function_call_output", "call_id": c.call_id, "output": "It is sunny."} for c in calls]
    back = respond(client, input=turn, tool_choice="none", max_output_tokens=8)
    assert back.output[0].type == "message" and back.usage.input_tokens > whole.usage.input_tokens - 400
    plain = respond(client, tool_choice="none", max_output_tokens=8)
    assert plain.usage.input_tokens < back.usage.input_tokens and plain.usage.input_tokens < whole.usage.input_tokens


@pytest.mark.parametrize(
    "more, param",
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "function", "name": "b"}}, "tool_choice"),
        ({"tools": [{"type": "function", "name": "a"}], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"tools": [{"type": "function", "name": "a"}], "tool_choice": 3}, "tool_choice"),
        ({"input": [{"type": "reasoning"}]}, "input[0].type"),
        ({"input": [{"type": "function_call", "call_id": "1", "name": "a", "arguments": "{"}]}, "input[0].arguments"),
        ({"input": [{"type": "function_call_output", "call_id": "1"}]}, "input[0].output"),
        ({"max_tool_calls": 3}, "max_tool_calls"),
        ({"truncation": "auto"}, "truncation"),
        ({"top_logprobs": 3}, "top_logprobs"),
    ],
)
def test_responses_name_what_is_wrong(server, more, param):
    status, body = server.json("POST", "/v1/responses", {"input": "Hello", "max_output_tokens": 2} | more)
    assert status == 400 and body["error"]["param"] == param, body


def test_anthropic_tools(server):
    other = server.anthropic()
    tools = [{"name": name, "description": "It.", "input_schema": schema} for name, schema in SCHEMAS.items()]
    same = {"model": "built-in", "max_tokens": 2000, "messages": QUESTION, "tools": tools, "extra_body": {"seed": 2}}
    message = other.messages.create(**same, tool_choice={"type": "any"})
    assert message.stop_reason == "tool_use"
    uses = [block for block in message.content if block.type == "tool_use"]
    for use in uses:
        jsonschema.validate(use.input, SCHEMAS[use.name])
    with other.messages.stream(**same, tool_choice={"type": "any"}) as stream:
        final = stream.get_final_message()
    assert [b.input for b in final.content] == [b.input for b in message.content] and final.stop_reason == "tool_use"
    (use,) = other.messages.create(**same, tool_choice={"type": "tool", "name": "clock"}).content
    assert use.name == "clock"
    turn = [
        *QUESTION,
        {"role": "assistant", "content": [{"type": "tool_use", "id": use.id, "name": use.name, "input": use.input}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": use.id, "content": "noon"}]},
    ]
    back = other.messages.create(**(same | {"messages": turn, "max_tokens": 10}))
    assert back.usage.output_tokens > 0
    count = other.messages.count_tokens(model="built-in", messages=turn, tools=tools).input_tokens
    assert count == back.usage.input_tokens + back.usage.cache_read_input_tokens


@pytest.mark.parametrize(
    "more, param",
    [
        ({"tools": "x"}, "tools"),
        ({"tools": [{}]}, "tools[0].type"),
        ({"tools": [{"type": "retrieval"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a", "parameters": 5}}]}, "tools[0].function.parameters"),
        ({"tools": TOOLS * 100}, "tools"),
        ({"tools": TOOLS, "tool_choice": "maybe"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "function": {"name": "nothing"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": TOOLS, "response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"id": "1"}]}]}, "messages[0].tool_calls[0].function"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "a", "arguments": "{"}}]}]},
            "messages[0].tool_calls[0].function.arguments",
        ),
    ],
)
def test_wrong_tools_are_named(server, more, param):
    status, body = server.json("POST", "/v1/chat/completions", server.chat() | more)
    assert status == 400 and body["error"]["param"] == param, body


def test_a_template_without_tools_says_so(module_godwit):
    with Server(module_godwit) as strict, pytest.raises(openai.BadRequestError, match="--tools-in-prompt"):
        ask(strict.openai())
