"""Live bytes of a run, by storage: each storage counts once, until its last reference goes."""

from __future__ import annotations

import weakref
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ALIGNMENT = 512  # the caching allocator rounds every request up to this


def rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def flash_scratch(query: torch.Tensor, key: torch.Tensor) -> int:
    """Bytes that the flash-attention backward of a GPU allocates inside its kernel call, unseen from here.

    From the sources of FlashAttention 2 in PyTorch: an fp32 accumulator of the query gradient and row sums,
    both with the sequence rounded up to 128; with grouped queries a key and a value gradient per query head.
    """
    batch, heads, length, width = query.shape
    length = -(-length // 128) * 128
    padded = -(-width // 32) * 32 if width <= 128 else -(-width // 64) * 64
    size = rounded(batch * heads * length * padded * 4) + rounded(batch * heads * length * 4)
    if key.shape[1] != heads:
        size += 2 * rounded(batch * key.shape[2] * heads * width * query.element_size())
    return size


@dataclass(slots=True)
class Block:
    """One storage: what made it, and where in the step."""

    size: int
    op: str
    shape: tuple[int, ...]
    dtype: str
    phase: str
    module: str
    role: str = ""


@dataclass(slots=True)
class Peak:
    total: int = 0
    exact: int = 0
    phase: str = ""
    op: str = ""
    event: int = 0


@dataclass
class Log:
    """Every change of live bytes, so that what was alive at any event can be listed afterwards."""

    blocks: list[Block] = field(default_factory=list)
    events: list[tuple[int, int]] = field(default_factory=list)  # (block, change of its bytes)

    def alive_at(self, event: int) -> list[tuple[Block, int]]:
        sizes: dict[int, int] = defaultdict(int)
        for block, change in self.events[:event]:
            sizes[block] += change
        return [(self.blocks[i], size) for i, size in sizes.items() if size]


class Pause:
    """Tensors made inside are no part of the step."""

    def __init__(self, tracker: StorageTracker) -> None:
        self.tracker = tracker

    def __enter__(self) -> None:
        self.tracker.paused = True

    def __exit__(self, *_: Any) -> None:
        self.tracker.paused = False


class StorageTracker(TorchDispatchMode):
    """Counts the storages of one device type under a fake mode that was entered before."""

    def __init__(self, device: str = "cuda") -> None:
        super().__init__()
        self.device = device
        self.live = 0
        self.live_exact = 0
        self.phase = "setup"
        self.module = ""
        self.op = ""
        self.log = Log()
        self.peaks: dict[str, Peak] = {}
        self.scope = ""
        self._refs: dict[int, tuple[weakref.ref[Any], int]] = {}
        self.scratch = 0
        self.paused = False
        self._counting = False
        self._exclusive = (0, 0)
        self._resize = torch.UntypedStorage.resize_

    def __enter__(self) -> StorageTracker:
        super().__enter__()
        tracker, original = self, self._resize

        def resize(storage: torch.UntypedStorage, size: int) -> Any:
            # FSDP frees and refills its all-gathered parameters this way.
            known = tracker.index_of(storage)
            before = storage.nbytes()
            tracker.op = "resize_"
            out = original(storage, size)
            if known is not None:
                tracker._change(known, storage.nbytes() - before, before)
            return out

        torch.UntypedStorage.resize_ = resize  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *args: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*args)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(t is DTensor for t in types):
            return NotImplemented  # the operations on its local tensors come here afterwards
        if self.paused:
            return func(*args, **(kwargs or {}))
        self.op = str(func)
        if func is torch.ops.aten.add.Tensor and not kwargs and self._adds_in_place(args):
            torch.ops.aten.add_.Tensor(args[0], args[1])
            return args[0]
        if func is torch.ops.aten.index_put.default and not torch.is_grad_enabled():
            # The same: the gradient of an index fills its zeros in place.
            torch.ops.aten.index_put_.default(*args)
            return args[0]
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        if func is torch.ops.aten._scaled_dot_product_flash_attention_backward.default:
            self.scratch = max(self.scratch, self.live + flash_scratch(*args[1:3]))
        return out

    def calibrate(self) -> None:
        """Learn how many references a gradient has in the engine when it is the last that holds it."""
        leaf = torch.empty(8, device=self.device, requires_grad=True)
        shared = leaf * 2
        self._counting = True
        ((shared * 2).sum() + (shared * 3).sum()).backward()
        self._counting = False

    def _adds_in_place(self, args: Any) -> bool:
        # The autograd engine sums two gradients in place where it holds the last reference to the first, but
        # not for tensor subclasses, and fake tensors are one. So the sum is done here as a GPU would do it.
        if torch.is_grad_enabled() or len(args) != 2 or not isinstance(args[1], torch.Tensor):
            return False
        first, second = args
        if first.shape != second.shape or first.dtype != second.dtype or first.device.type != self.device:
            return False
        counts = (first._use_count(), torch._C._storage_Use_Count(first.untyped_storage()._cdata))
        if self._counting:
            self._exclusive = counts
            return False
        return self.phase.endswith("backward") and counts == self._exclusive

    def begin(self, scope: str) -> None:
        """Start the peak of one scope (a step) from what is alive now."""
        self.scope = scope
        self.peaks[scope] = Peak(self.live, self.live_exact, self.phase, "", len(self.log.events))

    def add(self, tensor: torch.Tensor, role: str = "") -> None:
        """Track the storage of a tensor; with a role, also say what it is."""
        if isinstance(tensor, DTensor):
            tensor = tensor._local_tensor
        if tensor.device.type != self.device:
            return
        storage = tensor.untyped_storage()
        known = self.index_of(storage)
        if known is None:
            known = len(self.log.blocks)
            shape, dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            self.log.blocks.append(Block(0, self.op, shape, dtype, self.phase, self.module))
            key, index = storage._cdata, known

            def gone(_: Any) -> None:
                self._refs.pop(key, None)
                size = self.log.blocks[index].size
                self._change(index, -size, size)

            self._refs[key] = (weakref.ref(storage, gone), index)
            self._change(index, storage.nbytes(), 0)
        if role:
            self.log.blocks[known].role = role

    def index_of(self, storage: torch.UntypedStorage) -> int | None:
        ref = self._refs.get(storage._cdata)
        return ref[1] if ref is not None and ref[0]() is storage else None

    def role_bytes(self, tensors: list[torch.Tensor], role: str) -> int:
        """Mark the storages of these tensors, and return their bytes, each storage once."""
        seen: dict[int, int] = {}
        for tensor in tensors:
            self.add(tensor, role)
            local = tensor._local_tensor if isinstance(tensor, DTensor) else tensor
            if local.device.type == self.device:
                storage = local.untyped_storage()
                seen[storage._cdata] = rounded(storage.nbytes())
        return sum(seen.values())

    def _change(self, index: int, change: int, before: int) -> None:
        if not change:
            return
        after = before + change
        step = rounded(after) - rounded(before)
        self.log.blocks[index].size = after
        self.live += step
        self.live_exact += change
        self.log.events.append((index, step))
        peak = self.peaks.get(self.scope)
        if peak is not None and self.live > peak.total:
            self.peaks[self.scope] = Peak(
                self.live, self.live_exact, self.phase, self.op, len(self.log.events)
            )
