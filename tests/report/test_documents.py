"""The JSON documents: each holds to its published schema, and its numbers hold to one another."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from cli.answers import ANSWERS
from cli.calls import ROOT, call, config_folder, fresh
from outgrow import catalog

SCHEMAS = ["workload", "cluster", "fit", "decide", "table", "catalog", "catalog-list", "validate", "explain"]
Json = Any

MEMORY = """\
id,source,model,gpu,gpus,gpus_per_node,dp,zero_or_fsdp,seq_len,micro_batch,global_batch,precision,recompute,optimizer,framework,task,peak_mem_gb,mem_def,note
a1,somewhere/runs table 1,llama-3.1-8b,H100 80GB SXM,8,8,8,FSDP2,4096,1,8,bf16,full,AdamW,torchtitan,pretrain,40,GiB; max reserved,
a2,somewhere/runs table 2,llama-3.1-8b,H100 80GB SXM,1,8,1,,8192,8,8,bf16,none,AdamW,torchtitan,pretrain,,,RUN FAILED: out of memory
a3,elsewhere/notes,not-a-model-9b,H100 80GB SXM,8,8,8,FSDP2,4096,1,8,bf16,full,AdamW,torchtitan,pretrain,50,GiB; max reserved,
"""
KV = """\
id,source,model,gpu,gpus,tp,engine,kv_blocks_or_tokens,kv_unit,kv_gib_per_gpu,gpu_memory_utilization,max_model_len,note
b1,somewhere/log,meta-llama/Llama-3.1-8B,H100 80GB,1,1,vLLM 0.10.0,400000,tokens,48.8,0.9,8192,
b2,somewhere/log,meta-llama/Llama-3.1-8B,RTX 4090 24GB,1,1,vLLM 0.10.0,30000,tokens,3.7,0.9,8192,
b3,elsewhere/log,Qwen/Qwen3-8B,an unnamed GPU,1,1,SGLang 0.4,100000,tokens,,0.9,8192,
"""


@pytest.fixture(scope="module")
def schemas() -> dict[str, Draft202012Validator]:
    found = {kind: call("schema", kind).document for kind in SCHEMAS}
    for schema in found.values():
        Draft202012Validator.check_schema(schema)
    return {kind: Draft202012Validator(schema) for kind, schema in found.items()}


def valid(document: Json, schemas: dict[str, Draft202012Validator]) -> Json:
    kind = document["schema"].removeprefix("outgrow.").removesuffix("/1")
    faults = [f"{e.json_path}: {e.message[:200]}" for e in schemas[kind].iter_errors(document)]
    assert faults == []
    # Whatever is printed is promised: no key that the schema does not name.
    assert list(unpromised(document, schemas[kind].schema)) == []
    return document["result"]


def unpromised(value: Json, schema: Json, path: str = "$") -> Iterator[str]:
    for option in schema.get("anyOf", []):
        if Draft202012Validator(option).is_valid(value):
            yield from unpromised(value, option, path)
            return
    if isinstance(value, dict) and "properties" in schema:
        for key, item in value.items():
            if key in schema["properties"]:
                yield from unpromised(item, schema["properties"][key], f"{path}.{key}")
            elif "additionalProperties" not in schema:
                yield f"{path}.{key}"
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from unpromised(item, schema["items"], f"{path}[{index}]")


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_every_document_holds_to_its_schema(argv: str, schemas: dict[str, Draft202012Validator]) -> None:
    answer = call(*argv.split(), "--json")
    assert answer.code == 0, answer.err
    valid(answer.document, schemas)


@pytest.mark.parametrize("kind", ["model", "device", "node", "fabric"])
def test_every_entry_of_the_catalogue(kind: str, schemas: dict[str, Draft202012Validator]) -> None:
    for name in catalog.names(kind):
        result = valid(call("catalog", "show", name, "--json").document, schemas)
        assert (result["kind"], result["name"]) == (kind, name)


def test_examples_hold_to_the_schemas_of_files(schemas: dict[str, Draft202012Validator]) -> None:
    for path in sorted((ROOT / "examples").glob("*.yaml")):
        kind = "cluster" if path.name.startswith("cluster") else "workload"
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert [e.message for e in schemas[kind].iter_errors(value)] == [], path.name


# --- what holds of any document -----------------------------------------------------------------------------

# A number's key says its unit, or counts something, or is a plain ratio.
UNITS = re.compile(
    r"(_bytes|_bytes_low|_bytes_high|_tokens|_seconds|_watts|_months|_usd|_fraction|_ape|_percent|_per_second|_per_token|_per_sequence"
    r"|_per_token_(full_context|windowed|cross_attention))$"
)
PLAIN = {"bytes", "share", "months", "bias", "coverage", "parameters_total", "parameters_active", "parameters_mtp", "gpus", "nodes", "layers",
         "encoder_layers", "hidden", "vocabulary", "query_heads", "kv_heads", "experts", "concurrent_requests", "peak_stage", "n", "answered", "error",
         "failed", "failed_said_not_to_fit", "succeeded", "succeeded_said_not_to_fit"}  # fmt: skip
# Beside a value stands its unit; in a figure the key above it ends with the unit; a row's quantity names it.
VALUES = {"value", "low", "high", "predicted", "measured"}


def numbers(value: Json, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, (*path, key))
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, path)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, value


def scopes(value: Json) -> Iterator[dict[str, Json]]:
    if isinstance(value, dict):
        yield value
        for item in value.values():
            yield from scopes(item)
    elif isinstance(value, list):
        for item in value:
            yield from scopes(item)


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_keys_carry_units_and_intervals_hold_their_values(argv: str) -> None:
    document = call(*argv.split(), "--json").document
    bare = []
    for path, number in numbers(document["result"]):
        assert math.isfinite(number)
        key = path[-1]
        if (
            key in VALUES
            or key in PLAIN
            or UNITS.search(key)
            or "parameters_by_class" in path
            or key == "valid_tensor_parallel"
        ):
            continue
        bare.append(".".join(path))
    assert sorted(set(bare)) == []
    for scope in scopes(document["result"]):
        if {"value", "low", "high"} <= set(scope):
            assert scope["low"] <= scope["value"] <= scope["high"], scope
            assert scope["source"], scope
        for key, item in scope.items():
            if f"{key}_low" in scope:
                assert scope[f"{key}_low"] <= item <= scope[f"{key}_high"], key
                assert scope[f"{key}_low"] >= 0, key


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_what_is_unknown_is_null(argv: str) -> None:
    """Neither a word for it nor a number that stands for it."""
    words = {"none", "null", "n/a", "unknown", "nan", "inf", "-", "?"}
    document = call(*argv.split(), "--json").document["result"]
    for scope in scopes(document):
        for key, item in scope.items():
            if isinstance(item, str) and key not in ("note", "hint"):
                assert item.lower() not in words, (key, item)
            if isinstance(item, int | float) and not isinstance(item, bool):
                assert item not in (-1, 2**31 - 1, 2**63 - 1), (key, item)


@pytest.mark.parametrize("argv", ANSWERS.values(), ids=ANSWERS)
def test_the_envelope(argv: str) -> None:
    document = call(*argv.split(), "--json").document
    assert list(document) == [
        "schema",
        "outgrow",
        "inputs_sha256",
        "assumed",
        "result",
        "findings",
        "sources",
        "next",
    ]
    names = [a["name"] for a in document["assumed"]]
    assert len(names) == len(set(names)), "an assumption is told once"
    assert all(a["value"] for a in document["assumed"])
    for finding in document["findings"]:
        assert finding["message"]
        assert re.fullmatch(r"[a-z0-9-]+", finding["code"])


@pytest.mark.parametrize(
    "name", [n for n, argv in ANSWERS.items() if argv.startswith(("fit l", "fit q", "fit e", "decide"))]
)
def test_assumptions_that_name_a_setting_can_be_set(name: str) -> None:
    """What is listed as assumed under a dotted name is what `--set` would say."""
    argv = ANSWERS[name].split()
    document = call(*argv, "--json").document
    settable = [a for a in document["assumed"] if re.match(r"(training|serving|layout)\.", a["name"])]
    words = [
        w
        for a in settable
        for w in ("--set", f"{a['name']}={re.sub(r'(?<=[0-9]),(?=[0-9])', '', a['value'])}")
    ]
    again = call(*argv, *words, "--json")
    assert again.code == 0, again.err
    # Some defaults are looked for (layouts); writing them out changes nothing but what is told as assumed.
    assert again.document["result"] == document["result"]


# --- fit ----------------------------------------------------------------------------------------------------

FITS = {name: argv for name, argv in ANSWERS.items() if argv.startswith("fit ") and "--table" not in argv}


def fit(*argv: str) -> Json:
    answer = call("fit", *argv, "--json")
    assert answer.code == 0, answer.err
    return answer.document["result"]


@pytest.mark.parametrize("argv", FITS.values(), ids=FITS)
def test_terms_add_up(argv: str) -> None:
    r = fit(*argv.split()[1:])
    terms = {t["name"]: t["bytes"] for t in r["terms"]}
    assert len(terms) == len(r["terms"])
    assert min(terms.values()) >= 0
    rounding = len(terms) + 2
    device = sum(terms.values()) - terms.get("left free by the engine", 0)
    beside = terms.get("context", 0) + terms.get("communicators", 0)
    alive = sum(t["bytes"] for t in r["terms"] if t["kind"] != "overhead")
    if r["job"] == "training":
        assert abs(device - r["device_bytes"]) <= rounding
        assert abs(device - beside - r["reserved_bytes"]) <= rounding
        assert abs(alive - r["allocated_bytes"]) <= rounding
        assert r["free_bytes"] == pytest.approx(r["capacity_bytes"] - r["needed_bytes"], abs=2)
    elif r["fits"]:
        assert abs(device - r["allocated_bytes"]) <= rounding
        assert abs(sum(terms.values()) - r["capacity_bytes"]) <= rounding, (
            "an engine's budget and what it leaves are the device"
        )
    assert r["allocated_bytes"] <= r["reserved_bytes"] <= r["device_bytes"]
    for term in r["terms"]:
        assert term["share"] == pytest.approx(term["bytes"] / r["capacity_bytes"], abs=1e-6)
        assert term["source"]


@pytest.mark.parametrize("argv", FITS.values(), ids=FITS)
def test_the_verdict_follows_from_the_numbers(argv: str) -> None:
    r = fit(*argv.split()[1:])
    assert r["fits"] == (r["verdict"] in ("fits", "fits-barely"))
    errors = [v for v in r["violations"] if v["severity"] == "error"]
    assert bool(errors) == (r["verdict"] == "illegal")
    if r["verdict"] != "illegal":
        # free_bytes is measured against what may be used: the device, or the engine's part of it.
        if r["fits"]:
            assert r["free_bytes"] >= 0
        elif r["job"] == "training":
            assert r["free_bytes"] < 0
    margin = r["needed_bytes"] + r["free_bytes"]
    assert margin <= r["capacity_bytes"] + 2
    if r["verdict"] == "fits":
        assert r["needed_bytes_high"] <= margin + 2
    if r["verdict"] == "does-not-fit":
        assert r["needed_bytes_low"] > margin - 2
    saved = [lever["saves_bytes"] for lever in r["levers"]]
    assert saved == sorted(saved, reverse=True)
    assert all(s > 0 for s in saved)


@pytest.mark.parametrize("argv", FITS.values(), ids=FITS)
def test_levers_do_what_they_say(argv: str) -> None:
    """Setting a lever gives the fit that the lever promised, and saves what it said."""
    words = argv.split()[1:]
    r = fit(*words)
    if r["verdict"] == "illegal":
        pytest.skip("nothing to save where nothing runs")
    wrong = []
    for lever in r["levers"]:
        then = fit(*on_more(words, r, lever), "--set", lever["setting"])
        if then["fits"] != lever["then_fits"]:
            wrong.append(
                f"{lever['setting']}: then_fits {lever['then_fits']}, and --set gives {then['verdict']}"
            )
        if r["job"] == "training":
            saved = r["needed_bytes"] - then["needed_bytes"]
            if abs(saved - lever["saves_bytes"]) > max(0.02 * lever["saves_bytes"], 64 * 2**20):
                wrong.append(
                    f"{lever['setting']}: says {lever['saves_bytes'] / 2**30:.2f} GiB, and --set saves {saved / 2**30:.2f}"
                )
    assert wrong == []


def on_more(words: list[str], r: dict[str, Any], lever: dict[str, Any]) -> list[str]:
    """The same question of as many GPUs as a lever takes."""
    if lever["gpus"] <= r["gpus"]:
        return words
    at = words.index("--on")
    return [*words[: at + 1], f"{lever['gpus']}x{r['device']}", *words[at + 2 :]]


LIMITS = {
    "micro-batch": "layout.micro_batch",
    "sequence length": "training.sequence_length",
    "context of one request": "serving.max_model_len",
}


@pytest.mark.parametrize("argv", FITS.values(), ids=FITS)
def test_limits_are_the_last_that_fit(argv: str) -> None:
    words = argv.split()[1:]
    r = fit(*words)
    if r["verdict"] == "illegal":
        pytest.skip("nothing to enlarge where nothing runs")
    wrong = []
    for limit in r["limits"]:
        setting = LIMITS.get(limit["name"])
        if setting is None or re.search("own limit|and more", limit["note"]):
            continue
        value = limit["value"]
        step = 2 if setting == "training.sequence_length" else 1
        cases = [(step, False)] if value is None else [(value, True), (value + step, False)]
        for tried, fits in cases:
            # The batch must hold what is tried; it changes no memory, since gradients are accumulated.
            more = ["--set", "training.global_batch=1048576"] if setting == "layout.micro_batch" else []
            answer = call("fit", *words, *more, "--set", f"{setting}={tried}", "--json")
            if answer.code:
                wrong.append(f"{setting}={tried}: {answer.err}")
                continue
            then = answer.document["result"]
            # The limit is about the central value, as the verdicts that say "barely" are.
            if then["verdict"] != "illegal" and then["fits"] != fits:
                wrong.append(f"{setting}={tried}: the limit is {value}, and --set gives {then['verdict']}")
    assert wrong == []


def test_serving_tells_its_cache_and_training_has_none() -> None:
    serving = fit("llama-3.1-8b", "--on", "h100-sxm")
    terms = {t["name"]: t["bytes"] for t in serving["terms"]}
    assert serving["cache_tokens"] * serving["cache_bytes_per_token"] == pytest.approx(
        terms["KV cache"], rel=0.01
    )
    card = call("catalog", "show", "llama-3.1-8b", "--json").document["result"]
    assert serving["cache_bytes_per_token"] == card["kv_bytes_per_token"] == 2 * 32 * 8 * 128 * 2
    training = fit("llama-3.1-8b", "--on", "h100-sxm", "--for", "training")
    assert [
        training[k]
        for k in ("cache_tokens", "cache_bytes_per_token", "context_tokens", "concurrent_requests")
    ] == [None] * 4


def test_text_and_json_tell_the_same_numbers() -> None:
    from outgrow.units import format_bytes

    for argv in FITS.values():
        text = call(*argv.split()).out
        for term in fit(*argv.split()[1:])["terms"]:
            line = next(line for line in text.splitlines() if line.startswith(f"  {term['name'][:24]} "))
            # JSON rounds to whole bytes, which may lie on the other side of where a unit begins.
            assert any(f" {format_bytes(term['bytes'] + one)} " in line for one in (-1, 0, 1)), line


# --- decide, table ------------------------------------------------------------------------------------------

DECISIONS = {name: argv for name, argv in ANSWERS.items() if argv.startswith("decide ")}
SCALES = ["single-gpu", "one-node", "cluster"]


@pytest.mark.parametrize("argv", DECISIONS.values(), ids=DECISIONS)
def test_a_decision_follows_from_its_answers(argv: str) -> None:
    r = call(*argv.split(), "--json").document["result"]
    asked = {a["question"]: a for a in r["answers"]}
    assert len(asked) == len(r["answers"])
    applying = [a for a in r["answers"] if a["applies"]]
    top = max(SCALES.index(a["scale"]) for a in applying)
    assert SCALES.index(r["verdict"]) == top
    assert r["gpus"] >= max(a["gpus"] for a in applying)
    assert 1 <= r["nodes"] <= r["gpus"]
    assert (r["verdict"] == "single-gpu") == (r["gpus"] == 1)
    assert (r["verdict"] == "cluster") == (r["nodes"] > 1)
    assert (r["tenancy"] == "private") == any(a["private"] for a in applying)
    by_name = {a["title"]: a for a in r["answers"]} | asked
    assert set(r["deciding"]) <= set(by_name)
    for name in r["deciding"]:
        assert by_name[name]["applies"]
    for answer in applying:
        assert answer["text"]
        assert answer["how"]
    for flip in r["flips"]:
        assert flip["change"]
        assert flip["then"]
    if r["horizon"] is not None:
        assert r["horizon"]["months"] > 0
        assert (
            SCALES.index(r["horizon"]["verdict"]) >= SCALES.index(r["verdict"]) or r["horizon"]["gpus"] >= 1
        )


def test_the_table_is_complete_and_ordered() -> None:
    r = call("fit", "--table", "--json").document["result"]
    models = list(dict.fromkeys(c["model"] for c in r["cells"]))
    columns = list(dict.fromkeys((c["method"], c["precision"]) for c in r["cells"]))
    assert [(c["model"], c["method"], c["precision"]) for c in r["cells"]] == [
        (m, *c) for m in models for c in columns
    ]
    size = {c["model"]: c["parameters_total"] for c in r["cells"]}
    assert [size[m] for m in models] == sorted(size.values())
    for method, precision in columns:
        column = [c for c in r["cells"] if (c["method"], c["precision"]) == (method, precision)]
        needed = [c["needed_bytes"] for c in column]
        assert needed == sorted(needed), "a larger model needs more"
        counts = [math.inf if c["gpus"] is None else c["gpus"] for c in column]
        assert counts == sorted(counts)
        for cell in column:
            if cell["gpus"] == 1:
                assert cell["needed_bytes"] <= r["capacity_bytes"]
            if cell["needed_bytes"] > 2 * r["capacity_bytes"]:
                assert cell["gpus"] is None or cell["gpus"] > 1
    for claim in r["claims"]:
        assert claim["claim"]
        assert claim["evidence"]


# --- catalogue, explain, validate ---------------------------------------------------------------------------


def test_a_model_card_adds_up() -> None:
    for name in catalog.names("model"):
        r = call("catalog", "show", name, "--json").document["result"]
        assert sum(r["parameters_by_class"].values()) == r["parameters_total"], name
        assert 0 < r["parameters_active"] <= r["parameters_total"], name
        assert 1 in r["valid_tensor_parallel"], name
        own = (
            r["kv_bytes_per_token_full_context"]
            + r["kv_bytes_per_token_windowed"]
            + r["kv_bytes_per_token_cross_attention"]
        )
        # What is more is charged for cross-attention to an encoder or an image.
        assert own == r["kv_bytes_per_token"], name


def test_an_alias_is_its_entry() -> None:
    for name in catalog.names("device"):
        entry = call("catalog", "show", name, "--json").document
        for alias in entry["result"]["aliases"]:
            other = call("catalog", "show", alias, "--json")
            assert other.code == 0, (alias, other.err)
            if other.document["result"]["kind"] == "device":
                assert other.document == entry, alias


def test_figures_name_their_unit_once() -> None:
    suffixes = (
        "_bytes",
        "_bytes_per_second",
        "_flop_per_second",
        "_op_per_second",
        "_watts",
        "_seconds",
        "_fraction",
        "_cores",
        "_threads",
        "_vcpu",
    )
    for kind in ("device", "node", "fabric"):
        for name in catalog.names(kind):
            r = call("catalog", "show", name, "--json").document["result"]
            for key, figure in r["figures"].items():
                assert key.endswith(suffixes), (name, key)
                assert figure["kind"] in ("datasheet", "measured", "estimated", "vendor"), (name, key)
                assert figure["source"], (name, key)


def test_every_entry_of_the_glossary(schemas: dict[str, Draft202012Validator]) -> None:
    missing = fresh("explain", "no-such-word-at-all")
    assert missing.code == 3, missing.err
    entries = " ".join(missing.err.split("entries: ")[1].split()).split(", ")
    assert len(entries) > 10
    for entry in entries:
        r = valid(call("explain", entry, "--json").document, schemas)
        assert (r["term"], bool(r["title"]), bool(r["text"])) == (entry, True, True)
        assert set(r["see"]) <= set(entries), entry
        assert max(len(line) for line in call("explain", entry).out.splitlines()) <= 80, entry


def test_words_that_answers_send_people_to_are_explained() -> None:
    told = {
        word
        for argv in ANSWERS.values()
        for word in re.findall(r"outgrow explain ([a-z-]+)", " ".join(call(*argv.split()).out.split()))
    }
    assert {word for word in told if call("explain", word).code} == set()


@pytest.mark.parametrize(("kind", "text"), [("memory", MEMORY), ("kv", KV)], ids=["memory", "kv"])
@pytest.mark.parametrize("by", [None, "gpu"])
def test_validate(
    kind: str, text: str, by: str | None, tmp_path: Path, schemas: dict[str, Draft202012Validator]
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding="utf-8")
    words = ["--by", by] if by else []
    answer = fresh("validate", kind, str(path), *words, "--json")
    assert answer.code == 0, answer.err
    r = valid(answer.document, schemas)
    assert (r["kind"], r["by"]) == (kind, by or "source")
    rows = [row for row in r["rows"] if row["quantity"] != "fits"]
    assert r["summary"]["n"] == len(rows)
    assert {row["id"] for row in r["rows"]} == {line.split(",")[0] for line in text.splitlines()[1:]}
    answered = [row for row in rows if row["predicted"] is not None]
    assert r["summary"]["answered"] == len(answered) > 0
    for row in r["rows"]:
        assert (row["predicted"] is None) == (row["reason"] is not None), row
        if row["quantity"] == "fits":
            assert isinstance(row["measured"], bool)
            assert row["error"] is None
        elif row["predicted"] is not None:
            assert row["error"] == pytest.approx(row["predicted"] / row["measured"] - 1)
            assert row["low"] <= row["predicted"] <= row["high"]
        else:
            assert row["error"] is row["low"] is row["high"] is None
    absolute = sorted(abs(row["error"]) for row in answered)
    middle = (
        absolute[len(absolute) // 2]
        if len(absolute) % 2
        else sum(absolute[len(absolute) // 2 - 1 : len(absolute) // 2 + 1]) / 2
    )
    assert r["summary"]["median_ape"] == pytest.approx(middle)
    inside = [row["low"] <= row["measured"] <= row["high"] for row in answered]
    assert r["summary"]["coverage"] == pytest.approx(sum(inside) / len(inside))
    for part in ("groups", "quantities"):
        assert sum(s["n"] for s in r[part].values()) == r["summary"]["n"]
        assert sum(s["answered"] for s in r[part].values()) == r["summary"]["answered"]
    if kind == "memory":
        assert r["fits"] == {
            "failed": 1,
            "failed_said_not_to_fit": 1,
            "succeeded": 1,
            "succeeded_said_not_to_fit": 0,
        }
    shown = fresh("validate", kind, str(path), *words).out
    assert max(map(len, shown.splitlines())) <= 80
    assert "Not answered" in shown


# --- the hash of the inputs ---------------------------------------------------------------------------------


def hash_of(*argv: str) -> str:
    answer = fresh(*argv, "--json")
    assert answer.code == 0, answer.err
    return str(answer.document["inputs_sha256"])


def test_equal_inputs_have_equal_hashes() -> None:
    assert hash_of("fit", "llama-3.1-8b", "--on", "h100-sxm") == hash_of("fit", "llama-3.1-8b")
    assert hash_of("fit", "llama-3.1-8b", "--for", "serving") == hash_of("fit", "llama-3.1-8b")
    assert hash_of("catalog", "show", "h100-sxm") == hash_of("catalog", "show", "H100-SXM")


def test_other_inputs_have_other_hashes(tmp_path: Path) -> None:
    """An answer that differs may not carry the hash of another."""
    base = ["fit", "llama-3.1-8b", "--on", "h100-sxm"]
    hashes = [
        hash_of(*base, *more)
        for more in ([], ["--set", "serving.tp=1", "--set", "serving.max_model_len=4096"], ["--for", "lora"])
    ]
    hashes += [hash_of("fit", "llama-3.1-8b", "--on", on) for on in ("h200-sxm", "2xh100-sxm", "hgx-h100")]
    assert len(set(hashes)) == len(hashes)
    # The same name and the same parameters, and another cache: all of a model's shape is an input.
    folder = config_folder(tmp_path / "m", max_position_embeddings=4096)
    long = fresh("fit", str(folder), "--json").document
    path = folder / "config.json"
    path.write_text(path.read_text(encoding="utf-8").replace("4096", "1024"), encoding="utf-8")
    short = fresh("fit", str(folder), "--json").document
    assert long["result"]["context_tokens"] != short["result"]["context_tokens"]
    assert long["inputs_sha256"] != short["inputs_sha256"]


def test_other_measurements_have_another_hash(tmp_path: Path) -> None:
    found = []
    path = tmp_path / "rows.csv"
    for text in (MEMORY, MEMORY.replace(",40,GiB", ",60,GiB")):
        path.write_text(text, encoding="utf-8")
        found.append(hash_of("validate", "memory", str(path)))
    assert found[0] != found[1]
