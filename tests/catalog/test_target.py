"""From "4xhgx-h100" to a cluster."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outgrow import catalog
from outgrow.errors import InputError, OutgrowError, UnknownNameError


@pytest.mark.parametrize(
    ("text", "device", "nodes", "per_node", "link", "fabric"),
    [
        ("h100-sxm", "h100-sxm", 1, 1, "nvlink-4", "ib-ndr"),
        ("4xh100-sxm", "h100-sxm", 1, 4, "nvlink-4", "ib-ndr"),
        ("8x h100", "h100-sxm", 1, 8, "nvlink-4", "ib-ndr"),
        ("8 × h100", "h100-sxm", 1, 8, "nvlink-4", "ib-ndr"),
        ("h100:8", "h100-sxm", 1, 8, "nvlink-4", "ib-ndr"),
        ("h100 x8", "h100-sxm", 1, 8, "nvlink-4", "ib-ndr"),
        ("16xh100-sxm", "h100-sxm", 2, 8, "nvlink-4", "ib-ndr"),
        ("4xhgx-h100", "h100-sxm", 4, 8, "nvlink-4", "ib-ndr"),
        ("2x4xa100-sxm-80gb", "a100-sxm-80gb", 2, 4, "nvlink-3", "ib-hdr"),
        ("aws-p5.48xlarge", "h100-sxm", 1, 8, "nvlink-4", "efa-v2"),
        ("2x p4d.24xlarge", "a100-sxm-40gb", 2, 8, "nvlink-3", "efa-v1"),
        ("8xl40s", "l40s", 1, 8, None, "efa-no-gdr"),
        ("16xl40s", "l40s", 2, 8, None, "efa-no-gdr"),
        ("4xh100-pcie", "h100-pcie", 1, 4, None, None),
        ("72xgb200", "gb200", 18, 4, "nvlink-5", "ib-ndr"),
        ("2xgb10", "gb10", 2, 1, None, "roce-200"),
        ("rtx 4090", "rtx-4090", 1, 1, None, "tcp-25gbe"),
        ("2x4090", "rtx-4090", 1, 2, None, "tcp-25gbe"),
        ("Azure NC96ads_A100_v4", "a100-pcie-80gb", 1, 4, "nvlink-bridge-a100", "tcp-100gbe"),
    ],
)
def test_targets(
    text: str, device: str, nodes: int, per_node: int, link: str | None, fabric: str | None
) -> None:
    cluster = catalog.target(text)
    assert (cluster.device.name, cluster.nodes, cluster.gpus_per_node) == (device, nodes, per_node)
    assert (cluster.link.name if cluster.link else None) == link
    assert (cluster.fabric.name if cluster.fabric else None) == fabric
    assert cluster.pcie is not None
    assert cluster.host is not None


def test_what_was_read_into_a_target_is_told() -> None:
    assumed = {a.name: a for a in catalog.target("16x h100").assumed}
    assert assumed["cluster.device"].value == "h100-sxm"
    assert "h100 read as" in assumed["cluster.device"].why
    assert assumed["cluster.node"].value == "hgx-h100"
    assert {a.name for a in catalog.target("16xl40s").assumed} == {"cluster.node"}
    assert "cluster.fabric" in {a.name for a in catalog.target("16xh100-pcie").assumed}
    assert {a.name for a in catalog.target("2xrtx-3090").assumed} == {"node.link_fabric"}
    assert catalog.target("4xhgx-h100").assumed == ()


def test_a_part_of_a_node_has_its_share() -> None:
    part, whole = catalog.target("2xh100-sxm"), catalog.target("hgx-h100")
    assert part.node.ram_bytes == whole.node.ram_bytes // 4  # type: ignore[operator]
    assert part.node.nics == 2
    assert part.gpus_per_link_domain == 2
    assert part.node.ram is not None
    assert part.node.ram.kind == "estimated"


def test_grace_parts_reach_their_host_by_c2c() -> None:
    host = catalog.target("gh200-96gb").host
    assert host is not None
    assert host.kind == "nvlink-c2c"


def test_a_rack_is_one_link_domain() -> None:
    assert catalog.target("72xgb200").gpus_per_link_domain == 72
    assert catalog.target("8xgb200").gpus_per_link_domain == 8
    assert catalog.target("2x2xgb200").gpus_per_link_domain == 4
    assert catalog.target("2x2xh100-sxm").gpus_per_link_domain == 2
    assert catalog.target("144xgb200").gpus_per_link_domain == 72


def test_devices_that_are_not_whole_machines() -> None:
    with pytest.raises(InputError) as error:
        catalog.target("12xh100-sxm")
    assert "8xh100-sxm or 16xh100-sxm" in error.value.hint


@pytest.mark.parametrize(
    "text", ["0xh100", "9999999999999999999xh100", "2x9xh100-sxm", "2x2xhgx-h100", "", "  ", "8x"]
)
def test_wrong_targets(text: str) -> None:
    with pytest.raises(OutgrowError):
        catalog.target(text)


def test_an_unknown_target_names_near_ones() -> None:
    with pytest.raises(UnknownNameError) as error:
        catalog.target("8xh10-sxm")
    assert "h100-sxm" in error.value.hint


pieces = st.sampled_from(
    [
        "8",
        "0",
        "x",
        "×",
        " ",
        "*",
        ":",
        "h100",
        "a100",
        "rtx",
        "6000",
        "hgx-h100",
        "-",
        "sxm",
        "４",
        "²",
        "\n",
        "9" * 9,
        "v100",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.text(max_size=30), st.lists(pieces, max_size=7).map("".join)))
def test_any_text_is_a_cluster_or_an_outgrow_error(text: str) -> None:
    with suppress(OutgrowError):
        assert catalog.target(text).gpus >= 1


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 4096), st.sampled_from(["h100-sxm", "l40s", "gb200", "mi300x", "rtx-3090"]))
def test_a_count_of_devices_is_kept(count: int, name: str) -> None:
    try:
        assert catalog.target(f"{count}x{name}").gpus == count
    except InputError:
        assert count > 4
        assert count % (4 if name == "gb200" else 8)
