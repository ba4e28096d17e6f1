#!/usr/bin/env python3
"""A mixture-of-experts layer in numpy, as an implementation that blockscale judges.

    blockscale validate --suite smoke --activation situ --export cases
    python3 examples/moe_layer_numpy.py cases outputs.safetensors
    blockscale validate --suite smoke --activation situ --candidate outputs.safetensors

Replace `run_layer` with a call of your kernel. Needs numpy, ml_dtypes and safetensors. It was written from
the formulas, without a look at blockscale's own code, so that each is a check of the other.
"""
import json
import math
import pathlib
import sys

import ml_dtypes
import numpy as np
from safetensors.numpy import load_file, save_file

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3fn
E2M1_VALUES = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)

# scheme -> (element, scale, columns that share a scale; 0: the row). The weights' blocks are in cases.json.
ROWS = {"bf16": ("bf16", None, 1), "mxfp8": ("e4m3", "e8m0", 32), "nvfp4": ("e2m1", "e4m3", 16),
        "int8-token": ("int8", "f32", 0), "fp8-token": ("e4m3", "f32", 0), "fp8-token-128": ("e4m3", "f32", 128),
        "int8-32": ("int8", "f32", 32)}
WEIGHTS = {"bf16": ("bf16", None), "fp8-block": ("e4m3", "f32"), "fp8-channel": ("e4m3", "f32"),
           "mxfp8": ("e4m3", "e8m0"), "mxfp4": ("e2m1", "e8m0"), "nvfp4": ("e2m1", "e4m3"),
           "int8-channel": ("int8", "f32"), "int4-group": ("int4", "bf16")}


def decode_codes(element, codes):
    """Bytes [..., n] to FP32 [..., columns]."""
    if element in ("e2m1", "int4"):
        nibbles = np.stack([codes & 15, codes >> 4], -1).reshape(*codes.shape[:-1], -1)
        return E2M1_VALUES[nibbles] if element == "e2m1" else nibbles.astype(np.float32) - 8
    return codes.view({"e4m3": E4M3, "int8": np.int8, "bf16": BF16}[element]).astype(np.float32)


def decode_scales(kind, scales):
    if kind == "e8m0":
        return np.ldexp(np.float32(1), scales.astype(np.int32) - 127)
    return np.ascontiguousarray(scales).view({"e4m3": E4M3, "bf16": BF16, "f32": np.float32}[kind]).astype(np.float32)


def decode_rows(scheme, codes, scales, multiplier):
    element, kind, group = ROWS[scheme]
    values = decode_codes(element, codes)
    if kind is None:
        return values
    scale = decode_scales(kind, scales) * np.float32(multiplier)
    return values * np.repeat(scale, group or values.shape[-1], axis=-1)


def decode_weights(spec, tensors, name):
    """[experts, rows, columns] in FP32; what a kernel would never do."""
    element, kind = WEIGHTS[spec["weights"]]
    values = decode_codes(element, tensors[name + "_codes"])
    if kind is None:
        return values
    scale = decode_scales(kind, tensors[name + "_scales"])
    if name + "_global" in tensors:
        scale = scale * tensors[name + "_global"][:, None, None]
    rows, columns = spec["weight_block"]
    scale = np.repeat(scale, rows or values.shape[1], axis=1)[:, :values.shape[1]]
    return values * np.repeat(scale, columns or values.shape[2], axis=2)[:, :, :values.shape[2]]


def to_bf16(x):
    return x.astype(np.float32).astype(BF16).astype(np.float64)


def round_to(element, x):
    if element == "int8":
        return np.clip(np.rint(x), -127, 127).astype(np.float32)
    limit, dtype = (448, E4M3) if element == "e4m3" else (6, ml_dtypes.float4_e2m1fn)
    return np.clip(x, -limit, limit).astype(np.float32).astype(dtype).astype(np.float32)


def requantise(scheme, h, multiplier):
    """The rows that enter FC2, through their codes and back."""
    element, kind, group = ROWS[scheme]
    h = h.astype(np.float32)
    if kind is None:
        return h.astype(BF16).astype(np.float32)
    blocks = h.reshape(*h.shape[:-1], -1, group or h.shape[-1])
    if kind == "e8m0":
        return requantise_mxfp8(blocks).reshape(h.shape)
    amax = np.abs(blocks).max(-1, keepdims=True)
    scale = amax / np.float32({"int8": 127, "e4m3": 448, "e2m1": 6}[element])
    if kind == "e4m3":
        steps = np.clip(scale / np.float32(multiplier), 2.0**-9, 448).astype(E4M3).astype(np.float32)
        scale = np.where(np.isfinite(amax), steps, np.nan) * np.float32(multiplier)
    safe = np.where(scale == 0, np.float32(1), scale)
    codes = np.where(np.isfinite(safe), round_to(element, np.nan_to_num(blocks / safe)), 0)
    return (codes * scale).reshape(h.shape)


