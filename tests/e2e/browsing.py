"""A headless Chromium on the page of a server."""

import json
import os
import shutil
from urllib.parse import urlsplit

from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

WAIT_S = 180  # machines are busy


def browser(folder):
    """A driver; the caller quits it."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert program and driver, "chromium or chromedriver is missing; ./dev test installs them"
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for argument in (
        "--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1100,800", "--lang=en",
        f"--user-data-dir={folder}", "--disable-background-networking", "--no-first-run",
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    ):  # fmt: skip
        options.add_argument(argument)
    if os.geteuid() == 0:
        options.add_argument("--no-sandbox")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    made = webdriver.Chrome(options, webdriver.ChromeService(driver))
    made.set_script_timeout(WAIT_S)
    made.set_page_load_timeout(WAIT_S)
    return made


class Site:
    """The page, as someone uses it."""

    def __init__(self, driver, server):
        self.driver = driver
        self.server = server
        self.address = f"http://{server.host}:{server.port}/"
        for kind in ("browser", "performance"):
            driver.get_log(kind)  # what came before is not ours
        driver.get(self.address)
        driver.execute_script("sessionStorage.clear(); localStorage.clear()")
        driver.get(self.address)

    def find(self, selector):
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def all(self, selector):
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def run(self, script, *args):
        return self.driver.execute_script(script, *args)

    def text(self, selector):
        """Text of the last such element, or nothing."""
        return self.run("return [...document.querySelectorAll(arguments[0])].at(-1)?.textContent ?? ''", selector)

    def until(self, done, message=""):
        return WebDriverWait(self.driver, WAIT_S, 0.1).until(lambda _: done(), message)

    def set(self, selector, value):
        """As if someone had typed it and left the field."""
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('change'))", selector, value,
        )  # fmt: skip

    def settings(self, temperature=0, most=64):
        self.set("#temperature", temperature)
        self.set("#most", most)

    def drop(self, name, text):
        self.run(
            "const data = new DataTransfer(); data.items.add(new File([arguments[1]], arguments[0]));"
            "document.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true}))",
            name, text,
        )  # fmt: skip
        self.until(lambda: name in self.text("#files"))

    def ask(self, text):
        box = self.find("#text")
        box.send_keys(text + "\n")

    def busy(self):
        return self.run("return document.getElementById('send').disabled")

    def answer(self):
        """Waits for the end of the answer; its text."""
        self.until(lambda: not self.busy(), "an answer that ends")
        return self.text(".assistant .body")

    def watch(self):
        """Keeps every state of the last answer: a poll from here would miss most, and frames are few where tokens are fast."""
        self.run("""
          window.requestAnimationFrame = (draw) => setTimeout(draw, 0);
          window.cancelAnimationFrame = clearTimeout;
          window.seen = [];
          new MutationObserver(() => {
            const body = [...document.querySelectorAll(".assistant .body")].at(-1);
            const bar = body?.querySelector("progress");
            if (body) window.seen.push(bar ? {value: bar.value, max: bar.max} : {text: body.textContent});
          }).observe(document.getElementById("log"), {childList: true, subtree: true, characterData: true, attributes: true});
        """)

    def seen(self):
        return self.run("return window.seen")

    def complaints(self):
        return [entry["message"] for entry in self.driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")]

    def hosts(self):
        """Whom the page asked."""
        found = set()
        for entry in self.driver.get_log("performance"):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = urlsplit(message["params"]["request"]["url"])
                if url.scheme not in ("data", "chrome"):  # the latter: the browser's own first tab
                    found.add(url.netloc)
        return found
