"""A small checkpoint in any scheme, encoded by tables and loops that share nothing with stored_matrices.py."""
import json
import pathlib

import numpy as np
import safetensors

# Code tables from the formats' definitions (OCP Microscaling 1.0), by code.
E2M1 = np.array([s * v for s in (1.0, -1.0) for v in (0, 0.5, 1, 1.5, 2, 3, 4, 6)], np.float32)
E4M3 = np.array([(-1) ** (code >> 7) * (
    np.nan if code & 127 == 127 else (code & 7) * 2.0 ** -9 if code & 120 == 0 else
    (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7)) for code in range(256)], np.float32)

MODULES = {"encoder.layer.0.attention.self.query": (130, 256), "pooler.dense": (3, 128)}
# By scheme: largest code, rows and columns of a block (0: all).
SIZES = {"fp8-block": (448, 128, 128), "fp8-channel": (448, 1, 0), "fp8-tensor": (448, 0, 0),
         "int8-channel": (127, 1, 0), "mxfp8": (448, 1, 32), "mxfp4": (6, 1, 32), "nvfp4": (6, 1, 16),
         "int4-group": (7, 1, 128)}


def bf16_bits(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def nearest(table, quotients):
    """Codes whose values are nearest; of two equals the one with the even code."""
    values = np.where(np.isnan(table), np.float32(np.inf), table)
    order = np.argsort(values[:len(table) // 2], kind="stable")
    ladder = values[:len(table) // 2][order]
    above = np.searchsorted(ladder, np.abs(quotients)).clip(1, np.isfinite(ladder).sum() - 1)
    low, high = ladder[above - 1], ladder[above]
    up = (np.abs(quotients) - low > high - np.abs(quotients)) | (
        (np.abs(quotients) - low == high - np.abs(quotients)) & (order[above] % 2 == 0))
    return (order[np.where(up, above, above - 1)] + np.signbit(quotients) * (len(table) // 2)).astype(np.uint8)


def block_scale(scheme, largest, whole):
    """(stored scale, its value) for a block; `whole` is the global divisor."""
    wanted = np.float32(largest) / np.float32(SIZES[scheme][0])
    if scheme in ("mxfp8", "mxfp4"):
        exponent = int(np.ceil(np.log2(wanted)))
        return exponent + 127, np.float32(2.0 ** exponent)
    if scheme == "nvfp4":
        code = int(nearest(E4M3, np.array([wanted * whole]))[0])
        return code, np.float32(E4M3[code] / whole)
    if scheme == "int4-group":
        bits = bf16_bits([wanted])
        return bits[0], (bits.astype(np.uint32) << 16).view(np.float32)[0]
    return wanted, wanted


def encode(scheme, values):
    """{ending of the name: (dtype, array)} and the decoded values of one matrix."""
    if scheme not in SIZES:
        if scheme == "bf16":
            words = bf16_bits(values)
            return {".weight": ("BF16", words)}, (words.astype(np.uint32) << 16).view(np.float32)
        words = values.astype(np.float16)
        return {".weight": ("F16", words)}, words.astype(np.float32)
    limit, height, width = SIZES[scheme]
    rows, columns = values.shape
    height, width = height or rows, width or columns
    whole = np.float32(2688) / np.abs(values).max()
    codes, decoded, scales = np.zeros((rows, columns), np.int16), np.zeros_like(values), []
    for row in range(0, rows, height):
        scales.append([])
        for column in range(0, columns, width):
            place = np.s_[row:row + height, column:column + width]
            code, scale = block_scale(scheme, np.abs(values[place]).max(), whole)
            scales[-1].append(code)
            if scheme in ("int8-channel", "int4-group"):
                codes[place] = np.rint(values[place] / scale).clip(-limit, limit)
                decoded[place] = codes[place] * scale
            else:
                table = E2M1 if limit == 6 else E4M3
                codes[place] = nearest(table, values[place] / scale)
                decoded[place] = table[codes[place]] * scale
    return stored_tensors(scheme, codes, np.array(scales), whole), decoded


def stored_tensors(scheme, codes, scales, whole):
    if scheme == "int8-channel":
        return {".weight": ("I8", codes.astype(np.int8)), ".weight_scale": ("F32", scales)}
    if scheme == "int4-group":
        words = np.zeros((codes.shape[0], codes.shape[1] // 8), np.uint32)
        for i in range(8):
            words |= (codes[:, i::8] + 8).astype(np.uint32) << np.uint32(4 * i)
        return {".weight_packed": ("I32", words), ".weight_scale": ("BF16", scales.astype(np.uint16)),
                ".weight_shape": ("I64", np.array(codes.shape, np.int64))}
    codes = codes.astype(np.uint8)
    if scheme in ("mxfp4", "nvfp4"):
        tensors = {".weight_packed": ("U8", codes[:, ::2] | codes[:, 1::2] << 4),
                   ".weight_scale": ("U8" if scheme == "mxfp4" else "F8_E4M3", scales.astype(np.uint8))}
        if scheme == "nvfp4":
            tensors[".weight_global_scale"] = ("F32", np.array([whole]))
        return tensors
    if scheme == "mxfp8":
        return {".weight": ("F8_E4M3", codes), ".weight_scale": ("U8", scales.astype(np.uint8))}
    ending = ".weight_scale_inv" if scheme == "fp8-block" else ".weight_scale"
    return {".weight": ("F8_E4M3", codes),
            ending: ("F32", scales.reshape(-1) if scheme == "fp8-tensor" else scales)}


def write(folder, tensors):
    """{name: (dtype, array)} as a checkpoint of one shard with an index."""
    names = {"F8_E4M3": "float8_e4m3fn", "BF16": "bfloat16", "F32": "float32", "F16": "float16", "I64": "int64",
             "I32": "int32", "I8": "int8", "U8": "uint8"}
    arrays = {name: np.ascontiguousarray(array) for name, (_, array) in tensors.items()}
    flat = {name: safetensors.TensorSpec(dtype=names[tensors[name][0]], shape=array.shape,
                                         data_ptr=array.ctypes.data, data_len=array.nbytes)
            for name, array in arrays.items()}
    folder = pathlib.Path(folder)
    folder.mkdir()
    safetensors.serialize_file(flat, folder / "model.safetensors", metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": {name: "model.safetensors" for name in tensors}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def write_way(folder, scheme, seed=1):
    """original, converted and back under `folder`, as a conversion to `scheme` would have left them."""
    random = np.random.default_rng(seed)
    kept = {"encoder.layer.0.output.dense.bias": ("F32", random.normal(size=5).astype(np.float32))}
    original, converted, back = dict(kept), dict(kept), dict(kept)
    for module, shape in MODULES.items():
        values = random.normal(size=shape).astype(np.float32)
        tensors, decoded = encode(scheme, values)
        original[module + ".weight"] = ("F32", values)
        back[module + ".weight"] = ("F32", decoded)
        converted.update({module + ending: tensor for ending, tensor in tensors.items()})
    for name, tensors in (("original", original), ("converted", converted), ("back", back)):
        write(pathlib.Path(folder) / name, tensors)
