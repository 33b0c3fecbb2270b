"""Whatever is typed, the answer is an answer or a message: never a traceback, never "our fault"."""

from __future__ import annotations

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from cli.calls import Call, fresh
from outgrow.specfile.fields import slots_of
from outgrow.specfile.tree import blocks_of
from outgrow.workload.workload import Workload

FUZZ = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
PATHS = sorted(
    {".".join(p for p in (path, key) if p) for path, block in blocks_of(Workload) for key in slots_of(block)}
)
WORDS = ["fit", "decide", "catalog", "list", "show", "explain", "schema", "validate", "kv", "memory", "model", "llama-3.1-8b", "mamba-2.8b",
         "qwen3-30b-a3b", "h100-sxm", "2xhgx-h100", "rtx-4090", "examples/sft-70b.yaml", "examples/cluster-hgx.yaml", "--on", "--for", "training",
         "qlora", "--set", "training.sequence_length=16", "--table", "--check", "--json", "--by", "--help", "-h", "--", "-", "", ".", "/",
         "README.md", "\x00", "x" * 300]  # fmt: skip
# argv holds no NUL and what is not UTF-8 arrives as lone surrogates; Python callers may pass either.
ANY = st.text(max_size=12)
VALUES = st.one_of(
    ANY,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["0", "-1", "1", "7", "1e9", "1e309", ".nan", "true", "null", "~", "[]", "{}", "[1, 2]", "{a: 1}", "&a [*a]", "!!python/object:x {}",
                     "auto", "full", "lora", "fp8", "nf4", "vllm", "adamw", "zero3", "none", "host", "9" * 5000, "0x10", "1_000", "2026-01-01"]),
)  # fmt: skip


def survives(answer: Call) -> None:
    assert answer.code in (0, 1, 2, 3), answer
    assert "Traceback" not in answer.out + answer.err
    if answer.code in (2, 3):
        assert answer.err.strip()
        assert answer.out == ""
    else:
        assert answer.out


@FUZZ
@given(st.lists(st.one_of(st.sampled_from(WORDS), ANY), max_size=6))
@example(["fit", "\x00"])
@example(["fit", "\x00.yaml"])
@example(["fit", "\x00/config.json"])
@example(["fit", "\udce9"])
@example(["fit", "x" * 5000])
@example(["fit", "x" * 5000 + ".yaml"])
@example(["fit", "llama-3.1-8b", "--on", "\x00"])
@example(["fit", "llama-3.1-8b", "--on", "\x00.yaml"])
@example(["catalog", "show", "\x00"])
@example(["catalog", "show", "x" * 5000])
@example(["validate", "kv", "\x00"])
@example(["validate", "kv", "x" * 5000])
@example(["explain", "\x00"])
@example(["explain", ""])
def test_any_words(argv: list[str]) -> None:
    survives(fresh(*argv))


@FUZZ
@given(
    st.lists(st.tuples(st.one_of(st.sampled_from(PATHS), ANY), VALUES), min_size=1, max_size=3),
    st.sampled_from(["serving", "training", "qlora"]),
)
@example([("training.sequence_length", "1000000000")], "training")
@example([("layout.micro_batch", "1000000")], "training")
@example([("layout.pp", "8")], "training")
@example([("serving.max_model_len", "1000000000")], "serving")
@example([("model", "mamba-2.8b"), ("serving.tp", "2")], "serving")
def test_any_settings(pairs: list[tuple[str, str]], job: str) -> None:
    words = [word for path, value in pairs for word in ("--set", f"{path}={value}")]
    survives(fresh("fit", "llama-3.2-1b", "--on", "hgx-h100", "--for", job, *words))


@FUZZ
@given(
    st.sampled_from(["examples/sft-70b.yaml", "examples/chat-8b.yaml", "qwen3-30b-a3b"]),
    st.sampled_from(PATHS),
    VALUES,
)
def test_any_settings_of_a_decision(what: str, path: str, value: str) -> None:
    survives(fresh("decide", what, "--set", f"{path}={value}"))
