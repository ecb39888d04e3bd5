#!/usr/bin/env python3
"""Writes the goldens of the template engine from jinja2, set up by transformers exactly as apply_chat_template does:

    pip install transformers jinja2
    python3 tests/golden/make_template_data.py

tests/data/templates/snippets.json  every snippet of template_snippets.py with its output, or that it fails
tests/data/templates/cases.json     every tests/data/templates/*.jinja over the conversations of
                                    template_conversations.py
Both pretend that it is NOW.
"""
import datetime
import json
import pathlib

from transformers.utils.chat_template_utils import _compile_jinja_template, render_jinja_template

from template_conversations import CONVERSATIONS
from template_snippets import CONTEXT, EXPRESSIONS, TEMPLATES

DATA = pathlib.Path(__file__).resolve().parent.parent / "data" / "templates"
NOW = datetime.datetime(2024, 7, 26, 13, 5, 9)


def compiled(source):
    template = _compile_jinja_template(source)
    template.environment.globals["strftime_now"] = NOW.strftime
    return template


def snippets():
    rows = []
    sources = ["{{ %s }}" % line for line in EXPRESSIONS.replace("\\\n", "\\\x00").strip().split("\n")]
    for source in [s.replace("\x00", "\n") for s in sources] + TEMPLATES:
        try:
            rows.append({"template": source, "output": compiled(source).render(**CONTEXT)})
        except Exception:  # any failure of jinja2 or Python: ours must fail too
            rows.append({"template": source, "error": True})
    return {"context": CONTEXT, "now": NOW.isoformat(), "snippets": rows}


def cases():
    rows = []
    for path in sorted(DATA.glob("*.jinja")):
        source = path.read_text()
        compiled(source)
        for name, conversation in CONVERSATIONS.items():
            for prompt in (False, True):
                row = {"template": path.name, "conversation": name, "add_generation_prompt": prompt}
                try:
                    rendered, _ = render_jinja_template(
                        [conversation["messages"]],
                        tools=conversation.get("tools"),
                        documents=conversation.get("documents"),
                        chat_template=source,
                        add_generation_prompt=prompt,
                        bos_token="<s>",
                        eos_token="</s>",
                        **conversation.get("extra", {}),
                    )
                    row["output"] = rendered[0]
                except Exception as error:
                    row["error"] = str(error)
                rows.append(row)
    return {"now": NOW.isoformat(), "conversations": CONVERSATIONS, "cases": rows}


def write(name, value):
    (DATA / name).write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
    DATA.mkdir(parents=True, exist_ok=True)
    write("snippets.json", snippets())
    write("cases.json", cases())
