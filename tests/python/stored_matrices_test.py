#!/usr/bin/env python3
"""The checks of real_weights_test.py, on small checkpoints: they pass what is right and find what is wrong."""
import contextlib
import io
import pathlib
import re
import tempfile
import unittest

import ml_dtypes
import numpy as np

import mini_checkpoint
import real_weights_test as real
import stored_matrices as stored

QUERY = "encoder.layer.0.attention.self.query"
PACKED = ("mxfp4", "nvfp4", "int4-group")


def changed(tensors, name, change):
    """A copy in which change(bytes as an array of its type) has been applied to one tensor."""
    tensor = tensors[name]
    array = stored.array_of(tensor).copy()
    result = change(array)
    array = array if result is None else result
    return {**tensors, name: tensor._replace(data=array.tobytes())}


class Way(unittest.TestCase):
    def way(self, scheme):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        mini_checkpoint.write_way(folder.name, scheme)
        return [stored.read_checkpoint(pathlib.Path(folder.name) / name)
                for name in ("original", "converted", "back")]

    def problems(self, scheme, *way):
        with contextlib.redirect_stdout(io.StringIO()):
            return real.check_scheme(scheme, *way)

    def assert_found(self, words, scheme, *way):
        found = self.problems(scheme, *way)
        self.assertTrue(any(words in problem for problem in found), f"{scheme}: '{words}' not in {found}")


class RightOnes(Way):
    def test_every_scheme_passes(self):
        for scheme in stored.LAYOUTS:
            if scheme != "f32":
                with self.subTest(scheme=scheme):
                    self.assertEqual(self.problems(scheme, *self.way(scheme)), [])

    def test_ml_dtypes_has_the_formats_of_the_definitions(self):
        codes = np.arange(256, dtype=np.uint8)
        e4m3 = codes.view(ml_dtypes.float8_e4m3fn).astype(np.float32)
        self.assertTrue(np.array_equal(e4m3, mini_checkpoint.E4M3, equal_nan=True))
        e2m1 = codes[:16].view(ml_dtypes.float4_e2m1fn).astype(np.float32)
        self.assertEqual(stored.differing(e2m1, mini_checkpoint.E2M1), 0)
        e8m0 = codes.view(ml_dtypes.float8_e8m0fnu).astype(np.float32)
        self.assertTrue(np.array_equal(e8m0[:255], np.ldexp(np.float32(1), np.arange(255) - 127)))
        self.assertTrue(np.isnan(e8m0[255]))

    def test_even_column_is_the_low_half(self):
        packed = np.array([[0x21, 0x43]], np.uint8)
        self.assertEqual(stored.unpack(packed).tolist(), [[1, 2, 3, 4]])
        self.assertEqual(stored.unpack(packed.view(np.int16).astype(np.int32)).tolist(), [[1, 2, 3, 4, 0, 0, 0, 0]])


    def test_no_scheme_is_forgotten(self):
        root = pathlib.Path(__file__).resolve().parents[2]
        schemes = re.findall(r'X\(k\w+, \d+, "([\w-]+)"', (root / "src" / "numeric" / "scheme.h").read_text())
        listed = re.search(r"foreach\(scheme (.*)\)", (root / "tests" / "python" / "CMakeLists.txt").read_text())
        self.assertEqual(sorted(stored.LAYOUTS), sorted(schemes))
        self.assertEqual(sorted(listed.group(1).split()), sorted(schemes))
        self.assertEqual(sorted([*real.RMSE, "f32"]), sorted(schemes))


