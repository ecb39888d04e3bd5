"""Ranks on hosts of their own, with a slow link between them: network namespaces, where the machine allows them."""

import re
import subprocess
import sys

import pytest
from conftest import REPOSITORY

TOOL = [sys.executable, str(REPOSITORY / "tools/shaped_link")]


@pytest.fixture(scope="module", autouse=True)
def namespaces():
    if subprocess.run([*TOOL, "--probe"], capture_output=True, timeout=60).returncode != 0:
        pytest.skip("this machine allows no network namespaces")


def namespace_names():
    return subprocess.run(["ip", "netns", "list"], capture_output=True).stdout


def test_8_bit_pages_are_waited_for_less(godwit):
    before = namespace_names()
    # So slow that the link counts and not who else uses this machine.
    options = ["--rate", "100mbit", "--cached", "3072", "--new", "64", "--repetitions", "2"]
    done = subprocess.run([*TOOL, godwit.path, *options], capture_output=True, timeout=400, env=godwit.env)
    output = done.stdout.decode()
    assert done.returncode == 0, done.stderr.decode()
    rows = {line.split("|")[1].strip(): line.split("|") for line in output.splitlines() if line.startswith("| ")}
    sent = {codec: float(rows[codec][5]) for codec in ["f16", "q8"]}
    assert sent["q8"] < 0.6 * sent["f16"]
    assert float(re.search(r"first over second: ([\d.]+)", output)[1]) >= 1.5, output
    assert namespace_names() == before
