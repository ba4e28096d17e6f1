"""Quantised matrices as they stand in our files, read with nothing of blockscale.

The layouts are those of docs/formats.md, "Spellings"; the arithmetic is the definition at the head of
src/numeric/block_quant.h:  value = fl32(code * scale), scale = fl32(block scale / global divisor).
Codes and scales are decoded by ml_dtypes, files by safetensors.
"""
import collections
import dataclasses
import json
import pathlib

import ml_dtypes
import numpy as np
import safetensors

# What the safetensors package calls a type, and what numpy reads its bytes as.
DTYPES = {
    "F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16, "I64": np.int64, "I32": np.int32,
    "I8": np.int8, "U8": np.uint8, "F8_E4M3": ml_dtypes.float8_e4m3fn, "F8_E8M0": ml_dtypes.float8_e8m0fnu,
}

Tensor = collections.namedtuple("Tensor", "dtype shape data")


@dataclasses.dataclass(frozen=True)
class Layout:
    """How a scheme's matrix [rows, columns] is stored; `block` 0 means all rows or columns."""
    codes: str  # ending of the name of the codes
    dtype: str
    per_element: int = 1  # codes in one stored element
    scales: str = ""
    scale_dtype: str = ""
    block: tuple = (0, 0)
    element: str = ""  # "e2m1" and "int4" where the dtype does not say


LAYOUTS = {
    "f32": Layout(".weight", "F32"),
    "bf16": Layout(".weight", "BF16"),
    "fp16": Layout(".weight", "F16"),
    "fp8-block": Layout(".weight", "F8_E4M3", 1, ".weight_scale_inv", "F32", (128, 128)),
    "fp8-channel": Layout(".weight", "F8_E4M3", 1, ".weight_scale", "F32", (1, 0)),
    "fp8-tensor": Layout(".weight", "F8_E4M3", 1, ".weight_scale", "F32", (0, 0)),
    "int8-channel": Layout(".weight", "I8", 1, ".weight_scale", "F32", (1, 0)),
    "mxfp8": Layout(".weight", "F8_E4M3", 1, ".weight_scale", "U8", (1, 32)),
    "mxfp4": Layout(".weight_packed", "U8", 2, ".weight_scale", "U8", (1, 32), "e2m1"),
    "nvfp4": Layout(".weight_packed", "U8", 2, ".weight_scale", "F8_E4M3", (1, 16), "e2m1"),
    "int4-group": Layout(".weight_packed", "I32", 8, ".weight_scale", "BF16", (1, 128), "int4"),
}


def blocks(size, block):
    return 1 if block == 0 else -(-size // block)


def expected_tensors(scheme, module, rows, columns):
    """{name: (dtype, shape)} of the tensors that stand for one matrix."""
    layout = LAYOUTS[scheme]
    tensors = {module + layout.codes: (layout.dtype, [rows, -(-columns // layout.per_element)])}
    if layout.scales:
        grid = [blocks(rows, layout.block[0]), blocks(columns, layout.block[1])]
        tensors[module + layout.scales] = (layout.scale_dtype, [1] if scheme == "fp8-tensor" else grid)
    if scheme == "nvfp4":
        tensors[module + ".weight_global_scale"] = ("F32", [1])
    if scheme == "int4-group":
        tensors[module + ".weight_shape"] = ("I64", [2])
    return tensors


def read_checkpoint(folder):
    """{name: Tensor} of the shards that the index names, or of model.safetensors."""
    folder = pathlib.Path(folder)
    index = folder / "model.safetensors.index.json"
    weight_map = json.loads(index.read_text())["weight_map"] if index.exists() else None
    tensors = {}
    for shard in sorted(set(weight_map.values())) if weight_map is not None else ["model.safetensors"]:
        for name, fields in safetensors.deserialize((folder / shard).read_bytes()):
            if weight_map is not None and weight_map.get(name) != shard:
                raise ValueError(f"{folder / shard}: holds '{name}', which the index does not place there")
            tensors[name] = Tensor(fields["dtype"], list(fields["shape"]), bytes(fields["data"]))
    if weight_map is not None and set(weight_map) != set(tensors):
        raise ValueError(f"{index}: names tensors that no shard holds: {set(weight_map) - set(tensors)}")
    return tensors


def array_of(tensor):
    return np.frombuffer(tensor.data, DTYPES[tensor.dtype]).reshape(tensor.shape)


def unpack(packed):
    """The codes of 4 bits in each row's words, the lowest bits first."""
    octets = np.ascontiguousarray(packed).view(np.uint8)
    pairs = np.stack([octets & 15, octets >> 4], axis=-1)
    return pairs.reshape(packed.shape[0], -1)


def codes_of(scheme, tensors, module):
    """The codes [rows, columns], in a dtype whose astype(float32) gives their values."""
    layout = LAYOUTS[scheme]
    stored = array_of(tensors[module + layout.codes])
    if layout.element == "e2m1":
        return unpack(stored).view(ml_dtypes.float4_e2m1fn)
    if layout.element == "int4":
        rows, columns = array_of(tensors[module + ".weight_shape"])
        return (unpack(stored).astype(np.int8) - 8)[:rows, :columns]
    return stored


def scales_of(scheme, tensors, module, shape):
    """The FP32 scale of each element; None for schemes without."""
    layout = LAYOUTS[scheme]
    if not layout.scales:
        return None
    stored = array_of(tensors[module + layout.scales])
    if layout.scale_dtype == "U8":
        stored = stored.view(ml_dtypes.float8_e8m0fnu)
    scales = stored.astype(np.float32).reshape(blocks(shape[0], layout.block[0]), -1)
    if scheme == "nvfp4":
        scales = scales / array_of(tensors[module + ".weight_global_scale"])[0]
    scales = np.repeat(scales, layout.block[0] or shape[0], axis=0)[:shape[0]]
    return np.repeat(scales, layout.block[1] or shape[1], axis=1)[:, :shape[1]]


def decode(scheme, tensors, module):
    """The matrix in FP32."""
    codes = codes_of(scheme, tensors, module)
    values = codes.astype(np.float32)
    scales = scales_of(scheme, tensors, module, codes.shape)
    return values if scales is None else values * scales


def nearest_codes(scheme, values, scales):
    """The codes nearest to values / scales in FP32, ties to even, saturating; as codes_of gives them."""
    layout = LAYOUTS[scheme]
    if scales is None:
        return values.astype(DTYPES[layout.dtype])
    quotients = values / scales
    if layout.element == "e2m1":
        return np.clip(quotients, -6, 6).astype(ml_dtypes.float4_e2m1fn)
    if layout.element == "int4":
        return np.clip(np.rint(quotients), -8, 7).astype(np.int8)
    if layout.dtype == "I8":
        return np.clip(np.rint(quotients), -127, 127).astype(np.int8)
    return np.clip(quotients, -448, 448).astype(ml_dtypes.float8_e4m3fn)


def differing(first, second):
    """How many elements differ in any bit; arrays of one dtype and shape."""
    if first.shape != second.shape or first.dtype != second.dtype:
        raise ValueError(f"{first.dtype}{first.shape} compared with {second.dtype}{second.shape}")
    words = f"u{first.dtype.itemsize}"
    return int((np.ascontiguousarray(first).view(words) != np.ascontiguousarray(second).view(words)).sum())
