"""godwit chat on a real terminal, and from a pipe."""

import json
import re

import pexpect
import pytest

PROMPT = "\r\n> "


class Chat:
    """A conversation on a terminal. With --json each answer is one line, which keeps it apart from what is typed."""

    def __init__(self, godwit, *args):
        self.child = godwit.terminal("chat", *args)
        self.child.expect_exact("/help lists what you can type.\r\n> ")

    def type(self, line):
        self.child.sendline(line)

    def answer(self):
        """The report of the answer to what was typed."""
        self.child.expect_exact(PROMPT)
        reports = re.findall(
            r'^(?:.*\x1b\[K)?(\{".*\})\r?$', self.child.before, re.MULTILINE
        )  # a bar may have stood there
        assert len(reports) == 1, self.child.before
        return json.loads(reports[0])

    def ask(self, text):
        self.type(text)
        return self.answer()

    def command(self, line):
        """What a command prints."""
        self.type(line)
        self.child.expect_exact(PROMPT)
        return self.child.before

    def tokens_in_use(self):
        return int(re.search(r"(\d+) of \d+ tokens", self.command("/info")).group(1))

    def leave(self):
        self.child.sendeof()
        self.child.expect(pexpect.EOF)
        self.child.close()
        assert self.child.signalstatus is None
        return self.child.exitstatus


@pytest.fixture
def chat(godwit):
    opened = []

    def start(*args):
        opened.append(Chat(godwit, *args))
        return opened[-1]

    yield start
    for one in opened:
        one.child.close(force=True)


def same(report, wanted):
    return (report["prompt_tokens"], report["tokens"]) == (wanted["prompt_tokens"], wanted["tokens"])


def once(godwit, text, count=8):
    return godwit.json("run", "--chat", "-p", text, "-n", str(count))


def test_an_answer_and_ctrl_d(godwit, chat):
    talk = chat("-n", "12")
    talk.type("Who are you?")
    talk.child.expect_exact(PROMPT)
    wanted = once(godwit, "Who are you?", 12)["text"].replace("\n", "\r\n")
    assert talk.child.before.endswith(wanted), talk.child.before
    assert talk.leave() == 0


@pytest.mark.parametrize("leave", ["/exit", "/quit"])
def test_exit(chat, leave):
    talk = chat()
    talk.type(leave)
    talk.child.expect(pexpect.EOF)
    talk.child.close()
    assert talk.child.exitstatus == 0


def test_a_backslash_continues_the_line(godwit, chat):
    talk = chat("-n", "8", "--json")
    talk.type("First line\\")
    talk.child.expect_exact("\r\n. ")
    talk.type("second\\")
    talk.child.expect_exact("\r\n. ")
    assert same(talk.ask("third"), once(godwit, "First line\nsecond\nthird"))


def test_text_between_triple_quotes(godwit, chat):
    talk = chat("-n", "8", "--json")
    for line in ('"""', "First line", "", "/info is text here"):
        talk.type(line)
        talk.child.expect_exact("\r\n. ")
    assert same(talk.ask('"""'), once(godwit, "First line\n\n/info is text here"))


def test_the_conversation_goes_on_and_reset_forgets_it(godwit, chat):
    told, question = "My dog is called Rex.", "What is my dog called?"
    talk = chat("-n", "16", "--json")
    first = talk.ask(told)
    assert same(first, once(godwit, told, 16))
    used = talk.tokens_in_use()
    assert used >= first["prompt_tokens"] + len(first["tokens"]) - 1
    second = talk.ask(question)
    assert "Rex" in second["text"]
    assert second["prompt_tokens"] < used + first["prompt_tokens"]  # what was computed is not computed again
    assert talk.tokens_in_use() > used
    talk.command("/reset")
    assert talk.tokens_in_use() == 0
    assert "Rex" not in talk.ask(question)["text"]