def requantise_mxfp8(blocks):
    finite = np.where(np.isnan(blocks), np.float32(0), blocks)  # a NaN leaves its group's scale alone
    infinite = np.isinf(finite).any(-1, keepdims=True)
    amax = np.abs(np.where(np.isinf(finite), 0, finite)).max(-1, keepdims=True)
    fraction, exponent = np.frexp(amax / np.float32(448))
    exponent = np.where(fraction == 0.5, exponent - 1, exponent)  # the least e with amax <= 448 * 2^e
    exponent = np.where(infinite, 127, np.where(amax == 0, -127, np.clip(exponent, -127, 127)))
    scale = np.ldexp(np.float32(1), exponent)
    codes = round_to("e4m3", np.where(np.isinf(finite), 0, finite) / scale)
    codes = np.where(infinite, np.float32(0), codes)
    codes = np.where(np.isinf(blocks) | np.isnan(blocks), np.float32(448), codes)
    return codes * scale


def parameter(activation, name, expert):
    values = [math.inf if v == "inf" else v for v in activation[name]]
    return values[0] if len(values) == 1 else values[expert]


def activate(activation, expert, gate, up):
    name = activation["name"]
    sigmoid = lambda x: 1 / (1 + np.exp(-x))  # noqa: E731
    if name == "situ":
        b, l = (parameter(activation, p, expert) for p in ("gate_beta", "linear_beta"))
        return b * np.tanh(gate / b) * sigmoid(gate) * l * np.tanh(up / l)
    if name == "swiglu":
        alpha, beta, limit = (parameter(activation, p, expert) for p in ("alpha", "beta", "limit"))
        gate, up = np.minimum(gate, limit), np.clip(up, -limit, limit)
        return gate * sigmoid(alpha * gate) * (up + beta)
    raise SystemExit(f"activation {name}: this example knows situ and swiglu")


def split_gate_up(order, x):
    """Columns of FC1's result, which are rows of w13."""
    half = x.shape[-1] // 2
    return {"up-gate": (x[..., half:], x[..., :half]), "gate-up": (x[..., :half], x[..., half:]),
            "interleaved": (x[..., 0::2], x[..., 1::2])}[order]


def run_expert(spec, expert, x, slot_weights, matrices, multiplier):
    rounds, mega = spec["recipe"] != "exact", spec["recipe"] == "deepgemm-mega"
    w13, w2, b13, b2 = matrices
    sums = x @ w13[expert].astype(np.float64).T
    if rounds:
        sums = to_bf16(sums)
    if b13 is not None:
        sums = sums + b13[expert]
    h = activate(spec["activation"], expert, *split_gate_up(spec["order"], sums))
    if mega:
        h = h * slot_weights[:, None]
    if rounds:
        h = requantise(spec["inputs"], h if mega else to_bf16(h), multiplier)
    y = h.astype(np.float64) @ w2[expert].astype(np.float64).T
    if rounds:
        y = to_bf16(y)
    if b2 is not None and spec["tp_rank"] == 0:
        y = y + b2[expert]
    return y if mega else y * slot_weights[:, None]


def run_layer(spec, call, weights):
    """[tokens, hidden]."""
    multiplier = float(call["input_global"][0]) if "input_global" in call else 1.0
    x = decode_rows(spec["inputs"], call["input_codes"], call.get("input_scales"), multiplier).astype(np.float64)
    matrices = (decode_weights(spec, weights, "w13"), decode_weights(spec, weights, "w2"),
                weights.get("w13_bias"), weights.get("w2_bias"))
    ids, slot_weights = call["topk_ids"], call["topk_weights"].astype(np.float64)
    slots = np.zeros((*ids.shape, spec["hidden"]))
    for expert in range(spec["local_experts"]):
        token, slot = np.nonzero(ids == spec["first_expert"] + expert)
        if len(token):
            slots[token, slot] = run_expert(spec, expert, x[token], slot_weights[token, slot], matrices, multiplier)
    return slots.sum(1).astype(np.float32).astype({"bf16": BF16, "fp16": np.float16, "f32": np.float32}[spec["output"]])


def main(folder, output):
    folder, outputs, loaded = pathlib.Path(folder), {}, {}
    for case in json.loads((folder / "cases.json").read_text())["cases"]:
        if case["weights"] not in loaded:
            loaded = {case["weights"]: load_file(folder / case["weights"])}
        with np.errstate(all="ignore"):  # some cases hold NaN and infinities
            outputs[case["case"]] = run_layer(case["spec"], load_file(folder / case["call"]), loaded[case["weights"]])
    save_file(outputs, output, metadata={"kernel": "numpy, double precision"})


if __name__ == "__main__":
    main(*sys.argv[1:])
