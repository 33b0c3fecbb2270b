"""What stays between steps: parameters, gradients, optimizer states, and other models that must be resident."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.layout import Layout
from outgrow.physics.memory.parameters import RankParameters, lora_parameters, lora_targets, rank_parameters
from outgrow.workload.model import ModelShape
from outgrow.workload.training import EIGHT_BIT_MOMENT, TrainingJob

BF16 = 2.0
FP32 = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes on one rank of one pipeline stage."""

    rank: RankParameters
    trained: float
    """Trained parameters of this rank before sharding."""
    trained_shard: float
    """Trained parameters whose optimizer states this rank keeps."""
    frozen_bytes: float
    parameter_bytes: float
    """Trained parameters."""
    gradient_bytes: float
    """Gradients when all are there."""
    gradients_persist: bool
    """They are a buffer that is never freed."""
    master_bytes: float
    moment_bytes: float
    moments_paged: bool
    reference_bytes: float
    adapter_bytes: float
    host_bytes: float
    formula: str

    @property
    def resident(self) -> float:
        """Bytes that are there at any moment of the second step."""
        moments = 0.0 if self.moments_paged else self.moment_bytes
        total = (
            self.frozen_bytes
            + self.parameter_bytes
            + self.adapter_bytes
            + self.master_bytes
            + moments
            + self.reference_bytes
        )
        return total + (self.gradient_bytes if self.gradients_persist else 0.0)


def _split(layout: Layout, *, parameters: bool) -> tuple[float, float]:
    """(dense, expert) share of one rank's states, as fractions of what it would hold unsharded."""
    if layout.sharding == "none" or (parameters and layout.sharding != "zero3"):
        return 1.0, 1.0
    return 1.0 / layout.shards, 1.0 / layout.expert_shards


def training_states(model: ModelShape, job: TrainingJob, layout: Layout, stage: int = 0) -> States:
    """States of one rank, from the regime of its precision, its optimizer and its sharding."""
    rank = rank_parameters(model, layout, stage)
    regime = job.regime
    dense_part, expert_part = _split(layout, parameters=True)
    dense_state, expert_state = _split(layout, parameters=False)
    gradient_dense, gradient_expert = (
        (dense_state, expert_state) if layout.sharding in ("zero2", "zero3") else (1.0, 1.0)
    )

    frozen = parameter = adapter = 0.0
    trained = trained_dense = trained_expert = 0.0
    if job.trains_all:
        trained_dense, trained_expert = rank.dense, rank.experts
        parameter = regime.parameter * (rank.dense * dense_part + rank.experts * expert_part)
        if job.fp8_transposes and regime.fp8:
            parameter += rank.blocks * dense_part + rank.experts * expert_part
        text = f"{rank.total:,.0f} parameters x {regime.parameter:g} B"
    else:
        frozen = frozen_bytes(rank, job, dense_part, expert_part)
        text = f"{rank.total:,.0f} frozen parameters"
    trained = trained_dense + trained_expert
    gradient_bytes = regime.gradient * (trained_dense * gradient_dense + trained_expert * gradient_expert)
    shard = trained_dense * dense_state + trained_expert * expert_state

    adapters = table = 0.0
    if job.method in ("lora", "dora", "qlora"):
        indices = layout.chunks(len(model.layers))[stage]
        adapters = lora_parameters(
            model,
            indices,
            job.lora.rank,
            lora_targets(job.lora.targets),
            tp=layout.tp,
            dora=job.method == "dora",
        )
        if job.lora.parameters is not None:
            adapters = job.lora.parameters * len(indices) / max(1, len(model.layers)) / layout.tp
        width = job.lora.parameter_bytes
        adapter = adapters * width * dense_part
        gradient_bytes += adapters * width * gradient_dense
        if job.lora.train_embeddings:
            table = rank.embedding + rank.head
            adapter += table * job.lora.embedding_bytes * dense_part
            gradient_bytes += table * job.lora.embedding_bytes * gradient_dense
        trained += adapters + table
        shard += (adapters + table) * dense_state
    master = 0.0 if not job.trains_all else regime.master * shard
    moments = _moments(job, rank, shard, adapters * dense_state, table * dense_state)
    reference = _reference(job, rank, dense_part, expert_part)
    if job.ema:
        reference += FP32 * shard
    if job.objective == "ppo":
        # The value model is of the policy's size and trained as the policy is.
        reference += parameter + frozen + adapter + gradient_bytes + master + moments
    host = 0.0
    paged = job.optimizer.startswith("paged")
    if paged and "optimizer" not in job.offload:
        host += moments
    if "optimizer" in job.offload:
        # Host keeps the master, the moments and the gradients that the host optimizer reads (DeepSpeed ZeRO-Offload).
        host += master + moments + FP32 * shard
        master = moments = 0.0
    if "parameters" in job.offload:
        host += parameter + frozen
        # What is at work is on the device: the gathered layers of sharded training, else two layers.
        live = (
            0.0
            if layout.sharding == "zero3" and layout.shards > 1
            else min(1.0, 2 * rank.layer / max(rank.total, 1))
        )
        form = job.base_format
        width = form.bytes_per_element if form else job.base_bytes or regime.compute
        parameter, frozen = (
            (min(parameter, 2 * regime.parameter * rank.layer) if live else 0.0),
            (min(frozen, 2 * width * rank.layer) if live else 0.0),
        )
        if job.trains_all:
            host += gradient_bytes
            gradient_bytes = min(gradient_bytes, 2 * regime.gradient * rank.layer) if live else 0.0
    return States(
        rank=rank,
        trained=trained,
        trained_shard=shard,
        frozen_bytes=frozen,
        parameter_bytes=parameter,
        gradient_bytes=gradient_bytes,
        gradients_persist=regime.gradient_buffer and job.trains_all,
        master_bytes=master,
        moment_bytes=moments,
        moments_paged=paged,
        reference_bytes=reference,
        adapter_bytes=adapter,
        host_bytes=host,
        formula=text,
    )


