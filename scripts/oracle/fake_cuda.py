"""Make "cuda" fake tensors usable on a build of PyTorch without CUDA.

What a step keeps alive depends on the device: which autocast list applies, which attention kernel runs,
whether dropout saves a byte mask, in which dtype LayerNorm saves its statistics. So the step has to run on
"cuda" tensors. A CPU-only build can make fake ones, but two C++ look-ups stop them: there is no device guard
for CUDA, and the autograd engine asks for streams. Both are answered here by a small library that must be
loaded before ``import torch``.

Only shapes run, never data, so none of these answers can change a number that matters except the choice of
kernel, and that choice is written out in :func:`patch_torch`.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

GUARD_SOURCE = r"""
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace {
using c10::Device; using c10::DeviceType; using c10::Stream;
const Device kDevice(DeviceType::CUDA, 0);
struct Guard final : public c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return kDevice; }
  Device getDevice() const override { return kDevice; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, kDevice); }
  Stream exchangeStream(Stream) const override { return Stream(Stream::DEFAULT, kDevice); }
  c10::DeviceIndex deviceCount() const noexcept override { return 1; }
};
const Guard guard;
const c10::impl::DeviceGuardImplRegistrar registrar(DeviceType::CUDA, &guard);
}
namespace at::accelerator {
// Takes the place of the function in libtorch_cpu: the autograd engine then asks for no streams or events.
__attribute__((visibility("default"))) bool isAccelerator(c10::DeviceType) { return false; }
}
"""


_LIBRARIES: list[Any] = []


class NoStream:
    """Stands for a stream or an event."""

    device_index = 0

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, *_: Any) -> NoStream:
        return self

    record_event = record

    def wait_event(self, *_: Any) -> None: ...

    wait_stream = synchronize = wait = wait_event

    def query(self) -> bool:
        return True


def load_guard() -> None:
    """Compile (once) and load the guard; does nothing where PyTorch was built with CUDA."""
    if "torch" in sys.modules:
        raise RuntimeError("the guard has to be loaded before torch is imported")
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise RuntimeError("PyTorch is not installed")
    root = Path(spec.origin).parent
    if (root / "lib" / "libtorch_cuda.so").exists():
        return
    key = hashlib.sha256(f"{GUARD_SOURCE}{root}".encode()).hexdigest()[:16]
    target = Path(tempfile.gettempdir()) / f"outgrow_fake_cuda_{key}.so"
    if not target.exists():
        command = ["g++", "-std=c++20", "-O1", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(target)]
        command += [f"-I{root / 'include'}", f"-L{root / 'lib'}", "-lc10"]
        subprocess.run(command, input=GUARD_SOURCE, text=True, check=True)
    for path in (root / "lib" / "libtorch_global_deps.so", root / "lib" / "libc10.so", target):
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def patch_torch() -> None:
    """Give "cuda" fake tensors the kernels that a GPU would choose."""
    import torch
    import torch.cuda.amp.common as amp_common
    from torch.nn import functional
    from torch.optim import adam

    aten = torch.ops.aten
    library = torch.library.Library("aten", "IMPL")
    _LIBRARIES.append(library)  # registrations last as long as this object

    def attention(
        query: Any,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> Any:
        # The choice of `_fused_sdp_choice` on a GPU: flash without a mask, memory-efficient with one.
        if torch.is_autocast_enabled("cuda"):
            dtype = torch.get_autocast_dtype("cuda")
            query, key, value = query.to(dtype), key.to(dtype), value.to(dtype)
        with torch.autocast("cuda", enabled=False):
            if (
                attn_mask is None
                and query.dtype in (torch.bfloat16, torch.float16)
                and query.shape[-1] <= 256
            ):
                out = aten._scaled_dot_product_flash_attention(
                    query, key, value, dropout_p, is_causal, False, scale=scale
                )
                return out[0]
            if enable_gqa and query.shape[1] != key.shape[1]:
                raise NotImplementedError("grouped queries without flash attention: the choice is not known")
            bias = attn_mask
            if bias is not None:
                if bias.dtype == torch.bool:
                    bias = torch.where(bias, 0.0, float("-inf")).to(query.dtype)
                bias = bias.expand(*query.shape[:-1], key.shape[-2])
            out = aten._scaled_dot_product_efficient_attention(
                query, key, value, bias, True, dropout_p, is_causal, scale=scale
            )
            return out[0]

    # Where an operator has both a kernel for CUDA and a composite form, a CPU-only build takes the composite
    # form, with temporaries that a GPU does not have. The kernels named here never run: shapes do.
    for name in ("silu_backward", "mish_backward", "_fused_rms_norm"):
        library.impl(name, lambda *_: None, "CUDA")
    functional.scaled_dot_product_attention = attention
    amp_common.amp_definitely_not_available = lambda: False
    torch.cuda.is_bf16_supported = lambda **_: True
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    # FSDP orders its copies with streams and events; here everything runs in the order of the program.
    torch.cuda.Stream = torch.cuda.Event = NoStream
    torch.cuda.current_stream = torch.cuda.default_stream = lambda *_: NoStream()
    torch.cuda.stream = lambda _: contextlib.nullcontext()
    torch.cuda.current_device = lambda: 0
    torch.cuda.set_device = lambda _: None
    torch.cuda.is_initialized = lambda: True
    # A fake step counter has no value; the value is never a size.
    adam._get_value = lambda _: 1.0


def patch_transformers() -> None:
    """Answer the questions of transformers that depend on data or device."""
    import torch
    from transformers import masking_utils
    from transformers.integrations import moe

    # Is the batch packed? It is not.
    masking_utils.find_packed_sequence_indices = lambda _: None
    # The grouped product of a GPU takes fp32 too, but its shape function does not: the fallback has one, and
    # makes and keeps the same tensors.
    moe._can_use_grouped_mm = lambda _input, weight, _offsets: weight.dtype == torch.bfloat16
