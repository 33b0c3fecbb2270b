"""Weight formats: how many bytes a quantised weight really takes, scales included, and which tensors it covers."""

from __future__ import annotations

from dataclasses import dataclass

from outgrow.errors import InputError, Problem


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFormat:
    """A storage format of weights."""

    name: str
    bits: float
    """Bits of one element."""
    group: int | None = None
    """Elements along the input dimension that share a scale; None = one scale per output row or tensor."""
    scale_bits: float = 0.0
    """Bits of scale and zero point of one group."""
    block: tuple[int, int] | None = None
    """Two-dimensional scale block (DeepSeek fp8: 128 x 128)."""
    experts_only: bool = False
    """Only routed experts are quantised (gpt-oss)."""
    ffn_only: bool = False
    """Only feed-forward layers and experts are quantised (checkpoints in nvfp4)."""
    pad: int = 1
    """Experts' widths are padded to a multiple of this by the kernels that read them."""
    covers_head: bool = False
    covers_embedding: bool = False
    method: str = ""
    """Name of the method as configs spell it."""

    @property
    def bytes_per_element(self) -> float:
        """Bytes of one weight, its share of the scales included."""
        bits = self.bits
        if self.group:
            bits += self.scale_bits / self.group
        if self.block:
            bits += 32 / (self.block[0] * self.block[1])
        return bits / 8

    @property
    def is_quantised(self) -> bool:
        return self.bits < 16


FLOAT32 = WeightFormat(name="fp32", bits=32)
BFLOAT16 = WeightFormat(name="bf16", bits=16)
FLOAT16 = WeightFormat(name="fp16", bits=16)

FORMATS: dict[str, WeightFormat] = {
    "fp32": FLOAT32,
    "bf16": BFLOAT16,
    "fp16": FLOAT16,
    "fp8": WeightFormat(name="fp8", bits=8, method="fp8"),
    "fp8-block": WeightFormat(name="fp8-block", bits=8, block=(128, 128), method="fp8"),
    "int8": WeightFormat(name="int8", bits=8, method="w8a8"),
    # A scale of 16 bits and a zero point of 4 bits for every 128 weights.
    "awq": WeightFormat(name="awq", bits=4, group=128, scale_bits=20, method="awq"),
    "gptq": WeightFormat(name="gptq", bits=4, group=128, scale_bits=20, method="gptq"),
    "int4": WeightFormat(name="int4", bits=4, group=32, scale_bits=16, method="compressed-tensors"),
    # bitsandbytes: blocks of 64 share a scale; double quantisation stores it in 8 bits plus 32 bits per 256 blocks.
    "nf4": WeightFormat(name="nf4", bits=4, group=64, scale_bits=32, method="bitsandbytes"),
    "nf4-double": WeightFormat(
        name="nf4-double", bits=4, group=64, scale_bits=8 + 32 / 256, method="bitsandbytes"
    ),
    "bnb-int8": WeightFormat(name="bnb-int8", bits=8, method="bitsandbytes"),
    "mxfp4": WeightFormat(
        name="mxfp4", bits=4, group=32, scale_bits=8, experts_only=True, pad=256, method="mxfp4"
    ),
    "nvfp4": WeightFormat(name="nvfp4", bits=4, group=16, scale_bits=8, ffn_only=True, method="modelopt"),
    # llama.cpp k-quants: bits per weight over a whole file, embeddings and head included.
    "q4_k_m": WeightFormat(name="q4_k_m", bits=4.85, method="gguf", covers_head=True, covers_embedding=True),
    "q5_k_m": WeightFormat(name="q5_k_m", bits=5.69, method="gguf", covers_head=True, covers_embedding=True),
    "q6_k": WeightFormat(name="q6_k", bits=6.56, method="gguf", covers_head=True, covers_embedding=True),
    "q8_0": WeightFormat(name="q8_0", bits=8.5, method="gguf", covers_head=True, covers_embedding=True),
}

ALIASES: dict[str, str] = {
    "float32": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16", "16bit": "bf16", "8bit": "int8",
    "4bit": "awq", "w8a8": "int8", "w8a16": "int8", "w4a16": "awq", "int4-awq": "awq", "e4m3": "fp8",
    "fp8-dynamic": "fp8", "bnb-nf4": "nf4", "qlora": "nf4", "mxfp8": "fp8", "fp4": "nvfp4", "q8": "q8_0",
    "q4": "q4_k_m", "gguf": "q4_k_m",
}  # fmt: skip


def weight_format(name: str) -> WeightFormat:
    """Look up a format by the name that people type."""
    key = name.strip().lower()
    key = ALIASES.get(key, key)
    if key not in FORMATS:
        problem = Problem(
            path="weights",
            message="unknown weight format",
            value=name,
            has_value=True,
            hint="one of " + ", ".join(FORMATS),
        )
        raise InputError("Cannot read the weight format.", problems=[problem])
    return FORMATS[key]
