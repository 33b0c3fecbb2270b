"""What `--on` takes: "h100-sxm", "16x h100-sxm", "2x8x h100-sxm", "4xhgx-h100", "aws-p5.48xlarge"."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, cast

from outgrow.catalog.load import Library, library
from outgrow.cluster.cluster import MOST_NODES, Cluster
from outgrow.cluster.device import Device
from outgrow.cluster.fabric import Fabric
from outgrow.cluster.figure import Figure
from outgrow.cluster.node import Node
from outgrow.errors import InputError, OutgrowError, UnknownNameError, shorten
from outgrow.evidence import Assumption

USUAL_NODE: Final = 8
"""GPUs of one machine where the device's usual node is not known."""
UNKNOWN_FABRIC: Final = "tcp-100gbe"
"""What joins nodes where nothing is known: slow among the usual choices, so that no plan is too hopeful."""

_LONGEST: Final = 200
_BEFORE: Final = re.compile(r"(?:([0-9]+)\s*[x×*]\s*)?([0-9]+)\s*[x×*]\s*(\S.*)\Z", re.IGNORECASE | re.DOTALL)
_AFTER: Final = re.compile(r"(.*\S)(?:\s+[x×*]\s*|\s*:\s*)([0-9]+)\Z", re.IGNORECASE | re.DOTALL)
_MOST_DIGITS: Final = 7


def target(text: str) -> Cluster:
    """The cluster that a short text means.

    A device with a count up to the size of its usual machine (8, but 4 in a GB200 tray) is one machine with
    so many of them; more must be whole machines; "2x8x h100" says machines and devices apart. A node with a
    count is so many nodes. Whatever was read into the text is in `assumed`. Raises `UnknownNameError` or
    `InputError`.
    """
    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise InputError(
            f"{shorten(text)} names no hardware.", hint='say for example "h100-sxm" or "4xhgx-h100"'
        )
    files = library()
    nodes, count, name = _counts(text.strip(), files)
    found = files.find("device", name)
    if found is not None and (found[1] == "name" or files.find("node", name) is None):
        device = cast("Device", files.value("device", found[0]))
        return _of_devices(files, device, nodes, count, _read_as(files, "device", name))
    found = files.find("node", name)
    if found is None:
        raise _unknown(files, name)
    if nodes is not None:
        raise InputError(
            f"{shorten(text)} counts devices of a node that has its own.",
            hint=f"say {nodes}x{found[0]} for {nodes} such nodes",
        )
    node = cast("Node", files.value("node", found[0]))
    return _of_nodes(files, node, count, _read_as(files, "node", name))


def _counts(text: str, files: Library) -> tuple[int | None, int, str]:
    """Nodes (where said), devices or nodes, and the name."""
    match = _BEFORE.match(text)
    if match is not None:
        return (None if match[1] is None else _count(match[1])), _count(match[2]), match[3]
    match = _AFTER.match(text)
    if match is not None and files.find("device", text) is None and files.find("node", text) is None:
        return None, _count(match[2]), match[1]
    return None, 1, text


def _count(digits: str) -> int:
    count = int(digits) if len(digits) <= _MOST_DIGITS else MOST_NODES + 1
    if not 1 <= count <= MOST_NODES:
        raise InputError(f"A count must be 1 to {MOST_NODES:,} (found {shorten(digits)}).")
    return count


def _of_nodes(files: Library, node: Node, nodes: int, assumed: tuple[Assumption, ...]) -> Cluster:
    device = cast("Device", files.value("device", files.slug("device", node.device)))
    if nodes > 1 and node.fabric is None:
        fabric = cast("Fabric", files.value("fabric", UNKNOWN_FABRIC))
        node = replace(node, fabric=fabric.name, nics=1, nic_bandwidth=fabric.bandwidth)
        why = "what joins the nodes is not known, so one plain Ethernet port each"
        assumed = (*assumed, Assumption(name="cluster.fabric", value=fabric.name, why=why))
    return Cluster(
        device=device,
        node=node,
        nodes=nodes,
        link=_fabric(files, node.link_fabric),
        pcie=_fabric(files, node.pcie_fabric),
        host=_fabric(files, device.host_fabric or node.pcie_fabric),
        fabric=_fabric(files, node.fabric),
        assumed=assumed,
    )


