"""godwit methods: the list is what the program really has."""

from conftest import MODELS


def test_json_fields(godwit):
    report = godwit.json("methods")
    assert set(report) == {"kv_codecs", "kv_policies", "prefill", "decode", "models", "weight_types", "simd"}
    for table in ("kv_codecs", "kv_policies", "prefill", "decode"):
        for row in report[table]:
            fields = {"name", "description", "reference", "parameters"}
            assert set(row) == fields | ({"needs_budget", "demotes"} if table == "kv_policies" else set())
            assert row["name"] and row["description"]
    assert {"f32", "f16", "bf16", "q8", "q4", "kivi", "mustafar"} <= {row["name"] for row in report["kv_codecs"]}
    assert "dense" in {row["name"] for row in report["prefill"]} & {row["name"] for row in report["decode"]}
    assert {"f32", "f16", "bf16", "q8_0", "q4_k", "mxfp4"} <= set(report["weight_types"])


def test_text_names_everything(godwit):
    text, report = godwit("methods").split(), godwit.json("methods")
    for table in ("kv_codecs", "kv_policies", "prefill", "decode", "models"):
        assert all(row["name"] in text for row in report[table])
    assert set(report["weight_types"]) | set(report["simd"]) <= set(text)


def test_everything_listed_can_be_used(godwit):
    report = godwit.json("methods")
    for option, table in (("--kv-codec", "kv_codecs"), ("--prefill", "prefill"), ("--decode", "decode")):
        for row in report[table]:
            if row["name"] in ("million", "xquant"):
                continue  # which need files: test_codecs.py
            # The built-in model: its heads are of a size that every codec takes.
            name = f"kvtuner:bits={'-'.join(['84'] * 10)}" if row["name"] == "kvtuner" else row["name"]
            answer = godwit.json("run", "-p", "The cat", "-n", "2", option, name)
            assert answer["completion_tokens"] == 2
            assert option != "--kv-codec" or answer["kv_codec"] == name


def test_every_policy_listed_can_be_used(godwit, page, tmp_path):
    gates = tmp_path / "gates.json"
    gates.write_text('{"format": "godwit.duo-gates.1", "sinks": 4, "recent": 64, "gates": [[0], [1]]}')
    ask = ("run", "-m", str(MODELS / "qwen3.gguf"), "-f", str(page), "-n", "4", "--ignore-eos")
    whole = godwit.json(*ask)
    assert whole["kv_policy"] == ""
    for row in godwit.json("methods")["kv_policies"]:
        if row["demotes"]:
            continue  # test_demotion.py: heads of this model are too small for codecs that seal
        policy = f"{row['name']}:gates={gates}" if row["name"] in ("duo", "razor") else row["name"]
        answer = godwit.json(*ask, "--kv-policy", policy, "--kv-budget", "192", "--kv-trigger", "prefill")
        assert answer["kv_policy"] == policy and answer["completion_tokens"] == 4
        assert answer["kv_bytes"] < whole["kv_bytes"], policy


def test_the_models_listed_are_the_models_opened(godwit):
    listed = {row["name"] for row in godwit.json("methods")["models"]}
    opened = {godwit.json("inspect", str(folder.parent))["family"] for folder in MODELS.glob("*/config.json")}
    assert opened == listed
