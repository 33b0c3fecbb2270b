"""Cluster files, and what `--on` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from outgrow import catalog
from outgrow.errors import OutgrowError, SpecError, UnknownNameError
from outgrow.specfile import cluster_of, load_cluster

ROOT = Path(__file__).parent.parent


def faults(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        load_cluster(None, text)
    return [f"{p.line}: {p.path}: {p.message}" for p in caught.value.problems]


def test_example() -> None:
    cluster = load_cluster(ROOT / "examples" / "cluster-hgx.yaml")
    assert (cluster.node.name, cluster.nodes, cluster.gpus) == ("hgx-h100", 4, 32)
    assert (cluster.region, cluster.tenancy) == ("eu-west", "dedicated")
    assert cluster.fabric is not None
    assert cluster.fabric.name == "ib-ndr"
    assert cluster.network_bytes_per_second == catalog.target("4xhgx-h100").network_bytes_per_second


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("node: hgx-h100\n", "hgx-h100"),
        ("node: hgx-h100\nnodes: 2\n", "2xhgx-h100"),
        ("device: h100-sxm\n", "h100-sxm"),
        ("device: h100-sxm\ngpus: 4\n", "4xh100-sxm"),
        ("device: h100-sxm\ngpus: 16\n", "16xh100-sxm"),
        ("device: h100-sxm\ngpus: 8\nnodes: 2\n", "2x4xh100-sxm"),
        ("device: h100-sxm\nnodes: 2\n", "2x1xh100-sxm"),
    ],
)
def test_a_file_says_what_a_short_name_says(text: str, short: str) -> None:
    assert load_cluster(None, text) == catalog.target(short)


def test_loose_names_are_told() -> None:
    assert [a.name for a in load_cluster(None, "device: h100\n").assumed].count("cluster.device") == 1


def test_another_fabric() -> None:
    cluster = load_cluster(None, "node: hgx-h100\nnodes: 2\nfabric: roce-400\n")
    assert (cluster.node.fabric, cluster.node.nics) == ("roce-400", 8)
    assert cluster.network_bytes_per_second == 8 * catalog.fabric("roce-400").bytes_per_second
    cluster = load_cluster(None, "node: hgx-h100\nnodes: 2\nfabric: tcp-100gbe\n")
    assert cluster.network_bytes_per_second == catalog.fabric("tcp-100gbe").bytes_per_second
    assert [a.name for a in cluster.assumed] == ["cluster.nics"]
    cluster = load_cluster(None, "node: hgx-h100\nnodes: 2\nfabric: tcp-100gbe\nnics: 2\n")
    assert cluster.network_bytes_per_second == 2 * catalog.fabric("tcp-100gbe").bytes_per_second
    assert cluster.assumed == ()


def test_a_fabric_answers_what_was_assumed() -> None:
    unknown = [a.name for a in load_cluster(None, "device: rtx-4090\ngpus: 8\nnodes: 2\n").assumed]
    known = [
        a.name for a in load_cluster(None, "device: rtx-4090\ngpus: 8\nnodes: 2\nfabric: tcp-25gbe\n").assumed
    ]
    assert "cluster.fabric" not in known
    assert len(known) <= len(unknown) + 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nodes: 3\n", ["1: : give exactly one of `node:` and `device:`; neither is given"]),
        (
            "node: hgx-h100\ndevice: h100\n",
            ["2: : give exactly one of `node:` and `device:`; both are given"],
        ),
        ("node: hgx-h100\ngpus: 8\n", ["2: gpus: belongs to `device:`, and `node:` is given"]),
        ("node: hgx-h100\nnodes: 0\n", ["2: nodes: must be between 1 and 1,000,000"]),
        ("node: hgx-h100\nnodes: 10000000\n", ["2: nodes: must be between 1 and 1,000,000"]),
        ("device: h100-sxm\ngpus: 0\n", ["2: gpus: must be between 1 and 1e+06"]),
        ("device: h100-sxm\ngpus: 9\nnodes: 2\n",
         ["2: gpus: must be a multiple of nodes = 2: it counts all machines together"]),
        ("node: 4xhgx-h100\nteams: []\n",
         ["1: node: no node is called '4xhgx-h100'", "2: teams: is not a key that is known"]),
    ],
)  # fmt: skip
def test_faults(text: str, expected: list[str]) -> None:
    assert faults(text) == expected


def test_parts_that_do_not_go_together() -> None:
    (fault,) = faults("device: h100-sxm\ngpus: 12\n")
    assert fault.startswith("2: gpus: 12 × NVIDIA H100 SXM5 80 GB are not whole machines")


def test_what_on_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cluster_of("4xhgx-h100") == catalog.target("4xhgx-h100")
    (tmp_path / "c.yaml").write_text("node: hgx-h100\n")
    (tmp_path / "hgx-h200").write_text("node: hgx-h100\nnodes: 3\n")
    monkeypatch.chdir(tmp_path)
    assert cluster_of("c.yaml") == catalog.target("hgx-h100")
    assert cluster_of("hgx-h200").nodes == 3
    assert cluster_of("hgx-h200", files=False) == catalog.target("hgx-h200")
    with pytest.raises(SpecError, match="no such file"):
        cluster_of("missing.yml")
    with pytest.raises(UnknownNameError):
        cluster_of("c.yaml", files=False)
    for text in ("", " ", "a\0b", "x" * 10_000, "h100\n"):
        if text != "h100\n":
            with pytest.raises(OutgrowError):
                cluster_of(text)
