#!/usr/bin/env python3
"""examples/moe_layer_numpy.py against the oracle: two implementations of the same formulas, written apart.

Also that the judge has teeth: the same outputs with one fault at a time must fail.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))
import moe_layer_numpy as example  # noqa: E402  (found by the line above)

PROGRAM = ""


def validate(*arguments):
    run = subprocess.run([PROGRAM, "validate", *arguments], capture_output=True, text=True, check=False)
    if run.returncode == 2:
        raise AssertionError(run.stderr)
    return run


class Candidate(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)

    def judge(self, *flags):
        """The report on the example's outputs."""
        cases, outputs = self.work / "cases", self.work / "outputs.safetensors"
        validate(*flags, "--export", str(cases), "--quiet")
        example.main(cases, outputs)
        return json.loads(validate(*flags, "--candidate", str(outputs), "--json").stdout)

    def check_suite(self, activation):
        report = self.judge("--suite", "smoke", "--activation", activation)
        failed = [case for case in report["cases"] if case["status"] != "passed"]
        self.assertEqual(failed, [])
        self.assertGreater(len(report["cases"]), 100)
        self.assertEqual(report["cases"][0]["kernel"], "numpy, double precision")

    def test_situ(self):
        self.check_suite("situ")

    def test_swiglu(self):
        self.check_suite("swiglu")

    def test_gpt_oss(self):
        self.check_suite("swiglu-oai")

    def test_one_value_an_expert(self):
        case = "experts=4,activation=swiglu(alpha=1:2:1.5:1.702,beta=0,limit=1:2:3:4);tokens=6"
        self.assertEqual(self.judge("--case", case)["cases"][0]["status"], "passed")

    def assert_fails(self, name, change):
        """With a function of the example replaced."""
        before = getattr(example, name)
        setattr(example, name, lambda *args: change(before, *args))
        try:
            report = self.judge("--case", "activation=situ,hidden=512;tokens=8")
        finally:
            setattr(example, name, before)
        self.assertEqual(report["cases"][0]["status"], "FAILED", name)

    def test_gate_and_up_swapped(self):
        self.assert_fails("split_gate_up", lambda split, order, x: split(order, x)[::-1])

    def test_halves_taken_as_interleaved(self):
        self.assert_fails("split_gate_up", lambda split, order, x: split("interleaved", x))

    def test_wrong_parameters(self):
        self.assert_fails("parameter", lambda parameter, *args: 7.0)

    def test_no_requantisation(self):
        self.assert_fails("requantise", lambda requantise, scheme, h, multiplier: h.astype(np.float32))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    arguments, rest = parser.parse_known_args()
    PROGRAM = arguments.program
    unittest.main(argv=[sys.argv[0], *rest])
