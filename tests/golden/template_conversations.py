"""Conversations that every committed chat template is rendered over. See make_template_data.py."""

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "Get the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "The city's name, e.g. \"Zürich\""},
                "unit": {"type": "string", "enum": ["C", "F"], "default": "C"},
                "days": {"type": "integer"},
            },
            "required": ["city"],
        },
        "return": {"type": "string", "description": "The weather"},
    },
}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add <numbers> & return the sum",
        "parameters": {
            "type": "object",
            "properties": {
                "numbers": {"type": "array", "items": {"type": "number"}, "description": "What to add"},
                "options": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": []},
            },
            "required": ["numbers"],
        },
    },
}


def user(text):
    return {"role": "user", "content": text}


def assistant(text, **more):
    return {"role": "assistant", "content": text, **more}


def system(text):
    return {"role": "system", "content": text}


def call(name, arguments, call_id="abcdef123"):
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(text, name="get_weather", call_id="abcdef123"):
    return {"role": "tool", "content": text, "name": name, "tool_call_id": call_id}


ZURICH = {"city": "Zürich", "days": 2}
CHAT = [user("Hi  "), assistant(" Hello! "), user("How are\nyou?")]

CONVERSATIONS = {
    "user": {"messages": [user("Hello, world!")]},
    "system": {"messages": [system("Be brief. "), user("Hello")]},
    "turns": {"messages": CHAT},
    "system_turns": {"messages": [system("You are a pirate.")] + CHAT},
    "answered": {"messages": [user("2+2?"), assistant("4")]},
    "unicode": {"messages": [user("Grüße 世界 🌍 <|im_end|> \"quoted\" 'x' & <b>")]},
    "empty": {"messages": [user("")]},
    "blank_system": {"messages": [system(""), user("x")]},
    "alternation": {"messages": [user("a"), user("b")]},
    "assistant_first": {"messages": [assistant("hi"), user("b")]},
    "late_system": {"messages": [user("a"), system("late"), user("b")]},
    "unknown_role": {"messages": [user("a"), {"role": "critic", "content": "bad"}, user("b")]},
    "parts": {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look: "}, {"type": "text", "text": "here"}]}]},
    "image": {"messages": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "What is it?"}]}]},
    "tools": {"messages": [system("Use tools."), user("Weather in Zürich?")], "tools": [WEATHER, ADD]},
    "tools_no_system": {"messages": [user("Weather?")], "tools": [WEATHER]},
    "tool_call": {
        "messages": [user("Weather?"), assistant("", tool_calls=[call("get_weather", ZURICH)])],
        "tools": [WEATHER],
    },
    "tool_result": {
        "messages": [
            user("Weather?"),
            {"role": "assistant", "tool_calls": [call("get_weather", ZURICH)]},
            tool("{\"temp\": 21.5}"),
        ],
        "tools": [WEATHER, ADD],
    },
    "tool_round": {
        "messages": [
            system("Use tools."),
            user("Weather and sum?"),
            assistant("Let me see.", tool_calls=[call("get_weather", ZURICH)]),
            tool("sunny"),
            assistant(None, tool_calls=[call("add", {"numbers": [1, 2.5]}, "zyxwvu987")]),
            tool("3.5", "add", "zyxwvu987"),
            assistant("Sunny, and 3.5."),
            user("Thanks"),
        ],
        "tools": [WEATHER, ADD],
    },
    "parallel_calls": {
        "messages": [
            user("Both"),
            assistant(None, tool_calls=[call("get_weather", ZURICH), call("add", {"numbers": []}, "zyxwvu987")]),
            tool("rain"),
            tool("0", "add", "zyxwvu987"),
        ],
        "tools": [WEATHER, ADD],
    },
    "string_arguments": {
        "messages": [user("w"), assistant(None, tool_calls=[call("get_weather", "{\"city\": \"Rome\"}")]), tool("hot")],
        "tools": [WEATHER],
    },
    "thinking": {
        "messages": [
            user("1+1?"),
            assistant("<think>\nsum\n</think>\n\n2"),
            user("and 3?"),
            assistant("5", reasoning_content="2+3"),
            user("done"),
        ]
    },
    "thinking_off": {"messages": [user("Quick!")], "extra": {"enable_thinking": False}},
    "thinking_on": {"messages": [user("Slow.")], "extra": {"enable_thinking": True, "thinking": True}},
    "reasoned_answer": {"messages": [user("q"), assistant("a", reasoning_content="because\n")]},
    "date": {"messages": [user("What day?")], "extra": {"date_string": "01 Jan 2025"}},
    "documents": {
        "messages": [user("Summarise")],
        "documents": [{"title": "One", "text": "First text"}, {"title": "Two", "text": "Second"}],
    },
}