def frozen_bytes(
    rank: RankParameters, job: TrainingJob, dense_part: float = 1.0, expert_part: float = 1.0
) -> float:
    """Bytes of a frozen base: linear layers in its weight format, tables and norms in 16 bits."""
    plain = job.base_bytes if job.base_bytes is not None else job.regime.compute
    form = job.base_format
    linear = form.bytes_per_element if form is not None else plain
    blocks = 0.0 if form is None or not form.experts_only else rank.blocks * (plain - linear)
    if job.fp8_transposes and form is not None and form.bits == 8:
        linear += 1.0
    dense = rank.blocks * linear + blocks + (rank.vectors + rank.embedding + rank.head + rank.towers) * plain
    return dense * dense_part + rank.experts * linear * expert_part


def _moments(job: TrainingJob, rank: RankParameters, shard: float, adapters: float, table: float) -> float:
    width = job.regime.state
    if "8bit" in job.optimizer:
        # Tables stay in fp32 where the library keeps them so; the blocks are what counts.
        return job.states * EIGHT_BIT_MOMENT * shard
    if job.trains_all:
        if job.optimizer == "muon":
            # Momentum for matrices of the blocks, Adam for tables and vectors.
            matrices = (rank.blocks + rank.experts) / max(rank.total, 1.0)
            return shard * width * (matrices + 2 * (1 - matrices))
        return job.states * width * shard
    return job.states * (adapters * job.lora.parameter_bytes + table * job.lora.embedding_bytes)


def _reference(job: TrainingJob, rank: RankParameters, dense_part: float, expert_part: float) -> float:
    """Frozen models that are resident beside the one that is trained, in 16 bits."""
    copies = 0
    if job.objective == "dpo" and not job.reference_precomputed and job.trains_all:
        copies = 1  # an adapter's reference is the base with the adapter off
    elif job.objective == "ppo":
        copies = (
            2 if job.trains_all else 1
        )  # reward, and a reference unless it is the base with its adapter off
    elif job.objective == "grpo" and job.trains_all:
        copies = 1
    width = job.regime.parameter if job.objective == "dpo" else BF16
    return copies * width * (rank.dense * dense_part + rank.experts * expert_part)
