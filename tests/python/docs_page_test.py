#!/usr/bin/env python3
"""Runs docs/how-to/check-with-python.md from top to bottom, its Python too, which needs this environment.

The blocks tagged `python` are one script that is run anew, up to and with the newest block, after the `sh`
blocks before it, so that each may use what the others defined.
"""
import argparse
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_docs  # noqa: E402  (found by the line above)


def check_page(text, program, work):
    """(problems, blocks run by tag)."""
    runner, script, problems, ran = check_docs.Runner(program, None, work), "", [], {"sh": 0, "python": 0}
    for line, tag, body, options in check_docs.blocks(text):
        if tag not in ran or options.get("run", "").startswith("no"):
            continue
        ran[tag] += 1
        if tag == "sh":
            trouble = runner.sh(body, options)
        else:
            script += body + "\n"
            run = subprocess.run([sys.executable, "-W", "error", "-c", script], cwd=work, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, text=True, check=False)
            trouble = run.stdout if run.returncode != 0 else ""
        if trouble:
            problems.append(f"line {line}: {trouble}")
    return problems, ran


class Pages(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as work:
            return check_page(text, PROGRAM, work)

    def test_the_page(self):
        problems, ran = self.check((ROOT / "docs" / "how-to" / "check-with-python.md").read_text())
        self.assertEqual(problems, [])
        self.assertEqual(ran, {"sh": 2, "python": 2})

    def test_wrong_blocks_are_found(self):
        for wrong in ("```python\nassert False\n```\n", "```sh\nfalse\n```\n",
                      "```python\nx = 1\n```\n```python\nassert x == 2\n```\n"):
            with self.subTest(wrong=wrong):
                self.assertEqual(len(self.check(wrong)[0]), 1)

    def test_blocks_share_names_and_files(self):
        text = "```python\nx = 3\n```\n```sh\necho 3 >f\n```\n```python\nassert int(open('f').read()) == x\n```\n"
        self.assertEqual(self.check(text.replace("open('f').read()", "__import__('pathlib').Path('f').read_text()")),
                         ([], {"sh": 1, "python": 2}))

    def test_what_is_left_out_is_not_run(self):
        self.assertEqual(self.check("<!-- run: no (why) -->\n```python\nassert False\n```\n"),
                         ([], {"sh": 0, "python": 0}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    known, rest = parser.parse_known_args()
    PROGRAM = known.program
    unittest.main(argv=[sys.argv[0], *rest])
