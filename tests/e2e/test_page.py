"""The page at / in a headless Chromium, and what it asks the server for."""

import contextlib
import threading

import pytest

from browsing import Site, browser
from serving import Server, until


@pytest.fixture(scope="module")
def server(module_godwit):
    with Server(module_godwit, "--max-running", "4") as running:
        yield running


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    made = browser(tmp_path_factory.mktemp("browser"))
    yield made
    made.quit()


@pytest.fixture
def site(driver, server):
    return Site(driver, server)


def chat(server, **more):
    return server.openai().chat.completions.create(
        model="built-in", messages=[{"role": "user", "content": "Tell me a story about the sea. " * 30}],
        temperature=0, stream=True, **more
    )  # fmt: skip


def test_progress_comes_only_when_asked_for(server):
    assert not any("progress" in chunk.model_extra for chunk in chat(server, max_tokens=4))
    told = [
        chunk.model_extra["progress"]
        for chunk in chat(server, max_tokens=4, stream_options={"include_progress": True}, extra_body={"cache_salt": "a"})
        if "progress" in chunk.model_extra
    ]
    assert told[-1]["computed_tokens"] == told[-1]["prompt_tokens"] > 200
    assert told[0]["cached_tokens"] == 0 and told[-1]["kv_bytes"] > 0 and told[-1]["kv_retained"] == 1
    status, body = server.json("POST", "/v1/chat/completions", server.chat(stream=True, stream_options={"include_progress": 1}))
    assert status == 400 and body["error"]["param"] == "stream_options.include_progress"


def test_files_are_kept_by_browsers(server):
    for path, kind in (("/", "text/html"), ("/page.css", "text/css"), ("/page.js", "text/javascript")):
        status, headers, body = server.ask("GET", path)
        assert status == 200 and headers["Content-Type"].startswith(kind) and body
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        status, again, body = server.ask("GET", path, headers={"If-None-Match": headers["ETag"]})
        assert status == 304 and body == b"" and again["ETag"] == headers["ETag"]
    assert server.json("POST", "/")[0] == 405


def test_loads_quietly_and_asks_nobody_else(site):
    site.until(lambda: site.text("#model") == "built-in")
    assert site.driver.title == "Godwit"
    assert site.hosts() == {f"{site.server.host}:{site.server.port}"}
    assert site.complaints() == []
    # The policy is what the browser enforces.
    refused = site.driver.execute_async_script(
        "const tell = arguments[0]; document.addEventListener('securitypolicyviolation', (e) => tell(e.violatedDirective));"
        "fetch('http://127.0.0.1:9/').catch(() => {})"
    )
    assert refused == "connect-src"


def test_a_conversation(site):
    site.settings(most=60)
    site.ask("Hello, who are you and what can you do?")
    assert "I am a small test model" in site.answer()
    figures = site.text(".figures")
    assert "first token" in figures and "tokens/s" in figures and "f16" in figures and "100% retained" in figures
    site.ask("My dog is called Rex. What is my dog called?")
    assert "Rex" in site.answer() and len(site.all(".message")) == 4
    assert site.complaints() == []
    site.find("#fresh").click()
    assert site.all(".message") == [] and site.find("#hint").is_displayed()


def test_an_answer_grows(site):
    site.settings(temperature=2, most=600)  # at random, where most answers are longer than a sentence
    site.watch()
    for _ in range(10):
        site.ask("Tell me a long story.")
        site.answer()
        texts = [state["text"] for state in site.seen() if state.get("text")]
        assert all(texts[-1].startswith(text) for text in texts)
        if len(set(texts)) >= 3:
            return
        site.find("#fresh").click()
        site.run("window.seen = []")
    raise AssertionError("ten answers came in one piece each")


def test_a_dropped_file_is_read_and_used(site, long_needle):
    site.settings()
    site.drop("long.txt", long_needle.path.read_text(encoding="utf-8"))
    site.watch()
    site.ask(long_needle.question)
    assert long_needle.answer in site.answer()
    assert "long.txt" in site.text(".user .files") and site.text("#files") == ""
    bars = [state for state in site.seen() if state.get("max", 1) > 4000]
    assert len({state["value"] for state in bars}) >= 3 and bars[-1]["value"] <= bars[-1]["max"]
    assert [b["value"] for b in bars] == sorted(b["value"] for b in bars)
    assert site.text(".figure-cached") == "0 cached" and "MiB" in site.text(".figure-kv")
    # The next question finds the conversation so far in the prefix cache.
    site.ask(long_needle.question)
    assert long_needle.answer in site.answer()
    assert int(site.text(".figure-cached").split()[0].replace(",", "")) > 4000


def test_a_chosen_file(site, needle, tmp_path):
    site.settings()
    other = tmp_path / "picture.bin"
    other.write_bytes(b"\x89PNG\xff\x00")
    site.find("#choose").send_keys(str(other))
    site.until(lambda: "picture.bin is not a text" in site.text("#notice"))
    site.find("#choose").send_keys(str(needle.path))
    site.until(lambda: "needle.txt" in site.text("#files"))
    site.ask(needle.question)
    assert needle.answer in site.answer()


def test_stop(site, book):
    site.settings()
    site.drop("book.txt", book)
    gone = len([r for r in site.server.requests if r.get("client_gone")])
    site.watch()
    site.ask("Who did it?")
    site.until(lambda: any(0 < state.get("value", 0) < state.get("max", 1) for state in site.seen()), "progress")
    site.find("#stop").click()
    site.answer()
    assert "stopped" in site.text(".figures") and not site.find("#stop").is_displayed()
    site.server.logged(count=gone + 1, seconds=60, client_gone=True)
    until(lambda: site.server.json("GET", "/status")[1]["requests"] == [], 60)
    assert "book.txt" in site.text("#files")  # to ask again