def test_the_second_answer_sees_the_whole_conversation(godwit, chat, needle, tmp_path):
    talk = chat("-n", "40", "--json", "--kv-codec", "f32")
    talk.command(f"/file {needle.path}")
    first, second = talk.ask(needle.question), talk.ask("Say it again.")
    assert first["finish_reason"] == "stop"
    whole = tmp_path / "whole.jinja"  # the same conversation as one prompt
    whole.write_text(
        "{{ bos_token }}<|im_start|>user\n{{ messages[0].content }}<|im_end|>\n<|im_start|>assistant\n"
        + first["text"]
        + "<|im_end|>\n<|im_start|>user\nSay it again.<|im_end|>\n<|im_start|>assistant{{ '\\n' }}"
    )
    ask = ("run", "--chat", "--chat-template", str(whole), "-f", str(needle.path), "-p", needle.question)
    wanted = godwit.json(*ask, "-n", "40", "--kv-codec", "f32")
    assert second["tokens"] == wanted["tokens"]
    assert wanted["prompt_tokens"] > 1000 and second["prompt_tokens"] < 40  # what was computed is not computed again


def test_a_file_stays_until_a_message_with_it_is_answered(godwit, chat, tmp_path):
    file = tmp_path / "note.txt"
    file.write_text("The key is under the mat.")
    talk = chat("-n", "8", "--json", "--ctx", "64")
    talk.command(f"/file {file}")
    assert "files stay" in talk.command("many words " * 60)  # more than the context
    assert same(talk.ask("Where is it?"), once(godwit, file.read_text() + "\n\nWhere is it?"))
    talk.command("/reset")
    talk.command(f"/file {file}")
    talk.command("/reset")
    assert same(talk.ask("Hello"), once(godwit, "Hello"))


def test_system_message_survives_reset(godwit, chat):
    wanted = godwit.json("run", "--chat", "--system", "Be brief.", "-p", "Hello", "-n", "8")
    talk = chat("-n", "8", "--json", "--system", "Be brief.")
    assert same(talk.ask("Hello"), wanted)
    talk.command("/reset")
    assert same(talk.ask("Hello"), wanted)


def test_info_and_help(chat):
    talk = chat()
    info = talk.command("/info")
    assert "built-in (llama)" in info and "0 of 131072 tokens" in info and "KV memory" in info
    shown = talk.command("/help")
    for word in ("/file", "/reset", "/info", "/exit", "Ctrl-D", "Ctrl-C"):
        assert word in shown


def test_a_file_goes_with_the_next_message(godwit, chat, needle):
    talk = chat("-n", "40", "--json")
    assert "needle" in talk.command(f"/file {needle.path}")  # the echo of the line alone
    report = talk.ask(needle.question)
    assert needle.answer in report["text"]
    wanted = godwit.json("run", "--chat", "-f", str(needle.path), "-p", needle.question, "-n", "40")
    assert same(report, wanted)
    talk.command("/reset")
    assert talk.ask("Hello")["prompt_tokens"] == once(godwit, "Hello")["prompt_tokens"]


def test_a_tilde_is_the_home_folder(godwit, chat, tmp_path):
    (tmp_path / "home/note.txt").write_text("The cat sat.")
    talk = chat("-n", "8", "--json")
    talk.command("/file ~/note.txt")
    assert same(talk.ask("Who?"), once(godwit, "The cat sat.\n\nWho?"))
    assert "~x/note.txt: cannot be opened" in talk.command("/file ~x/note.txt")
    assert "/home/none.txt: cannot be opened" in talk.command("/file ~/none.txt")


def test_a_missing_file_is_said_and_the_talk_goes_on(godwit, chat):
    talk = chat("-n", "8", "--json")
    assert "/nowhere/file.txt: cannot be opened" in talk.command("/file /nowhere/file.txt")
    assert same(talk.ask("Hello"), once(godwit, "Hello"))


def test_an_unknown_command_is_said_and_not_asked(chat):
    talk = chat("-n", "4")
    assert "/rest" in talk.command("/rest").replace("/rest", "", 1)
    assert talk.tokens_in_use() == 0


def test_ctrl_c_stops_the_answer_and_not_the_program(godwit, chat):
    talk = chat("--ignore-eos")
    talk.type("Tell me a long story")
    talk.child.expect(r"\r\n(.|\n){60}")  # the answer is under way
    talk.child.sendintr()
    talk.child.expect_exact(PROMPT)
    used = talk.tokens_in_use()
    assert 20 < used < 131072
    assert talk.tokens_in_use() == used  # nothing goes on behind the prompt
    talk.command("/reset")
    assert talk.tokens_in_use() == 0
    assert talk.leave() == 0


