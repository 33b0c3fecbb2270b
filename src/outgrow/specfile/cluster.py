"""A cluster file: which machines, how many, what joins them, where they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from outgrow import catalog
from outgrow.cluster.cluster import Cluster
from outgrow.cluster.fabric import Fabric
from outgrow.errors import InputError, OutgrowError, Problem
from outgrow.evidence import Assumption
from outgrow.specfile.tree import Reading, read_tree, settle_keys
from outgrow.specfile.workload import fault_of, read_root

_ENDINGS: Final = (".yaml", ".yml")
_MOST: Final = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFile:
    """What there is: `node` and `nodes`, or `device` and `gpus`."""

    node: str | None = None
    """The machine, by its name in the catalogue, such as hgx-h100 or aws-p5.48xlarge."""
    nodes: int | None = None
    """How many machines."""
    device: str | None = None
    """The accelerator, by its name in the catalogue, such as h100-sxm, where the machine is not named."""
    gpus: int | None = None
    """Accelerators in all machines together."""
    fabric: str | None = None
    """What joins the machines, where it is not what they usually come with, such as ib-ndr or roce-400."""
    nics: int | None = None
    """NICs of one machine for traffic between accelerators, where they are not as many as usual."""
    region: str = ""
    """Where it is."""
    tenancy: str = ""
    """Who else uses it: dedicated, shared."""


def cluster_of(text: str, *, files: bool = True) -> Cluster:
    """What `--on` means: a cluster file, or a short name such as "h100-sxm" or "4xhgx-h100".

    With `files` = False the disk is left alone, for callers that serve others.
    """
    if files and isinstance(text, str) and text.strip() and len(text) <= 4096:
        if text.lower().endswith(_ENDINGS):
            return load_cluster(Path(text))
        try:
            is_file = Path(text).is_file()
        except (OSError, ValueError):
            is_file = False
        if is_file:
            return load_cluster(Path(text))
    return catalog.target(text)


def load_cluster(path: Path | None, text: str | None = None) -> Cluster:
    """Read a cluster file. Raises `SpecError` with every fault."""
    from outgrow.specfile.check import check

    problems: list[Problem] = []
    root = read_root(path, text, problems)
    settle_keys(root, ClusterFile, problems)
    reading = read_tree(root, ClusterFile)
    reading.problems += problems
    spec = check(reading, ClusterFile)
    for key in ("node", "device", "fabric"):
        _check_name(reading, key)
    _check_relations(reading)
    if isinstance(spec, ClusterFile) and not reading.problems:
        cluster = _cluster(spec, reading)
        if cluster is not None:
            return cluster
    raise fault_of(root.file, reading.problems)


def _check_name(reading: Reading, key: str) -> None:
    name = reading.data.get(key)
    if not isinstance(name, str):
        return
    try:
        if key == "node":
            catalog.node(name)
        elif key == "device":
            catalog.device(name)
        elif catalog.fabric(name).is_inside_node:
            hint = "between machines there is InfiniBand, RoCE, EFA or Ethernet"
            reading.fault((key,), "joins accelerators inside of a machine, not machines", hint=hint)
    except OutgrowError as error:
        reading.fault((key,), _lower(error.message).rstrip("."), hint=error.hint, has_value=False)


def _check_relations(reading: Reading) -> None:
    data = reading.data
    named = [key for key in ("node", "device") if data.get(key) is not None or (key,) in reading.told]
    if len(named) != 1:
        found = "both are given" if named else "neither is given"
        _, where = reading.places[("device",) if named else ()]
        message = f"give exactly one of `node:` and `device:`; {found}"
        reading.problems.append(Problem(path="", message=message, file=where.file, line=where.line))
    elif named == ["node"] and data.get("gpus") is not None:
        hint = "a node of the catalogue has its own number of accelerators: say `nodes:`"
        reading.fault(("gpus",), "belongs to `device:`, and `node:` is given", hint=hint, has_value=False)
    nodes, gpus, nics = data.get("nodes"), data.get("gpus"), data.get("nics")
    for key, value in (("nodes", nodes), ("gpus", gpus), ("nics", nics)):
        if (
            isinstance(value, int)
            and not isinstance(value, bool)
            and not 1 <= value <= _MOST
            and not _has(reading, key)
        ):
            reading.fault((key,), f"must be between 1 and {_MOST:,}")
    if (
        isinstance(nodes, int) and isinstance(gpus, int) and nodes > 0 and gpus > 0 and gpus % nodes
        and "device" in named
    ):  # fmt: skip
        hint = f"{nodes} machines of {max(1, gpus // nodes)} are {nodes * max(1, gpus // nodes)}"
        reading.fault(
            ("gpus",), f"must be a multiple of nodes = {nodes}: it counts all machines together", hint=hint
        )


def _has(reading: Reading, key: str) -> bool:
    return any(problem.path == key for problem in reading.problems)


def _cluster(spec: ClusterFile, reading: Reading) -> Cluster | None:
    """The cluster, or None where the catalogue finds that its parts do not go together."""
    try:
        if spec.node is not None:
            cluster = catalog.target(f"{spec.nodes or 1}x{catalog.node(spec.node).name}")
        else:
            device, gpus = catalog.device(spec.device or "").name, spec.gpus or spec.nodes or 1
            short = (
                f"{gpus}x{device}" if spec.nodes is None else f"{spec.nodes}x{gpus // spec.nodes}x{device}"
            )
            cluster = catalog.target(short)
    except InputError as error:
        key = "gpus" if ("gpus",) in reading.places else "nodes" if ("nodes",) in reading.places else "node"
        reading.fault(
            (key,) if (key,) in reading.places else (), _lower(error.message).rstrip("."), hint=error.hint
        )
        return None
    spoken = spec.node if spec.node is not None else spec.device or ""
    kind = "node" if spec.node is not None else "device"
    read_as = catalog.explain_name(kind, spoken)
    assumed = cluster.assumed
    if read_as is not None:
        value = cluster.node.name if kind == "node" else cluster.device.name
        assumed = (*assumed, Assumption(name=f"cluster.{kind}", value=value, why=read_as))
    cluster = replace(cluster, region=spec.region, tenancy=spec.tenancy, assumed=assumed)
    return _joined(cluster, spec)


def _joined(cluster: Cluster, spec: ClusterFile) -> Cluster:
    """The cluster with the fabric and the NICs that the file names."""
    node, fabric, assumed = cluster.node, cluster.fabric, cluster.assumed
    if spec.fabric is not None:
        fabric = catalog.fabric(spec.fabric)
        assumed = tuple(a for a in assumed if a.name != "cluster.fabric")
        nics = spec.nics or _usual_nics(node.nics, fabric, known=cluster.node.fabric is not None)
        if spec.nics is None and fabric.name != node.fabric:
            why = f"ports of {fabric.title} in each machine; say `nics:` where there are more or fewer"
            assumed = (*assumed, Assumption(name="cluster.nics", value=str(nics), why=why))
        rate = node.nic_bandwidth if fabric.name == node.fabric else fabric.bandwidth
        node = replace(node, fabric=fabric.name, nics=nics, nic_bandwidth=rate)
    elif spec.nics is not None:
        rate = node.nic_bandwidth or (None if fabric is None else fabric.bandwidth)
        node = replace(node, nics=spec.nics, nic_bandwidth=rate)
    return replace(cluster, node=node, fabric=fabric, assumed=assumed)


def _usual_nics(nics: int, fabric: Fabric, *, known: bool) -> int:
    # Machines with one NIC per accelerator have them for RDMA; plain Ethernet is one port beside those.
    return nics if nics and known and fabric.is_rdma else 1


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:] if text[1:2].islower() or text[1:2] == " " else text