def _of_devices(
    files: Library, device: Device, nodes: int | None, count: int, assumed: tuple[Assumption, ...]
) -> Cluster:
    usual = None if device.usual_node is None else cast("Node", files.value("node", device.usual_node))
    per_node = USUAL_NODE if usual is None else usual.gpus
    if nodes is None:
        nodes, count = _whole(device, count, per_node)
    if count > per_node:
        raise InputError(
            f"{count} × {device.title} do not fit into one machine: the usual one has {per_node}.",
            hint=f"say {nodes * count}x{device.name}, or name a node",
        )
    if usual is not None and count == usual.gpus:
        node = usual
        if count > 1:
            why = f"{count} × {device.title} usually come as this machine"
            assumed = (*assumed, Assumption(name="cluster.node", value=node.name, why=why))
    elif usual is not None:
        node = _part_of(usual, device, count)
        part = f"{count}/{usual.gpus} of a {usual.title}"
        why = f"{device.title} usually comes in it; its memory and NICs are shared out by GPU"
        assumed = (*assumed, Assumption(name="cluster.node", value=part, why=why))
    else:
        node, reason = _plain(device, count)
        assumed = (*assumed, *reason)
    return _of_nodes(files, node, nodes, assumed)


def _whole(device: Device, count: int, per_node: int) -> tuple[int, int]:
    """How many machines of how many devices `count` devices are."""
    if count <= per_node:
        return 1, count
    if count % per_node:
        lower = count - count % per_node
        raise InputError(
            f"{count} × {device.title} are not whole machines: one has {per_node}.",
            hint=f"say {lower}x{device.name} or {lower + per_node}x{device.name}, or machines and devices "
            f"apart (2x{max(1, per_node // 2)}x{device.name})",
        )
    return count // per_node, per_node


def _part_of(usual: Node, device: Device, count: int) -> Node:
    share = count / usual.gpus
    nics = max(1, usual.nics * count // usual.gpus) if usual.nics else 0
    return replace(
        usual,
        name=f"{count}x-{device.name}",
        title=device.title if count == 1 else f"{count} × {device.title}",
        aliases=(),
        loose_aliases=(),
        gpus=count,
        link_domain=usual.link_domain if usual.spans_nodes else min(usual.link_domain, count),
        nics=nics,
        nic_bandwidth=usual.nic_bandwidth if nics else None,
        cpus=_scaled(usual.cpus, share),
        ram=_scaled(usual.ram, share),
        nvme=_scaled(usual.nvme, share),
    )


def _scaled(figure: Figure | None, share: float) -> Figure | None:
    if figure is None:
        return None
    note = f"{share:.3g} of the node's"
    return replace(figure, value=figure.value * share, low=None, high=None, kind="estimated", note=note)


def _plain(device: Device, count: int) -> tuple[Node, tuple[Assumption, ...]]:
    """A machine that nothing is known of but its devices."""
    # A bridge is an extra that most machines lack: it is there when a node of the catalogue says so.
    bridged = device.link_fabric is not None and "bridge" in device.link_fabric
    link = None if bridged else device.link_fabric
    assumed: tuple[Assumption, ...] = ()
    if bridged and count > 1:
        why = f"NVLink bridges are an option of {device.title}; name a node that has them where yours does"
        assumed = (Assumption(name="node.link_fabric", value="none", why=why),)
    node = Node(
        name=f"{count}x-{device.name}",
        title=device.title if count == 1 else f"{count} × {device.title}",
        device=device.name,
        gpus=count,
        link_fabric=link,
        link_domain=min(device.link_domain, count) if link else 1,
        pcie_fabric=device.pcie_fabric,
        overlay=device.overlay,
    )
    return node, assumed


def _fabric(files: Library, slug: str | None) -> Fabric | None:
    return None if slug is None else cast("Fabric", files.value("fabric", files.slug("fabric", slug)))


def _read_as(files: Library, kind: str, text: str) -> tuple[Assumption, ...]:
    found = files.find(kind, text)
    if found is None or found[1] != "loose":
        return ()
    title = files.index(kind).titles.get(found[0]) or found[0]
    return (Assumption(name=f"cluster.{kind}", value=found[0], why=f"{text.strip()} read as {title}"),)


def _unknown(files: Library, name: str) -> OutgrowError:
    near = [*files.index("device").nearest(name, 2), *files.index("node").nearest(name, 2)]
    hint = (
        f"did you mean {' or '.join(near[:3])}?"
        if near
        else "outgrow catalog list devices shows what there is"
    )
    return UnknownNameError(f"No device or node is called {shorten(name)}.", hint=hint)
