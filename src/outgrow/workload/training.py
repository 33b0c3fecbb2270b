"""A training job: what is trained, on which tokens, in which precision, by which optimizer."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from outgrow.errors import InputError, Problem
from outgrow.workload.quantization import FORMATS, WeightFormat

Method = Literal["full", "lora", "dora", "qlora", "frozen"]
Optimizer = Literal[
    "adamw",
    "adamw-8bit",
    "paged-adamw",
    "paged-adamw-8bit",
    "adafactor",
    "lion",
    "lion-8bit",
    "sgd",
    "sgd-momentum",
    "muon",
    "none",
]
Loss = Literal[
    "plain",
    "plain-shifted",
    "plain-no-upcast",
    "in-place",
    "compiled",
    "chunked",
    "fused",
    "parallel",
    "parallel-fused",
    "parallel-unfused",
]
Kernels = Literal["eager", "triton", "compiled", "fused"]
AttentionKernel = Literal["flash", "sdpa", "flash-expanded", "flash-fp8", "math"]
Objective = Literal["pretrain", "sft", "dpo", "ppo", "grpo"]
Offload = Literal["parameters", "optimizer", "activations"]
Batching = Literal["packed", "padded", "unpadded"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """A bytes-per-parameter regime. All in bytes of one trained parameter, before any sharding."""

    name: str
    parameter: float
    """The parameters that stay resident between steps."""
    gradient: float
    """Accumulated gradients."""
    master: float
    """A master copy beside the parameters; 0 where the parameters are the master."""
    state: float
    """One optimizer moment."""
    compute: float
    """Parameters as the matrix multiplications read them."""
    reduce: float
    """Gradients as they are reduced across ranks."""
    activation: float = 2.0
    """Activations."""
    autocast: bool = False
    """Weights are cast at each use and the casts are kept until the backward pass has used them."""
    gradient_buffer: bool = False
    """Gradients live in one buffer that is allocated once and never freed."""
    fp8: bool = False
    """Linear layers multiply in 8 bits: weights are cast, activations may be kept in 8 bits."""
    meaning: str = ""


PRECISIONS: dict[str, Precision] = {
    p.name: p
    for p in (
        Precision(name="bf16", parameter=2, gradient=2, master=0, state=2, compute=2, reduce=2,
                  meaning="parameters, gradients and moments all bf16: 8 B with Adam (torchtune)"),
        Precision(name="mixed", parameter=2, gradient=2, master=4, state=4, compute=2, reduce=2,
                  meaning="bf16 parameters and gradients, fp32 master and moments: 16 B with Adam (DeepSpeed)"),
        Precision(name="mixed-fp32-grad", gradient_buffer=True, parameter=2, gradient=4, master=4, state=4, compute=2, reduce=4,
                  meaning="bf16 parameters, fp32 main gradients, master and moments: 18 B with Adam (Megatron)"),
        Precision(name="fp32-sharded", parameter=4, gradient=4, master=0, state=4, compute=2, reduce=4,
                  meaning="fp32 shards, gathered and multiplied in bf16: 16 B with Adam (FSDP mixed precision)"),
        Precision(name="autocast", parameter=4, gradient=4, master=0, state=4, compute=2, reduce=4, autocast=True,
                  meaning="fp32 parameters, operations cast to bf16: 16 B with Adam, plus the casts (torch.autocast)"),
        Precision(name="fp32", parameter=4, gradient=4, master=0, state=4, compute=4, reduce=4, activation=4,
                  meaning="everything fp32: 16 B with Adam"),
        Precision(name="fp8", gradient_buffer=True, parameter=2, gradient=4, master=4, state=4, compute=2, reduce=4, fp8=True,
                  meaning="mixed-fp32-grad with 8-bit matrix multiplications (Megatron, transformer engine)"),
        Precision(name="fp8-sharded", parameter=4, gradient=4, master=0, state=4, compute=2, reduce=4, fp8=True,
                  meaning="fp32-sharded with 8-bit matrix multiplications (torchtitan float8)"),
        Precision(name="fp8-bf16-grad", parameter=1, gradient=2, gradient_buffer=True, master=4, state=4, compute=1, reduce=2,
                  fp8=True, meaning="parameters in 8 bits, gradients in 16, fp32 master and moments (NeMo fp8 recipes)"),
        Precision(name="fp8-params", gradient_buffer=True, parameter=1, gradient=4, master=4, state=4, compute=1, reduce=4, fp8=True,
                  meaning="as fp8 with the parameters themselves kept in 8 bits"),
    )
}  # fmt: skip


_LIBRARY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,40}(?: +|==)[0-9]{1,6}(?:\.[0-9]{1,6}){0,4}")


def version_numbers(text: str) -> tuple[int, ...]:
    """ "0.43.2" -> (0, 43, 2)."""
    return tuple(int(part) for part in text.strip().split("."))


@dataclass(frozen=True, slots=True, kw_only=True)
class Lora:
    """Low-rank adapters."""

    rank: int = 16
    targets: tuple[str, ...] = ("q", "k", "v", "o")
    """Of q, k, v, o, gate, up, down, or "all" for every linear layer of the blocks."""
    parameters: int | None = None
    """Trained parameters, where they are known and not those of rank x targets (adapters of other kinds)."""
    dropout: float = 0.0
    parameter_bytes: float = 4.0
    """Adapters are fp32 where the library trains them so (PEFT under autocast), 2 where they follow the model."""
    autocast: bool = True
    """Adapters of another dtype than the model run under autocast."""
    train_embeddings: bool = False
    """Embedding and head are trained in full (`modules_to_save`)."""
    embedding_bytes: float = 4.0
    """Bytes of one element of those trained tables."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One training or fine-tuning job."""

    objective: Objective = "sft"
    method: Method = "full"
    sequence_length: int = 4096
    """Tokens of the longest sample of a batch: the peak is set by it, not by the mean."""
    global_batch: int = 8
    """Sequences per optimizer step, over all GPUs."""
    batching: Batching = "packed"
    """packed: every sequence is full; padded: samples are padded to the longest of their micro-batch; unpadded:
    samples are laid end to end, so that the fullest micro-batch holds one longest sample and mean ones."""
    accumulation: int = 1
    """Micro-batches per optimizer step of one replica."""
    mean_length: int | None = None
    """Mean tokens of a sample, where samples differ: for time, and for the peak of unpadded batches."""
    precision: str = "mixed"
    """One of the regimes of `PRECISIONS`."""
    optimizer: Optimizer = "adamw"
    optimizer_foreach: bool = False
    """The optimizer works on lists of tensors and needs a temporary of the size of one moment (PyTorch's default
    on a GPU); False = one fused kernel."""
    optimizer_in_backward: bool = False
    """Each gradient is applied and freed as soon as it is ready."""
    loss: Loss = "plain"
    """How the cross-entropy is computed. With tensor parallelism the output head is split by its vocabulary, and the
    logits stay split; the names that begin with "parallel" say which kernels then work on them."""
    loss_chunks: int = 8
    """Pieces of a chunked loss."""
    kernels: Kernels = "eager"
    """What the framework keeps for the backward pass: plain modules, torch.compile, or fused layers (Megatron, TE)."""
    attention: AttentionKernel = "flash"
    """flash keeps no attention matrix; sdpa is flash for full sequences and repeats key-value heads where a batch is
    padded; flash-expanded repeats key-value heads to the query heads first; flash-fp8
    keeps its operands in 8 bits; math keeps the matrix."""
    residual_bytes: float | None = None
    """Bytes of an element of the residual stream; None = the regime's. 4 where norms were cast to fp32 for a 4-bit base."""
    dropout: float = 0.0
    """Dropout of residual branches, as in GPT-2: its masks are kept."""
    expert_load: float = 1.0
    """Tokens that the fullest expert rank receives, over the mean: 1 = perfectly balanced."""
    gather_ahead: int = 2
    """Layers that sharded training holds unsharded at once: the one at work and those fetched before their turn."""
    keeps_logits: bool = False
    """The logits stay referenced after the loss (returned, logged), so that an fp32 copy lives through the step."""
    evaluation_samples: int = 0
    """Samples whose logits an evaluation keeps on the device until it computes its metric of all; 0 = none."""
    rollout_fraction: float = 0.0
    """Share of each GPU that an inference engine beside the trainer takes (colocated rollouts)."""
    recomputed_ahead: float = 0.0
    """Layers whose recomputed activations are alive beside the one at work (sharding that fetches ahead)."""
    expandable_segments: bool = False
    """The allocator grows segments instead of keeping blocks of fixed size (PYTORCH_CUDA_ALLOC_CONF)."""
    empties_cache: bool = False
    """The cache is emptied every few steps."""
    fp8_activation_input: bool = False
    """The input of the gated activation is kept in 8 bits."""
    fp8_transposes: bool = False
    """8-bit weights have a transposed copy: Hopper multiplies them in one layout only, Blackwell in both."""
    tables_apart: bool = False
    """Embedding and head are sharded units of their own, gathered only while they are used."""
    reshard: bool = True
    """Sharded parameters are given back after a layer's forward pass; False = all stay gathered (pipeline stages)."""
    accumulate_unsharded: bool = False
    """Gradients are accumulated without reducing them, so each rank holds all of them (no_sync)."""
    lora: Lora = field(default_factory=Lora)
    base: str | None = None
    """Weight format of a frozen base; None = nf4 for qlora, else that of the precision."""
    base_bytes: float | None = None
    """Bytes of one element of a frozen base that is not quantised; None = the compute precision."""
    offload: tuple[Offload, ...] = ()
    tokens: float | None = None
    """Tokens of the whole run."""
    libraries: tuple[str, ...] = ()
    """Versions that are in use, such as "torch 2.13" or "bitsandbytes 0.41.1": what is known of them is told."""
    ema: bool = False
    """Keep an exponential moving average of the parameters in fp32."""
    reference_precomputed: bool = False
    """DPO: reference log-probabilities are computed beforehand, the reference model is not resident."""

    def __post_init__(self) -> None:
        problems = [
            Problem(path=f"training.libraries.{index}", message="must be a library and its version", value=text, has_value=True, hint="such as torch 2.13")
            for index, text in enumerate(self.libraries)
            if not _LIBRARY.fullmatch(text)
        ]  # fmt: skip
        if problems:
            raise InputError("Cannot read the training job.", problems=problems)

    def version(self, library: str) -> tuple[int, ...] | None:
        """The version of a library that the job names, or None."""
        for text in self.libraries:
            name, _, version = text.replace("==", " ").partition(" ")
            if name.lower() == library:
                return version_numbers(version)
        return None

    @property
    def keeps_base_inputs(self) -> bool:
        """Layers of a 4-bit base keep their inputs, needlessly: bitsandbytes before 0.43.2 (its CHANGELOG)."""
        version = self.version("bitsandbytes")
        form = self.base_format
        return (
            version is not None
            and form is not None
            and form.method == "bitsandbytes"
            and version < (0, 43, 2)
        )

    @property
    def regime(self) -> Precision:
        return PRECISIONS[self.precision]

    @property
    def base_format(self) -> WeightFormat | None:
        """The format of a quantised frozen base, or None."""
        if self.base is not None:
            return FORMATS[self.base]
        return FORMATS["nf4"] if self.method == "qlora" else None

    @property
    def trains_all(self) -> bool:
        return self.method == "full"

    @property
    def bytes_per_parameter(self) -> float:
        """Bytes of states per trained parameter before activations; gradients only where they outlive a layer."""
        gradient = 0.0 if self.optimizer_in_backward else self.regime.gradient
        return self.regime.parameter + gradient + self.regime.master + self.regime.state * self.states

    @property
    def states(self) -> float:
        """Optimizer moments per trained parameter, in units of `Precision.state`."""
        return OPTIMIZER_MOMENTS[self.optimizer]


# Moments kept per parameter. Adafactor factors its second moment into a row and a column: about nothing.
# 8-bit optimizers keep each moment in one byte plus one fp32 scale per block of 256 (bitsandbytes, torchao).
OPTIMIZER_MOMENTS: dict[str, float] = {
    "adamw": 2, "adamw-8bit": 2, "paged-adamw": 2, "paged-adamw-8bit": 2, "adafactor": 0, "lion": 1,
    "lion-8bit": 1, "sgd": 0, "sgd-momentum": 1, "muon": 1, "none": 0,
}  # fmt: skip
EIGHT_BIT_MOMENT = 1 + 4 / 256
