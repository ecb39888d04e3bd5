"""The report of a sweep in a headless Chromium."""

import pytest
from selenium.webdriver.common.by import By

from browsing import browser


@pytest.fixture
def driver(tmp_path):
    made = browser(tmp_path / "browser")
    yield made
    made.quit()


def test_the_report_of_a_sweep_is_drawn(godwit, book, driver, tmp_path):
    text, page = tmp_path / "book.txt", tmp_path / "page.html"
    text.write_text(book[:24000], encoding="utf-8")
    rows = godwit.json(
        "eval", "sweep", "-f", str(text), "--length", "512", "--facts", "2", "--kind", "number", "--question", "late",
        "--kv-codec", "kivi:last=64", "--kv-policy", "mikv", "--kv-budget", "50%", "25%", "--html", str(page),
    )  # fmt: skip
    assert {row["policy"] for row in rows} == {"", "mikv:base=random", "mikv"}
    driver.get(page.as_uri())
    assert [entry for entry in driver.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    assert driver.execute_script("return performance.getEntriesByType('resource').length") == 0, "it needs nothing else"
    plots = [figure for figure in driver.find_elements(By.TAG_NAME, "figure") if figure.find_elements(By.TAG_NAME, "circle")]
    assert len(plots) == 3, "recall and KL over bytes, recall over speed"
    for plot in plots:
        frame = plot.find_element(By.TAG_NAME, "svg").rect
        dots = [dot.rect for dot in plot.find_elements(By.TAG_NAME, "circle")]
        assert len(dots) == len(rows)
        for dot in dots:
            assert dot["width"] > 2
            assert frame["x"] <= dot["x"] and dot["x"] + dot["width"] <= frame["x"] + frame["width"]
            assert frame["y"] <= dot["y"] and dot["y"] + dot["height"] <= frame["y"] + frame["height"]
    cells = driver.find_elements(By.CSS_SELECTOR, "rect.cell")
    assert cells and all(cell.rect["width"] > 10 for cell in cells)
    assert len(driver.find_elements(By.CSS_SELECTOR, "table tr")) == 1 + len(rows)
