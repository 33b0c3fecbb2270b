"""Two steps of training on fake tensors, for many combinations: what is alive when, by storage.

An oracle that is independent of the formulas of the package: real model classes, real autograd, real
optimizers, no data and no GPU. Needs torch, transformers and peft, and g++ where PyTorch is built for CPU.

    python scripts/oracle/fake_step.py --out validation/data/fake_tensor_memory.csv [--only ID]
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gc
import sys
import time
import warnings
from fnmatch import fnmatch
from itertools import pairwise
from pathlib import Path
from typing import Any

from fake_cuda import load_guard, patch_torch, patch_transformers

load_guard()

import torch  # noqa: E402
from build import body_of, gathered_of, layers_of, model_of, optimizer_of, shard  # noqa: E402
from combos import Combo, combos  # noqa: E402
from losses import compute as compute_loss  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402
from torch.distributed.tensor._sharding_prop import ShardingPropagator  # noqa: E402
from tracker import Pause, StorageTracker  # noqa: E402

PHASES = ("forward", "loss", "loss_backward", "backward", "optimizer")


class Step:
    """One combination: its model, and what two steps of it keep alive."""

    def __init__(self, combo: Combo, mesh: Any, verbose: bool) -> None:
        self.combo, self.mesh, self.verbose = combo, mesh, verbose
        self.tracker = StorageTracker()
        self.after_layer: list[int] = []

    def hidden_done(self, hidden: torch.Tensor) -> None:
        """The layers are done: what follows is the loss, and in the backward what came before was."""
        self.phase("loss")
        if hidden.requires_grad:
            hidden.register_hook(lambda _: self.phase("backward"))

    def phase(self, name: str) -> None:
        self.tracker.phase = name
        self.tracker.begin(f"{self.number}/{name}")

    def run(self) -> dict[str, Any]:
        row: dict[str, Any] = {}
        with FakeTensorMode(allow_non_fake_inputs=True), self.tracker:
            self.tracker.calibrate()
            model = model_of(self.combo)
            if self.combo.sharding != "none":
                # The shapes of sharded operators are found by running them whole, on tensors of no device.
                ShardingPropagator._fake_mode_lock = Pause(self.tracker)
                shard(model, self.combo, self.mesh)
            parameters = [p for p in model.parameters() if p.requires_grad]
            optimizer = optimizer_of(self.combo, parameters)
            ids = torch.zeros(self.combo.batch, self.combo.seq, dtype=torch.long, device="cuda")
            gc.collect()
            row["parameters"] = sum(p.numel() for p in model.parameters())
            row["trainable_parameters"] = sum(p.numel() for p in parameters)
            row["parameters_bytes"] = self.tracker.role_bytes(list(model.parameters()), "parameters")
            row["buffers_bytes"] = self.tracker.role_bytes(list(model.buffers()), "buffers")
            for layer in layers_of(model):
                layer.register_forward_hook(lambda *_: self.after_layer.append(len(self.tracker.log.events)))
            chunked = self.combo.loss.startswith("chunked") or self.combo.loss == "fused"
            if not chunked:
                body_of(model).register_forward_hook(lambda _m, _a, out: self.hidden_done(out[0]))
            for self.number in (1, 2):
                self.step(model, optimizer, parameters, ids, row)
        return row

    def step(self, model: Any, optimizer: Any, parameters: list[Any], ids: Any, row: dict[str, Any]) -> None:
        tracker, second = self.tracker, self.number == 2
        self.after_layer.clear()
        tracker.scratch = 0
        before = tracker.live
        self.phase("forward")
        autocast = self.combo.compute.startswith("autocast")
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss, kept = compute_loss(self.combo, model, ids, self.hidden_done)
        if self.combo.sharding != "none":
            tracker.role_bytes(gathered_of(model), "gathered")
        if second:
            self.end_of_forward(row, before)
        self.phase("loss_backward")
        loss.backward()
        del loss, kept
        grads = [p.grad for p in parameters if p.grad is not None]
        row["gradients_bytes"] = tracker.role_bytes(grads, "gradients")
        row["end_of_backward_bytes"] = tracker.live
        del grads
        self.phase("optimizer")
        if optimizer is not None:
            optimizer.step()
            states = [v for s in optimizer.state.values() for v in s.values() if isinstance(v, torch.Tensor)]
            row["optimizer_bytes"] = tracker.role_bytes(states, "optimizer")
            optimizer.zero_grad(set_to_none=True)
        else:
            row["optimizer_bytes"] = 0
            model.zero_grad(set_to_none=True)
        peaks = {p: tracker.peaks[f"{self.number}/{p}"] for p in PHASES}
        worst = max(peaks, key=lambda p: peaks[p].total)
        row[f"peak_step{self.number}_bytes"] = peaks[worst].total
        row[f"peak_step{self.number}_phase"] = worst
        if second:
            row["peak_step2_unrounded_bytes"] = peaks[worst].exact
            row["peak_step2_op"] = peaks[worst].op
            for name, peak in peaks.items():
                row[f"peak_{name}_bytes"] = peak.total
            self.at_peak(row, peaks[worst].event)
            row["peak_flash_backward_with_scratch_bytes"] = tracker.scratch
            if self.verbose:
                self.show(peaks)

    def end_of_forward(self, row: dict[str, Any], before: int) -> None:
        """Between the forward and the backward: what autograd and the loop hold."""
        tracker, vocab = self.tracker, self.combo.model.vocab
        row["before_forward_bytes"] = before
        alive = tracker.log.alive_at(len(tracker.log.events))
        row["gathered_bytes_end_of_forward"] = self.gathered(alive)
        row["activation_bytes_end_of_forward"] = tracker.live - before - self.gathered(alive)
        fresh = [(b, size) for b, size in alive if b.phase in ("forward", "loss") and not b.role]
        row["logits_bytes_end_of_forward"] = sum(s for b, s in fresh if b.shape and b.shape[-1] == vocab)
        weights = {b.shape for b, _ in alive if b.role == "parameters" and len(b.shape) > 1}
        casts = [s for b, s in fresh if b.op == "aten._to_copy.default" and b.shape in weights]
        row["weight_cast_bytes_end_of_forward"] = sum(casts)
        held = [tracker.log.alive_at(event) for event in self.after_layer]
        sums = [sum(size for _, size in a) - self.gathered(a) for a in held]
        # Not the first: it also ends the time in which the embedding's output is the only hidden state.
        steps = [b - a for a, b in pairwise(sums)][1:]
        row["activation_bytes_per_layer"] = sum(steps) // max(len(steps), 1)

    def gathered(self, alive: list[tuple[Any, int]]) -> int:
        """Whole parameters that FSDP holds: its flat buffer, and the copies that the layers use."""
        if self.combo.sharding == "none":
            return 0
        flat = "aten.empty.memory_format"
        return sum(
            size
            for b, size in alive
            if b.role == "gathered"
            or (not b.role and b.phase != "setup" and b.op == flat and len(b.shape) == 1)
        )

    def at_peak(self, row: dict[str, Any], event: int) -> None:
        alive = self.tracker.log.alive_at(event)
        vocab = self.combo.model.vocab
        for role in ("parameters", "gradients", "optimizer"):
            row[f"at_peak_{role}_bytes"] = sum(s for b, s in alive if b.role == role)
        # Includes the inputs of the reduction of gradients: they are flat buffers as well.
        row["at_peak_gathered_bytes"] = self.gathered(alive)
        rest = [(b, s) for b, s in alive if b.role in ("", "buffers")]
        logits = sum(s for b, s in rest if len(b.shape) > 1 and b.shape[-1] == vocab)
        row["at_peak_logits_bytes"] = logits
        named = sum(v for k, v in row.items() if k.startswith("at_peak_"))
        row["at_peak_other_bytes"] = sum(s for _, s in alive) - named

    def show(self, peaks: dict[str, Any]) -> None:
        tokens = self.combo.batch * self.combo.seq
        for name, peak in peaks.items():
            print(f"  {name}: {peak.total} ({peak.total / tokens:.1f} B/token) at {peak.op}")
            groups: dict[tuple[Any, ...], list[int]] = {}
            for block, size in self.tracker.log.alive_at(peak.event):
                key = (block.role or block.op, block.dtype, block.phase) + (
                    (block.shape,) if not block.role else ()
                )
                groups.setdefault(key, []).append(size)
            for key, sizes in sorted(groups.items(), key=lambda item: -sum(item[1]))[:22]:
                print(f"    {sum(sizes):>14} {sum(sizes) / tokens:>10.1f} B/token  {len(sizes):>3} x {key}")


def mesh_of(combo: Combo) -> Any:
    """A device mesh over a process group that moves nothing; made outside of the fake mode."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.testing._internal.distributed.fake_pg import FakeStore

    if dist.is_initialized():
        dist.destroy_process_group()
    dist.init_process_group("fake", rank=0, world_size=combo.world, store=FakeStore())
    if combo.tensor_parallel == 1:
        return init_device_mesh("cuda", (combo.world,), mesh_dim_names=("dp",))
    shape = (combo.world // combo.tensor_parallel, combo.tensor_parallel)
    return init_device_mesh("cuda", shape, mesh_dim_names=("dp", "tp"))


def describe(combo: Combo) -> dict[str, Any]:
    model = combo.model
    fields = (
        "hidden",
        "layers",
        "heads",
        "kv_heads",
        "head_dim",
        "intermediate",
        "vocab",
        "tied",
        "experts",
        "top_k",
        "attention",
        "dropout",
    )
    row: dict[str, Any] = {"id": combo.id, "family": model.family}
    row |= {name: getattr(model, name) for name in fields}
    names = (
        "batch",
        "seq",
        "compute",
        "recompute",
        "loss",
        "method",
        "lora_rank",
        "lora_targets",
        "lora_dropout",
        "lora_dtype",
        "padded",
        "sharding",
        "world",
        "tensor_parallel",
        "reshard",
        "optimizer",
    )
    row |= {name: getattr(combo, name) for name in names}
    row["parameters_dtype"] = "fp32" if combo.compute in ("autocast", "fsdp_mixed", "fp32") else "bf16"
    return row


MEASURED = (
    "parameters",
    "trainable_parameters",
    "parameters_bytes",
    "buffers_bytes",
    "gradients_bytes",
    "optimizer_bytes",
    "before_forward_bytes",
    "activation_bytes_end_of_forward",
    "activation_bytes_per_layer",
    "gathered_bytes_end_of_forward",
    "logits_bytes_end_of_forward",
    "weight_cast_bytes_end_of_forward",
    "end_of_backward_bytes",
    "peak_step1_bytes",
    "peak_step1_phase",
    "peak_step2_bytes",
    "peak_step2_phase",
    "peak_step2_op",
    "peak_step2_unrounded_bytes",
    "peak_flash_backward_with_scratch_bytes",
    *(f"peak_{p}_bytes" for p in PHASES),
    "at_peak_parameters_bytes",
    "at_peak_gradients_bytes",
    "at_peak_optimizer_bytes",
    "at_peak_gathered_bytes",
    "at_peak_logits_bytes",
    "at_peak_other_bytes",
)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--only", action="append", default=[], help="a combination's id; may be a pattern (llama-lora-*)"
    )
    parser.add_argument("--verbose", action="store_true", help="list what is alive at each peak")
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    patch_torch()
    patch_transformers()
    failed = 0
    chosen = [c for c in combos() if not args.only or any(fnmatch(c.id, o) for o in args.only)]
    fieldnames = [*describe(chosen[0]), *MEASURED] if chosen else []
    old: list[dict[str, str]] = []
    if args.out.exists():
        with args.out.open(newline="") as handle:
            old = [r for r in csv.DictReader(handle) if r["id"] not in {c.id for c in chosen}]
    with args.out.open("w", newline="") as handle:
        writer = csv.DictWriter(handle, fieldnames, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        writer.writerows(old)
        for combo in chosen:
            start = time.monotonic()
            try:
                with contextlib.ExitStack():
                    mesh = mesh_of(combo) if combo.sharding != "none" else None
                    row = describe(combo) | Step(combo, mesh, args.verbose).run()
            except Exception as error:
                failed += 1
                print(f"{combo.id}: {type(error).__name__}: {str(error)[:300]}", file=sys.stderr)
                if args.verbose:
                    raise
                continue
            writer.writerow(row)
            handle.flush()
            gc.collect()
            print(
                f"{combo.id}: {row['peak_step2_bytes'] / 2**30:.3f} GiB {row['peak_step2_phase']} "
                f"({time.monotonic() - start:.1f} s)",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