def test_ctrl_c_while_reading_forgets_that_message(godwit, chat, book, tmp_path):
    file = tmp_path / "book.txt"
    file.write_text(book, encoding="utf-8")
    talk = chat("-n", "8", "--json")
    talk.command(f"/file {file}")
    talk.type("What happens?")
    talk.child.expect(r"read \[[#.]+\] +\d+%")
    talk.child.sendintr()
    talk.child.expect(r"stopped after \d+ of \d+ tokens")
    talk.child.expect_exact(PROMPT)
    wanted = once(godwit, "Hello")
    assert talk.ask("Hello")["tokens"] == wanted["tokens"]
    assert talk.leave() == 0


def test_a_second_ctrl_c_does_not_end_the_program(godwit, chat, book, tmp_path):
    file = tmp_path / "book.txt"
    file.write_text(book, encoding="utf-8")
    talk = chat("-n", "8", "--json", "--prefill-chunk", "4096")
    talk.command(f"/file {file}")
    talk.type("What happens?")
    talk.child.expect(r"read \[[#.]+\] +\d+%")
    talk.child.sendintr()
    talk.child.sendintr()
    talk.child.expect(r"stopped after \d+ of \d+ tokens")
    talk.child.expect_exact(PROMPT)
    assert talk.ask("Hello")["tokens"] == once(godwit, "Hello")["tokens"]
    assert talk.leave() == 0


def test_ctrl_c_abandons_a_message_of_several_lines(godwit, chat):
    talk = chat("-n", "8", "--json")
    talk.child.sendline('"""')
    talk.child.expect_exact("\n. ")
    talk.child.sendline("never mind")
    talk.child.expect_exact("\n. ")
    talk.child.sendintr()
    talk.child.expect_exact(PROMPT)
    assert same(talk.ask("Hello"), once(godwit, "Hello"))
    assert talk.leave() == 0


def test_ctrl_c_at_the_prompt_drops_the_line_and_not_the_program(godwit, chat):
    talk = chat("-n", "8", "--json")
    talk.child.send("half a line")
    talk.child.expect_exact("half a line")
    talk.child.sendintr()
    talk.child.expect_exact(PROMPT)
    assert same(talk.ask("Hello"), once(godwit, "Hello"))
    assert talk.leave() == 0


def test_a_message_too_long_is_refused_and_the_talk_goes_on(godwit, chat, page):
    talk = chat("-n", "8", "--json", "--ctx", "64")
    talk.command(f"/file {page}")
    assert "do not fit" in talk.command("Who?")
    assert same(talk.ask("Hello"), once(godwit, "Hello"))


def test_history_is_kept_between_talks(godwit, chat, tmp_path):
    history = tmp_path / "home/state/godwit/history"
    talk = chat("-n", "4", "--json")
    first = talk.ask("Remember these words")
    assert talk.leave() == 0
    assert "Remember" in history.read_text()
    talk = chat("-n", "4", "--json")
    talk.child.send("\x1b[A")
    talk.child.expect_exact("Remember these words")
    assert same(talk.ask(""), first)
    talk.ask("More words")
    assert talk.leave() == 0
    assert history.read_text().index("Remember") < history.read_text().index("More")


def test_an_empty_state_home_is_none(godwit, chat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    godwit.env["XDG_STATE_HOME"] = ""
    talk = chat()
    talk.command("/info")
    assert talk.leave() == 0
    assert (tmp_path / "home/.local/state/godwit/history").is_file()
    assert not (tmp_path / "godwit").exists()


def test_from_a_pipe(godwit):
    out = godwit("chat", "-n", "8", "--json", stdin=b'Hello\n/reset\nFirst\\\nsecond\n/reset\n"""\na\nb\n"""')
    reports = [json.loads(line) for line in out.splitlines()]
    assert len(reports) == 3
    for report, text in zip(reports, ("Hello", "First\nsecond", "a\nb")):
        assert same(report, once(godwit, text))
    assert godwit("chat", "-n", "8", stdin=b"Hello") == once(godwit, "Hello")["text"] + "\n"
    assert godwit("chat", "-n", "8") == ""


def test_an_error_from_a_pipe_ends_the_program(godwit, page):
    message = godwit.refuses(1, "chat", "--ctx", "64", stdin=f"/file {page}\nWho?\nHello\n".encode())
    assert "do not fit" in message
