#!/usr/bin/env python3
"""The script that one would write without blockscale: FP8 blocks to INT8 rows with numpy, shard by shard.

usage: numpy_convert.py SOURCE OUTPUT
Prints the seconds spent in arithmetic alone and the elements converted, for the kernel's comparison.
"""
import json
import pathlib
import sys
import time

import numpy as np

BLOCK = 128


def e4m3_table():
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    value = np.where(exponent == 0, mantissa / 512.0, (1 + mantissa / 8) * 2.0 ** (exponent - 7.0))
    return np.where(codes >= 128, -value, value).astype(np.float32)


def read_shard(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = file.read()
    return {name: (entry, data[entry["data_offsets"][0]:entry["data_offsets"][1]])
            for name, entry in header.items() if name != "__metadata__"}


def convert(codes, scales, table):
    rows, columns = codes.shape
    weights = table[codes]
    weights *= np.repeat(np.repeat(scales, BLOCK, 0)[:rows], BLOCK, 1)[:, :columns]
    row_scales = np.abs(weights).max(1, keepdims=True) / np.float32(127)
    row_scales[row_scales == 0] = 1
    return np.clip(np.rint(weights / row_scales), -127, 127).astype(np.int8), row_scales


def write_shard(path, tensors):
    header, offset = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            file.write(data)


def main():
    source, output = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    output.mkdir(parents=True)
    table, scales_elsewhere, arithmetic, elements = e4m3_table(), {}, 0.0, 0
    shards = sorted(source.glob("*.safetensors"))
    for path in shards:  # scales may lie in another shard: gather them first
        for name, (entry, data) in read_scales(path):
            scales_elsewhere[name] = np.frombuffer(data, np.float32).reshape(entry["shape"])
    for path in shards:
        tensors = {}
        for name, (entry, data) in read_shard(path).items():
            if name.endswith("weight_scale_inv"):
                continue
            if entry["dtype"] != "F8_E4M3":
                tensors[name] = (entry["dtype"], entry["shape"], data)
                continue
            codes = np.frombuffer(data, np.uint8).reshape(entry["shape"])
            start = time.perf_counter()
            int8, row_scales = convert(codes, scales_elsewhere[name + "_scale_inv"], table)
            arithmetic += time.perf_counter() - start
            elements += codes.size
            tensors[name] = ("I8", entry["shape"], int8.tobytes())
            tensors[name + "_scale"] = ("F32", [codes.shape[0], 1], row_scales.tobytes())
        write_shard(output / path.name, tensors)
    print(json.dumps({"arithmetic_seconds": arithmetic, "elements": elements}))


def read_scales(path):
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
        for name, entry in header.items():
            if name.endswith("weight_scale_inv"):
                file.seek(8 + length + entry["data_offsets"][0])
                yield name, (entry, file.read(entry["data_offsets"][1] - entry["data_offsets"][0]))


if __name__ == "__main__":
    main()
