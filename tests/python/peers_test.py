#!/usr/bin/env python3
"""compressed-tensors' own decompression of our output against our own way back to f32, on a real model.

    peers_test.py --program blockscale --weights FOLDER [SCHEME ...]

Its converters read our config.json and our tensors as they would anyone's. Where they compute in BF16
(NVFP4, and INT4 with its BF16 scales) their result is ours rounded to BF16, and their functions called with
FP32 scales give ours to the bit. Run by `make peers`, in an environment with peers-requirements.txt.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
from compressed_tensors.compressors import BaseCompressor
from compressed_tensors.compressors.nvfp4.helpers import unpack_fp4_from_uint8
from compressed_tensors.entrypoints.convert.converters import CompressedTensorsDequantizer, FP8BlockDequantizer
from compressed_tensors.quantization.lifecycle.forward import dequantize
from safetensors.torch import load_file

import real_weights_test as real
import stored_matrices as stored

# Scheme, dialect, and whether compressed-tensors' result is a BF16.
CASES = {
    "int8-channel": ("int8-channel", "compressed-tensors", False),
    "fp8-channel": ("fp8-channel", "compressed-tensors", False),
    "fp8-tensor": ("fp8-tensor", "compressed-tensors", False),
    "fp8-block": ("fp8-block", "compressed-tensors", False),
    "fp8-block-deepseek": ("fp8-block", "deepseek", False),
    "mxfp8": ("mxfp8", "compressed-tensors", False),
    "mxfp4": ("mxfp4", "compressed-tensors", False),
    "nvfp4": ("nvfp4", "compressed-tensors", True),
    "int4-group": ("int4-group", "compressed-tensors", True),
}

# Its converters go by names alone and take every .weight for linear that is no `norm` in small letters.
NO_LINEAR = ["re:.*LayerNorm$", "re:.*embeddings.*"]


def run(*command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {result.returncode}: {result.stdout}")


def peer_of(folder, dialect):
    if dialect == "deepseek":
        return FP8BlockDequantizer.from_pretrained(folder, dtype=torch.float32)
    return CompressedTensorsDequantizer(folder, ignore=NO_LINEAR, dtype=torch.float32)


def in_fp32(scheme, peer, tensors, module):
    """The same decompression with FP32 scales, for the schemes that it computes in BF16."""
    (arguments,) = peer.quant_config.config_groups.values()
    if scheme == "nvfp4":
        packed = tensors[module + ".weight_packed"]
        codes = unpack_fp4_from_uint8(packed, packed.shape[0], packed.shape[1] * 2, torch.float32)
        return dequantize(x_q=codes, scale=tensors[module + ".weight_scale"].float(), args=arguments.weights,
                          dtype=torch.float32, global_scale=tensors[module + ".weight_global_scale"])
    compressor = BaseCompressor.get_value_from_registry(arguments.format)
    parts = {name: tensors[f"{module}.{name}"] for name in compressor.compression_param_names(arguments)}
    parts["weight_scale"] = parts["weight_scale"].float()
    return compressor.decompress(parts, arguments)["weight"]


def differing(ours, theirs):
    """Elements that differ in any bit; `ours` numpy F32, `theirs` torch F32."""
    return stored.differing(np.ascontiguousarray(ours), theirs.detach().contiguous().numpy())


def rounded_to_bf16(values):
    return torch.from_numpy(np.array(values)).to(torch.bfloat16).float().numpy()


def check_case(name, folder, back):
    """Problems of one conversion: `folder` in the scheme, `back` the tensors of ours in f32."""
    scheme, dialect, bf16 = CASES[name]
    tensors = load_file(folder / "model.safetensors")
    peer = peer_of(folder, dialect)
    theirs = peer.validate(dict(tensors))
    problems = []
    weights = real.linear_weights(back)
    for weight in weights:
        ours = stored.array_of(back[weight])
        wrong = differing(rounded_to_bf16(ours) if bf16 else ours, theirs[weight])
        if wrong:
            problems.append(f"'{weight}': {wrong} of {ours.size} values are not compressed-tensors' own")
        if bf16:
            wrong = differing(ours, in_fp32(scheme, peer, tensors, real.module_of(weight)))
            if wrong:
                problems.append(f"'{weight}': {wrong} of {ours.size} values are not its own in FP32")
    kept = [key for key in back if key not in weights]
    problems += [f"'{key}' is missing from its result" for key in kept if key not in theirs]
    if len(weights) != real.LINEAR_COUNT:
        problems.append(f"{len(weights)} linear weights, expected {real.LINEAR_COUNT}")
    # It must be able to fail: one code changed is one value changed.
    first = weights[0]
    changed = stored.array_of(back[first]).copy()
    changed.view(np.uint32)[0, 0] ^= 1 << 20
    if differing(rounded_to_bf16(changed) if bf16 else changed, theirs[first]) != 1:
        problems.append("a changed value was not noticed")
    return problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--weights", required=True, type=pathlib.Path)
    parser.add_argument("cases", nargs="*", choices=[[], *CASES])
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.cases or CASES:
        scheme, dialect, _ = CASES[name]
        with tempfile.TemporaryDirectory() as work:
            there, back = pathlib.Path(work) / "there", pathlib.Path(work) / "back"
            run(arguments.program, "convert", "--source", arguments.weights, "--output", there, "--to", scheme,
                "--dialect", dialect, "--quiet")
            run(arguments.program, "convert", "--source", there, "--output", back, "--to", "f32", "--quiet")
            problems = check_case(name, there, stored.read_checkpoint(back))
        for problem in problems:
            print(f"{name}: {problem}")
        print(f"{name}: {'FAILED' if problems else 'equal'}")
        failed += bool(problems)
    print(f"peers_test: {len(arguments.cases or CASES)} cases, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