class WrongOnes(Way):
    def test_codes(self):
        for scheme in stored.LAYOUTS:
            if scheme == "f32":
                continue
            original, converted, back = self.way(scheme)
            name = QUERY + stored.LAYOUTS[scheme].codes
            with self.subTest(scheme=scheme):
                def flip(array):
                    array.view(np.uint8)[3, 5] ^= 1
                one_bit = changed(converted, name, flip)
                self.assert_found("1 of 33280 codes", scheme, original, one_bit, back)
                self.assert_found("1 of 33280 values", scheme, original, one_bit, back)
                rows = changed(converted, name, lambda array: np.roll(array, 1, axis=0))
                self.assert_found("codes are not the nearest", scheme, original, rows, back)
                if scheme in PACKED:
                    swapped = changed(converted, name, lambda array: (
                        array.view(np.uint8) >> 4 | array.view(np.uint8) << 4))
                    self.assert_found("codes are not the nearest", scheme, original, swapped, back)

    def test_scales(self):
        for scheme in mini_checkpoint.SIZES:
            original, converted, back = self.way(scheme)
            name = QUERY + stored.LAYOUTS[scheme].scales
            with self.subTest(scheme=scheme):
                moved = changed(converted, name, lambda array: (
                    array * 2 if array.size == 1 else np.roll(array.reshape(-1), 1)))
                self.assert_found("values are not what ml_dtypes decodes", scheme, original, moved, back)
                nothing = changed(converted, name, lambda array: np.full_like(array.view(np.uint8), 255))
                self.assert_found("a scale is not positive and finite", scheme, original, nothing, back)
        original, converted, back = self.way("nvfp4")
        multiplier = changed(converted, QUERY + ".weight_global_scale", lambda array: 1 / array)
        self.assert_found("values are not what ml_dtypes decodes", "nvfp4", original, multiplier, back)

    def test_presence(self):
        for scheme in ("nvfp4", "int4-group", "fp8-block"):
            original, converted, back = self.way(scheme)
            for name in converted:
                tensor = converted[name]
                with self.subTest(scheme=scheme, name=name):
                    less = {other: value for other, value in converted.items() if other != name}
                    self.assert_found(f"'{name}' is missing", scheme, original, less, back)
                    for wrong in (tensor._replace(dtype="F64"), tensor._replace(shape=tensor.shape + [1])):
                        self.assert_found(f"'{name}' is (", scheme, original, {**converted, name: wrong}, back)
            more = {**converted, QUERY + ".weight_scale_2": converted[QUERY + stored.LAYOUTS[scheme].scales]}
            self.assert_found("weight_scale_2' should not be there", scheme, original, more, back)

    def test_kept_tensors(self):
        original, converted, back = self.way("mxfp8")
        bias = "encoder.layer.0.output.dense.bias"
        self.assert_found("its bits have changed", "mxfp8", original, changed(converted, bias, np.negative), back)
        self.assert_found("back to f32: '" + bias, "mxfp8", original, converted, changed(back, bias, np.negative))

    def test_the_way_back(self):
        original, converted, back = self.way("mxfp4")
        for factor in (0.55, 1.45):
            scaled = changed(back, QUERY + ".weight", lambda array: array * np.float32(factor))
            self.assert_found("values are not what", "mxfp4", original, converted, scaled)
            self.assert_found("relative RMSE", "mxfp4", original, converted, scaled)

        def one_ulp(array):
            array.view(np.uint32)[7, 7] += 1
        self.assert_found("1 of 33280 values", "mxfp4", original, converted, changed(back, QUERY + ".weight", one_ulp))

    def test_a_loss_that_is_too_small(self):
        _, converted, back = self.way("int8-channel")
        self.assert_found("relative RMSE 0.00000 is not between", "int8-channel", back, converted, back)


class Folders(Way):
    def test_strays_and_gaps_of_the_index(self):
        with tempfile.TemporaryDirectory() as work:
            mini_checkpoint.write_way(work, "bf16")
            index = pathlib.Path(work) / "original" / "model.safetensors.index.json"
            text = index.read_text()
            for wrong, words in ((text.replace('"pooler', '"propeller'), "does not place there"),
                                 (text.replace('"pooler', '"more": "model.safetensors", "pooler'), "no shard holds")):
                index.write_text(wrong)
                with self.assertRaisesRegex(ValueError, words):
                    stored.read_checkpoint(index.parent)


if __name__ == "__main__":
    unittest.main()
