"""Names as people type them: normalisation, aliases, ambiguity, and the nearest where nothing matches."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from outgrow.errors import InputError, UnknownNameError, shorten

How = Literal["name", "alias", "loose"]

_LONGEST: Final = 200
# Words that people and drivers add and that tell no two entries apart.
_NOISE: Final = frozenset(
    {
        "nvidia",
        "amd",
        "intel",
        "google",
        "geforce",
        "tesla",
        "instinct",
        "gpu",
        "gpus",
        "accelerator",
        "graphics",
        "tensor",
        "core",
        "cores",
        "superchip",
        "edition",
    }
)
# Kinds of memory tell some parts apart ("h100-96gb-hbm2e"), but most people add them to names that need none.
_MEMORY_KINDS: Final = frozenset({"hbm", "hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"})
_GLUED: Final = (
    (re.compile(r"\b(rtx|gtx|titan|quadro)(?=[0-9a-z])"), r"\1 "),
    (re.compile(r"\b([a-z]{1,2}[0-9]{2,3})(sxm|pcie|nvl|nvlink)"), r"\1 \2"),
    (re.compile(r"\bsxm[0-9]?\b"), "sxm"),
    (re.compile(r"\bpci ?e\b"), "pcie"),
    (re.compile(r"\b([0-9]{1,3}) ?g(?:i?b)?\b"), r"\1gb"),
)
_INNER: Final = re.compile(r"\(([^()]+)\)\s*\Z")
_SAME_SHAPE: Final = re.compile(r"-(?:instruct|chat|it|hf|base)(?:-hf|-v[0-9.]+)?\Z")


def hardware_key(text: str) -> str:
    """A key under which spellings of one thing meet: order, case, separators and noise drop out."""
    plain = re.sub(r"\([^()]*\)", " ", text.lower())
    plain = re.sub(r"[^a-z0-9]+", " ", plain).strip()
    for pattern, replacement in _GLUED:
        plain = pattern.sub(replacement, plain)
    return " ".join(sorted(set(plain.split()) - _NOISE))


def model_key(text: str) -> str:
    """A key for model names: the hub's owner and every separator drop out; decimal points stay (1.3B)."""
    name = re.sub(r"(?<=[0-9])\.(?=[0-9])", "_", text.lower().rsplit("/", 1)[-1])
    return re.sub(r"[^a-z0-9_]|(?<![0-9])_|_(?![0-9])", "", name)


@dataclass(slots=True)
class Index:
    """Which entries claim which key, firmly or loosely."""

    kind: str
    firm: dict[str, set[str]] = field(default_factory=dict)
    loose: dict[str, set[str]] = field(default_factory=dict)
    titles: dict[str, str] = field(default_factory=dict)
    spelled: dict[str, str] = field(default_factory=dict)
    """Every spelling in lower case, with its entry: what did-you-mean looks through."""

    def add(self, slug: str, title: str, aliases: Iterable[str], loose: Iterable[str]) -> None:
        """Enter one entry."""
        self.titles[slug] = title
        for names, claims in (((slug, *aliases), self.firm), (loose, self.loose)):
            for name in names:
                if key := self.key(name):
                    claims.setdefault(key, set()).add(slug)
                    self.spelled.setdefault(name.lower(), slug)
        if title and self.key(title):
            # A title is a spelling too, but never one that makes an alias ambiguous.
            self.loose.setdefault(self.key(title), {slug})

    def key(self, text: str) -> str:
        """The key of a text in this index."""
        return model_key(text) if self.kind == "model" else hardware_key(text)

    def find(self, text: str) -> tuple[str, How] | None:
        """The entry that a text means and how it was found; None where none does. Raises where several do."""
        if not isinstance(text, str) or len(text) > _LONGEST:
            return None
        key = self.key(text)
        attempts: list[tuple[Mapping[str, set[str]], str, How]] = [
            (self.firm, key, "alias"),
            (self.loose, key, "loose"),
        ]
        if self.kind != "model" and (words := set(key.split())) & _MEMORY_KINDS:
            plain = " ".join(sorted(words - _MEMORY_KINDS))
            attempts += [(self.firm, plain, "alias"), (self.loose, plain, "loose")]
        if self.kind != "model" and (inner := _INNER.search(text)) is not None:
            # "NVIDIA Blackwell GPU (B200-SXM-180GB)": the name proper may stand in the parentheses.
            attempts += [(claims, self.key(inner[1]), "loose") for claims in (self.firm, self.loose)]
        if self.kind == "model" and (shorter := _SAME_SHAPE.sub("", text.lower())) != text.lower():
            attempts.append((self.firm, self.key(shorter), "loose"))
        for claims, wanted, how in attempts:
            slugs = claims.get(wanted)
            if not slugs:
                continue
            if len(slugs) > 1:
                raise self._ambiguous(text, slugs)
            return next(iter(slugs)), how
        return None

    def nearest(self, text: str, n: int = 3) -> list[str]:
        """Up to `n` entries whose names look most like a text."""
        wanted = text.lower()[:_LONGEST]
        found = difflib.get_close_matches(wanted, self.spelled, n=4 * n, cutoff=0.55)
        return list(dict.fromkeys(self.spelled[name] for name in found))[:n]

    def unknown(self, text: str) -> UnknownNameError:
        """The error for a name that is not here."""
        near = self.nearest(text) if isinstance(text, str) else []
        hint = (
            f"did you mean {' or '.join(near)}?"
            if near
            else f"outgrow catalog list {self.kind}s shows what there is"
        )
        return UnknownNameError(f"No {self.kind} is called {shorten(text)}.", hint=hint)

    def _ambiguous(self, text: str, slugs: set[str]) -> InputError:
        meanings = ", ".join(f"{slug} ({self.titles[slug]})" for slug in sorted(slugs))
        return InputError(f"{shorten(text)} can mean several {self.kind}s.", hint=f"say which: {meanings}")