def test_text_never_becomes_markup(site):
    site.settings(most=1)
    site.set("#text", "<img src=x onerror=alert(1)> `<i>` **<b>**\n```\n<script>alert(2)</script>\n```\nend")
    site.find("#send").click()
    site.answer()
    assert site.all("#log img, #log script, #log i, #log b") == []
    assert site.text(".user pre code") == "<script>alert(2)</script>\n"
    assert site.text(".user .prose") == "end" and site.text(".user strong") == "<b>"
    assert site.complaints() == []


def test_errors_are_shown_as_they_come(site):
    site.settings(most=10**7)
    site.ask("Hello")
    site.until(lambda: not site.busy())
    assert "400 context_length_exceeded" in site.text(".error") and "10000000" in site.text(".error")
    assert site.run("return document.getElementById('text').value") == "Hello"


def test_keys(driver, godwit, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("ann:sk-ann-secret\n")
    with Server(godwit, "--api-keys", str(keys)) as server:
        site = Site(driver, server)
        site.until(lambda: "401 invalid_api_key" in site.text("#notice"))
        site.settings()
        site.set("#key", "sk-wrong")
        site.ask("Who are you?")
        site.until(lambda: "401 invalid_api_key: no valid API key" in site.text(".error"))
        site.set("#key", "sk-ann-secret")
        site.until(lambda: site.text("#notice") == "" and site.text("#model") == "built-in")
        driver.refresh()
        site.until(lambda: site.text("#model") == "built-in")
        assert site.run("return [sessionStorage.key, sessionStorage.getItem('key')]")[1] == "sk-ann-secret"
        assert "secret" not in site.run("return JSON.stringify(localStorage)") and "secret" not in driver.current_url
        site.settings()
        site.ask("Who are you?")
        assert "Godwit" in site.answer()


@contextlib.contextmanager
def endless_answer(server):
    """Somebody else's answer, which goes on until the block ends."""
    enough = threading.Event()

    def stream():
        with chat(server, max_tokens=100000, extra_body={"ignore_eos": True}) as chunks:
            for _ in chunks:
                if enough.is_set():
                    return

    thread = threading.Thread(target=stream)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join(60)


def test_status_shows_what_runs(site):
    site.find("#tab-status").click()
    site.until(lambda: "No request" in site.text("#others"))
    with endless_answer(site.server):
        site.until(lambda: "generating" in site.text("#requests tr"))
        row = site.text("#requests tr")
        assert "KiB" in row or "MiB" in row
        site.until(lambda: not site.text("#speed").startswith(("0.0", "–")), "tokens per second")
        site.until(lambda: len(site.find("#speed-plot polyline").get_attribute("points").split()) >= 3)
        assert "f16" in site.text("#kv-method") and "100% retained" in site.text("#kv-method")
        assert "blocks" in site.text("#prefix-size") and site.run("return document.getElementById('kv-bar').value") > 0
    site.until(lambda: "No request" in site.text("#others"))
    assert site.complaints() == []


def test_kv_methods(driver, godwit):
    flags = ("--kv-policy", "streaming", "--kv-budget", "25%", "--allow-kv-policy", "snapkv", "--allow-kv-policy", "none")
    with Server(godwit, *flags) as server:
        site = Site(driver, server)
        site.settings(most=200)
        site.until(lambda: len(site.all("#policy option")) == 3)

        def retained(selector):
            return float(site.text(selector).split("%")[0].split()[-1])

        story = "Tell me a story about the sea. " * 100
        for policy, budget, method in (("", "", "streaming 25%"), ("snapkv", "10%", "snapkv 10%"), ("none", "", "all entries")):
            site.set("#policy", policy)
            site.set("#budget", budget)
            site.find("#fresh").click()
            site.set("#text", story)
            site.find("#send").click()
            site.answer()
            assert method in site.text(".figure-method")
            share = retained(".figure-method")
            assert share == 100 if policy == "none" else 8 < share < 60, site.text(".figure-method")
        site.set("#policy", "snapkv")
        site.set("#budget", "lots")
        site.ask("Hello")
        site.until(lambda: "no KV budget" in site.text(".error"))
        with endless_answer(server):
            site.find("#tab-status").click()
            site.until(lambda: "generating" in site.text("#requests tr") and "streaming 25%" in site.text("#requests tr"))
            site.until(lambda: "with streaming" in site.text("#kv-method") and retained("#kv-method") < 90)
        assert [m for m in site.complaints() if "400" not in m] == []


def colours(site, system):
    site.driver.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": system}]}
    )
    colour = site.run("return getComputedStyle(document.body).backgroundColor")
    return "dark" if int(colour.removeprefix("rgb(").split(",")[0]) < 128 else "light"


def test_dark_and_light(site):
    assert colours(site, "dark") == "dark" and colours(site, "light") == "light"
    site.find("#theme").click()
    assert site.text("#theme") == "Colours: dark" and colours(site, "light") == "dark"
    site.driver.refresh()
    assert colours(site, "light") == "dark"  # kept
    site.find("#theme").click()
    assert colours(site, "dark") == "light"
    site.find("#theme").click()
    assert colours(site, "dark") == "dark" and colours(site, "light") == "light"


def test_narrow_screens(site):
    site.driver.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 340, "height": 640, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        for tab in ("#tab-status", "#tab-chat"):
            site.find(tab).click()
            assert site.run("return document.documentElement.scrollWidth") <= 340
        assert site.find("#send").is_displayed() and site.find("#text").is_displayed()
    finally:
        site.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
