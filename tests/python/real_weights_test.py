#!/usr/bin/env python3
"""A real model through one scheme and back, read with safetensors and ml_dtypes and nothing of ours.

    real_weights_test.py --program blockscale --weights FOLDER SCHEME

converts FOLDER (scripts/fetch_real_weights.sh) to SCHEME and that back to f32, and checks
  * names, dtypes and shapes of every tensor, and that what is no linear weight keeps its bits;
  * that our way back to f32 gives the bits that ml_dtypes and numpy decode;
  * that each code is the one nearest to the original divided by its scale, as ml_dtypes rounds;
  * that the relative RMSE against the original is what the scheme costs: no more, and no less, since a
    loss that is too small means that something was compared with itself.
Prints each problem; exits 1 on any.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile

import numpy as np

import stored_matrices as stored

# The linear weights of all-MiniLM-L6-v2: six layers of six, and the pooler.
LINEAR = re.compile(
    r"(encoder\.layer\.\d\.(attention\.self\.(query|key|value)|attention\.output\.dense|"
    r"intermediate\.dense|output\.dense)|pooler\.dense)\.weight")
LINEAR_COUNT = 37

# Least and most relative RMSE over all linear weights: what the scheme costs on Gaussian rows, give or take
# some per cent of it, because the rows of this model have longer tails and its blocks other variances.
RMSE = {
    "bf16": (1.5e-3, 1.8e-3), "fp16": (1.8e-4, 2.4e-4),
    "fp8-block": (0.025, 0.0275), "fp8-channel": (0.025, 0.0275), "fp8-tensor": (0.025, 0.0275),
    "mxfp8": (0.025, 0.0275), "mxfp4": (0.11, 0.125), "nvfp4": (0.078, 0.098),
    "int8-channel": (0.006, 0.011), "int4-group": (0.095, 0.125),
}


def linear_weights(tensors):
    return sorted(name for name in tensors if LINEAR.fullmatch(name))


def module_of(weight):
    return weight[:-len(".weight")]


def convert(program, source, output, scheme):
    """(exit code, what it printed)."""
    run = subprocess.run([program, "convert", "--source", source, "--output", output, "--to", scheme, "--quiet"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    return run.returncode, run.stdout


def check_presence(scheme, original, converted):
    """Names, dtypes and shapes; and the bits of what is kept."""
    weights = linear_weights(original)
    wanted = {name: (tensor.dtype, tensor.shape) for name, tensor in original.items() if name not in weights}
    kept = set(wanted)
    for weight in weights:
        wanted.update(stored.expected_tensors(scheme, module_of(weight), *original[weight].shape))
    problems = [f"'{name}' is missing" for name in sorted(set(wanted) - set(converted))]
    problems += [f"'{name}' should not be there" for name in sorted(set(converted) - set(wanted))]
    for name in sorted(set(wanted) & set(converted)):
        found = (converted[name].dtype, converted[name].shape)
        if found != wanted[name]:
            problems.append(f"'{name}' is {found}, expected {wanted[name]}")
        elif name in kept and converted[name].data != original[name].data:
            problems.append(f"'{name}' is no linear weight, but its bits have changed")
    return problems


def check_codes(scheme, original, converted):
    """Each code against the one nearest to the original."""
    problems = []
    for weight in linear_weights(original):
        values = stored.array_of(original[weight])
        codes = stored.codes_of(scheme, converted, module_of(weight))
        scales = stored.scales_of(scheme, converted, module_of(weight), codes.shape)
        if scales is not None and not (np.isfinite(scales).all() and (scales > 0).all()):
            problems.append(f"'{weight}': a scale is not positive and finite")
            continue
        wrong = stored.differing(stored.nearest_codes(scheme, values, scales), codes)
        if wrong:
            problems.append(f"'{weight}': {wrong} of {codes.size} codes are not the nearest to the original")
    return problems


def check_values(scheme, original, converted, back):
    """Bits of our f32 against ours decoded here."""
    problems = []
    for weight in linear_weights(original):
        decoded = stored.decode(scheme, converted, module_of(weight))
        wrong = stored.differing(decoded, stored.array_of(back[weight]))
        if wrong:
            problems.append(f"'{weight}': {wrong} of {decoded.size} values are not what ml_dtypes decodes")
    return problems


def relative_rmse(original, back):
    loss, power = 0.0, 0.0
    for weight in linear_weights(original):
        values = stored.array_of(original[weight]).astype(np.float64)
        loss += np.square(values - stored.array_of(back[weight])).sum()
        power += np.square(values).sum()
    return float(np.sqrt(loss / power))


def check_loss(scheme, original, back):
    least, most = RMSE[scheme]
    found = relative_rmse(original, back)
    print(f"{scheme}: relative RMSE {100 * found:.4f} % over {LINEAR_COUNT} matrices")
    if least <= found <= most:
        return []
    return [f"relative RMSE {found:.5f} is not between {least} and {most}"]


def check_scheme(scheme, original, converted, back):
    """Problems of a conversion that went through; `converted` and `back` as read_checkpoint gives them."""
    problems = check_presence(scheme, original, converted)
    problems += [f"back to f32: {problem}" for problem in check_presence("f32", original, back)]
    if problems:
        return problems
    return (check_codes(scheme, original, converted) + check_values(scheme, original, converted, back) +
            check_loss(scheme, original, back))


def check_f32_is_refused(program, weights, work):
    """f32 to f32 changes nothing. As a target f32 is what every other scheme comes back to."""
    code, text = convert(program, weights, work / "f32", "f32")
    if code == 2 and "nothing to convert" in text and not (work / "f32").exists():
        return []
    return [f"f32 to f32: exit code {code}, expected 2, 'nothing to convert' and no folder; it printed: {text}"]


def check_way_there_and_back(program, weights, work, scheme):
    there, back = work / scheme, work / "back"
    for step in ((weights, there, scheme), (there, back, "f32")):
        code, text = convert(program, *step)
        if code != 0:
            return [f"convert {step[0].name} to {step[2]}: exit code {code}: {text}"]
    return check_scheme(scheme, *map(stored.read_checkpoint, (weights, there, back)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--weights", required=True, type=pathlib.Path)
    parser.add_argument("scheme", choices=sorted(stored.LAYOUTS))
    arguments = parser.parse_args()
    count = len(linear_weights(stored.read_checkpoint(arguments.weights)))
    if count != LINEAR_COUNT:
        sys.exit(f"{arguments.weights}: has {count} of the {LINEAR_COUNT} linear weights of all-MiniLM-L6-v2")
    with tempfile.TemporaryDirectory() as work:
        check = check_f32_is_refused if arguments.scheme == "f32" else check_way_there_and_back
        extra = () if arguments.scheme == "f32" else (arguments.scheme,)
        problems = check(arguments.program, arguments.weights, pathlib.Path(work), *extra)
    for problem in problems:
        print(f"{arguments.scheme}: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
