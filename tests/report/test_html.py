"""The HTML fragment and its picture stand alone: escaped, well formed, nothing fetched, nothing run."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

import outgrow
from cli.answers import ANSWERS
from cli.calls import ROOT, config_folder
from outgrow.app import listing, validate
from outgrow.report.result import Result
from outgrow.report.svg import memory_bar
from report.test_documents import KV

ALLOWED = {"div", "pre", "span", "svg", "title", "rect", "text", "line", "path", "g"}


class Reader(HTMLParser):
    """Tags in order, whether they close, and every attribute."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def results(tmp_path: Path) -> dict[str, Result[object]]:
    path = tmp_path / "rows.csv"
    path.write_text(KV, encoding="utf-8")
    return {
        "serving": outgrow.fit("llama-3.1-8b", on="h100-sxm"),
        "training": outgrow.fit("llama-3.1-8b", on="hgx-h100", job="training"),
        "too large": outgrow.fit("llama-3.1-405b", on="h100-sxm"),
        "illegal": outgrow.fit("llama-3.1-8b", on="hgx-h100", overrides=["serving.tp=3"]),
        "decide": outgrow.decide(str(ROOT / "examples" / "chat-8b.yaml")),
        "table": outgrow.memory_table(["llama-3.1-8b"]),
        "model": outgrow.show("mixtral-8x7b"), "device": outgrow.show("h100-sxm"), "node": outgrow.show("hgx-h100"), "fabric": outgrow.show("ib-ndr"),
        "list": listing("device"), "validate": validate("kv", path), "explain": outgrow.explain("mfu"),
    }  # fmt: skip


def test_every_kind_of_answer(tmp_path: Path) -> None:
    for name, result in results(tmp_path).items():
        html = result._repr_html_()
        reader = read(html)
        assert reader.tags <= ALLOWED, name
        assert html.startswith("<div")
        assert html.endswith("</div>")
        assert html.isprintable() or "\n" in html
        # A namespace is a name, not an address that is fetched.
        assert re.findall(r"(?:https?:)?//[\w.]+", html.replace("http://www.w3.org/2000/svg", "")) == [], name
        for attribute, value in reader.attributes:
            assert not attribute.startswith("on"), name
            assert attribute not in ("src", "href", "xlink:href", "action"), name
            assert "url(" not in value, name
            assert "@import" not in value, name
        assert len(html) < 60_000, name
        if "svg" in reader.tags:
            ET.fromstring(html)  # noqa: S314 (our own text)


@pytest.mark.parametrize(
    "name",
    [
        "<script>alert(1)<",
        '"><img src=x onerror=alert(1)>',
        "&amp;<b>",
        "]]><x",
        "'onload='x",
        "</pre><script>",
    ],
)
def test_a_hostile_name_is_text(name: str, tmp_path: Path) -> None:
    if "/" in name:
        name = name.replace("/", "\u2215")  # a folder's name has no slash
    folder = config_folder(tmp_path / name)
    for result in (
        outgrow.fit(str(folder), on="h100-sxm"),
        outgrow.show(str(folder)),
        outgrow.decide(str(folder)),
        outgrow.memory_table([str(folder)]),
    ):
        html = result._repr_html_()
        reader = read(html)
        assert reader.tags <= ALLOWED
        assert not [a for a, _ in reader.attributes if a.startswith("on")]
        assert name[:12] in reader.text
        assert name not in html or not set(name) & set("<>&")


def test_the_text_is_the_same_as_on_a_terminal(tmp_path: Path) -> None:
    for name, result in results(tmp_path).items():
        html = result._repr_html_()
        reader = read(html[html.index("<pre") : html.index("</pre>") + 6])
        assert reader.text == str(result).rstrip("\n"), name


@pytest.mark.parametrize(
    "argv", [a for a in ANSWERS.values() if a.startswith("fit ") and "--table" not in a and ".yaml" not in a]
)
def test_the_picture_is_well_formed_and_in_its_frame(argv: str) -> None:
    words = argv.split()
    option = dict(zip(words[2::2], words[3::2], strict=True))
    result = outgrow.fit(
        words[1],
        on=option.get("--on", "h100-sxm"),
        job=option.get("--for"),
        overrides=[option["--set"]] if "--set" in option else [],
    )
    fit = result.value.fit
    root = ET.fromstring(memory_bar(fit))  # noqa: S314 (our own text)
    space = "{http://www.w3.org/2000/svg}"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    bars = [r for r in root.iter(f"{space}rect") if r.find(f"{space}title") is not None]
    assert len(bars) == len(fit.terms)
    for rect in root.iter(f"{space}rect"):
        x, y, w, h = (float(rect.attrib[a]) for a in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= width + 1
        assert 0 <= y <= y + h <= height
    # Widths are in proportion to the bytes, but for the hairline that shows what is too small to see.
    wide = [
        (float(r.attrib["width"]), t.bytes)
        for r, t in zip(bars, fit.terms, strict=True)
        if float(r.attrib["width"]) > 20
    ]
    assert len({round(w / b * 1e12) for w, b in wide}) >= 1
    assert max(w / b for w, b in wide) / min(w / b for w, b in wide) < 1.02
    for text in root.iter(f"{space}text"):
        anchor = text.attrib.get("text-anchor", "start")
        length = 5.0 * len(text.text or "")
        left = float(text.attrib["x"]) - {"start": 0.0, "middle": length / 2, "end": length}[anchor]
        assert left >= -1, text.text
        assert left + length <= width, f"runs out of the picture: {text.text}"
