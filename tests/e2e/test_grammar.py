"""Answers held to JSON schemas, judged by the jsonschema package: random schemas, random sampling, several models."""

import json
import random
import string

import pytest
from jsonschema import Draft202012Validator

from conftest import MODELS

PROMPT = "It was a dark night, and the old man said"
# Tokenizers of different kinds: byte-level BPE, SentencePiece BPE with byte fallback.
TINY = ["qwen3", "llama3", "llama", "gemma2"]


def judge(schema):
    return Draft202012Validator(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


class RandomSchema:
    """A schema of the supported keywords; most accept short documents."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.defs = {}

    def word(self):
        alphabet = string.ascii_lowercase + 'é"\\/~ \n'
        return "".join(self.random.choice(alphabet) for _ in range(self.random.randint(0, 6)))

    def value(self):
        r = self.random
        word = self.word()
        return r.choice([None, True, False, r.randint(-99, 99), 0.5, word, [1, word], {word: None}])

    def string(self):
        r = self.random
        kind = r.randrange(5)
        if kind == 0:
            low = r.randint(0, 5)
            return {"type": "string", "minLength": low, "maxLength": low + r.randint(0, 80)}
        if kind == 1:
            patterns = ["^[a-z]{1,8}$", "^(ab|c)*d?$", "^\\d{3}-\\d{4}$", "^[^x]?$"]
            return {"type": "string", "pattern": r.choice(patterns)}
        if kind == 2:
            formats = ["date", "ipv4", "ipv6", "uuid", "email", "date-time", "time"]
            return {"type": "string", "format": r.choice(formats)}
        return {"type": "string", "maxLength": r.randint(0, 12)}

    def number(self):
        r = self.random
        schema = {"type": r.choice(["integer", "number"])}
        low = r.randint(-300, 300) if schema["type"] == "integer" else round(r.uniform(-30, 30), r.randint(0, 3))
        if r.random() < 0.6:
            schema[r.choice(["minimum", "exclusiveMinimum"])] = low
        if r.random() < 0.6:
            schema[r.choice(["maximum", "exclusiveMaximum"])] = low + r.choice([2, 7, 1000])
        if r.random() < 0.3:
            schema["multipleOf"] = 2 if schema["type"] == "integer" else 0.5
        return schema

    def array(self, depth):
        r = self.random
        low = r.randint(0, 2)
        schema = {"type": "array", "items": self.schema(depth - 1), "minItems": low, "maxItems": low + r.randint(0, 2)}
        if r.random() < 0.3:
            schema["prefixItems"] = [self.schema(depth - 1) for _ in range(r.randint(1, 2))]
        return schema

    def object(self, depth):
        r = self.random
        names = list({self.word() for _ in range(r.randint(0, 4))})
        schema = {
            "type": "object",
            "properties": {name: self.schema(depth - 1) for name in names},
            "required": [name for name in names if r.random() < 0.6],
        }
        more = r.random()
        if more < 0.5:
            schema["additionalProperties"] = False
        elif more < 0.7:
            schema["additionalProperties"] = self.schema(0)
        return schema

    def schema(self, depth):
        r = self.random
        kind = r.randrange(11 if depth > 0 else 6)
        if kind == 0:
            return {"enum": [self.value() for _ in range(r.randint(1, 4))]}
        if kind == 1:
            return {"const": self.value(), "title": "a constant"}
        if kind == 2:
            return {"type": r.sample(["boolean", "null", "integer"], r.randint(1, 2))}
        if kind == 3:
            return self.number()
        if kind in (4, 5):
            return self.string()
        if kind in (6, 7):
            return self.object(depth)
        if kind == 8:
            return self.array(depth)
        if kind == 9:
            return {"anyOf": [self.schema(depth - 1) for _ in range(r.randint(1, 3))]}
        name = f"d{len(self.defs)}"
        self.defs[name] = {}
        self.defs[name] = self.schema(depth - 1)
        return {"$ref": f"#/$defs/{name}"}

    def whole(self):
        schema = self.schema(3)
        return {**schema, "$defs": self.defs} if self.defs else schema


def answer(godwit, file, schema, seed):
    """Whether the answer ended by itself; it is then judged."""
    Draft202012Validator.check_schema(schema)
    file.write_text(json.dumps(schema))
    sampling = [
        ("--temperature", "1"),
        ("--temperature", "3", "--top-k", "40"),
        ("--temperature", "0"),
        ("--temperature", "0.7", "--top-p", "0.9"),
    ][seed // 4 % 4]
    ask = ("-m", str(MODELS / TINY[seed % len(TINY)]), "-p", PROMPT, "-n", "400", "--seed", str(seed), *sampling)
    done = godwit.process("run", *ask, "--json-schema", str(file), "--json")
    if done.returncode != 0:  # there are schemas that nothing satisfies: an interval without an integer
        assert b"nothing satisfies" in done.stderr, done.stderr
        return False
    report = json.loads(done.stdout)
    if report["finish_reason"] == "length":
        assert report["completion_tokens"] == 400
        return False
    assert report["finish_reason"] == "stop"
    judge(schema).validate(json.loads(report["text"]))
    return True


@pytest.mark.parametrize("group", range(5))
def test_random_schemas(godwit, tmp_path, group):
    seeds = range(20 * group, 20 * group + 20)
    assert sum(answer(godwit, tmp_path / "schema.json", RandomSchema(seed).whole(), seed) for seed in seeds) >= 15


def test_held_answers_are_valid_and_free_ones_are_not(godwit, tmp_path):
    schema = {"type": "object", "properties": {"a": {"type": "string", "maxLength": 9}}, "required": ["a"]}
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(schema))
    for seed in range(8):
        ask = ("run", "-p", PROMPT, "-n", "120", "--temperature", "1", "--seed", str(seed))
        report = godwit.json(*ask, "--json-schema", str(file))
        assert report["finish_reason"] == "stop"
        judge(schema).validate(json.loads(report["text"]))
        with pytest.raises(ValueError):
            json.loads(godwit.json(*ask)["text"])


def test_any_object(godwit):
    for seed in range(6):
        ask = ("run", "-p", PROMPT, "-n", "400", "--temperature", "1", "--seed", str(seed))
        report = godwit.json(*ask, "--json-object")
        if report["finish_reason"] == "stop":
            assert isinstance(json.loads(report["text"]), dict)
        else:
            assert report["finish_reason"] == "length" and report["text"].lstrip().startswith("{")


def test_a_schema_comes_from_stdin_too_and_errors_name_the_place(godwit, tmp_path):
    assert json.loads(godwit("run", "-p", PROMPT, "--json-schema", "-", stdin=b'{"enum":["only"]}')) == "only"
    file = tmp_path / "schema.json"
    file.write_text('{"properties":{"a":{"not":{}}}}')
    message = godwit.refuses(1, "run", "-p", PROMPT, "--json-schema", str(file))
    assert str(file) in message and "'/properties/a'" in message and "'not'" in message
    file.write_text('{"type":')
    assert "not valid JSON" in godwit.refuses(1, "run", "-p", PROMPT, "--json-schema", str(file))
    assert "nowhere.json" in godwit.refuses(1, "run", "-p", PROMPT, "--json-schema", "nowhere.json")
    assert "excludes" in godwit.refuses(2, "run", "-p", PROMPT, "--json-schema", str(file), "--json-object")
