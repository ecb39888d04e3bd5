"""Answers that must be JSON."""

import json
from typing import Literal

import jsonschema
import openai
import pydantic
import pytest

from serving import Server


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    return server.openai()


SCHEMA = {
    "type": "object",
    "properties": {
        "zebra": {"type": "string", "maxLength": 12},
        "apple": {"type": "integer", "minimum": 1, "maximum": 99},
        "kind": {"enum": ["bird", "fish"]},
        "list": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 4},
    },
    "required": ["zebra", "apple", "kind", "list"],
    "additionalProperties": False,
}


def json_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "thing", "strict": True, "schema": schema}}


def ask(client, **more):
    more = {"max_tokens": 400, "temperature": 1} | more
    return client.chat.completions.create(
        model="built-in", messages=[{"role": "user", "content": "Tell me about a bird."}], **more
    )


def test_answers_follow_the_schema(client):
    for seed in range(8):
        choice = ask(client, response_format=json_schema(SCHEMA), seed=seed).choices[0]
        assert choice.finish_reason == "stop"
        answer = json.loads(choice.message.content)
        jsonschema.validate(answer, SCHEMA)
        assert list(answer) == ["zebra", "apple", "kind", "list"]  # the schema's order


def test_a_stream_is_the_same_answer(client):
    whole = ask(client, response_format=json_schema(SCHEMA), seed=3).choices[0].message.content
    stream = ask(client, response_format=json_schema(SCHEMA), seed=3, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in stream) == whole


def test_the_clients_own_types(client):
    class Bird(pydantic.BaseModel):
        size: Literal["small", "large"]
        legs: int
        sings: bool

    parsed = client.chat.completions.parse(
        model="built-in", messages=[{"role": "user", "content": "A bird?"}], response_format=Bird, max_tokens=200, seed=1
    )
    assert isinstance(parsed.choices[0].message.parsed, Bird)
    response = client.responses.parse(model="built-in", input="A bird?", text_format=Bird, max_output_tokens=200)
    assert isinstance(response.output_parsed, Bird)


def test_json_object(client):
    choices = ask(client, response_format={"type": "json_object"}, n=4, seed=1, max_tokens=300).choices
    for choice in choices:
        if choice.finish_reason == "stop":
            assert isinstance(json.loads(choice.message.content), dict)
        else:
            assert choice.finish_reason == "length" and choice.message.content.lstrip().startswith("{")


def test_text_is_free(client):
    assert ask(client, response_format={"type": "text"}, temperature=0, max_tokens=5).choices[0].message.content[0] != "{"


def test_anthropic_formats(server):
    body = server.chat("A bird?", max_tokens=300, output_config={"format": {"type": "json_schema", "schema": SCHEMA}})
    status, message = server.json("POST", "/v1/messages", body | {"temperature": 1})
    assert status == 200
    jsonschema.validate(json.loads(message["content"][0]["text"]), SCHEMA)


@pytest.mark.parametrize(
    "value, param",
    [
        ("json", "response_format"),
        ({}, "response_format.type"),
        ({"type": "xml"}, "response_format.type"),
        ({"type": "json_schema"}, "response_format.schema"),
        ({"type": "json_schema", "json_schema": {}}, "response_format.json_schema.schema"),
        (json_schema({"type": "object", "not": {}}), "response_format.json_schema.schema"),
        (json_schema({"$ref": "http://elsewhere/"}), "response_format.json_schema.schema"),
        (json_schema({"type": "string", "pattern": "(" * 200}), "response_format.json_schema.schema"),
    ],
)
def test_wrong_formats_are_named(server, value, param):
    status, body = server.json("POST", "/v1/chat/completions", server.chat(response_format=value))
    assert status == 400 and body["error"]["param"] == param, body


def test_a_hostile_schema_harms_nobody(server):
    hostile = {"type": "string", "pattern": "(a{0,1000}){0,1000}(b|c|bc){0,999}"}
    status, _ = server.json("POST", "/v1/chat/completions", server.chat(response_format=json_schema(hostile)))
    assert status == 400
    wide = {"type": "object", "properties": {f"key{i}": {} for i in range(20000)}}
    status, body = server.json("POST", "/v1/chat/completions", server.chat(response_format=json_schema(wide)))
    assert status == 400 and "limit" in body["error"]["message"]
    assert server.alive()


def test_more_tokens_than_needed_end_with_the_document(client):
    with pytest.raises(openai.BadRequestError):
        ask(client, response_format=json_schema({"type": "nothing"}))
    choice = ask(client, response_format=json_schema({"const": {"a": [1, 2]}}), temperature=0, logprobs=True).choices[0]
    assert json.loads(choice.message.content) == {"a": [1, 2]} and choice.finish_reason == "stop"
    assert "".join(e.token for e in choice.logprobs.content) == choice.message.content
