"""The snippet runner itself: a right snippet passes, a wrong one is found."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_docs  # noqa: E402


class CheckDocsTest(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            paper = pathlib.Path(folder) / "paper.md"
            paper.write_text(text)
            return check_docs.check_file(
                paper, lambda work: check_docs.Runner("/bin/true", "", work))

    def test_shell(self):
        self.assertEqual(self.check("```sh\ntrue\n```\n"), ([], 1, []))
        problems, _, _ = self.check("x\n```sh\ntrue\nfalse\n```\n")
        self.assertIn(":3: exit code 1", problems[0])
        self.assertEqual(self.check("<!-- expect-exit: 3 -->\n```sh\nexit 3\n```\n")[0], [])
        self.assertEqual(len(self.check("<!-- expect-exit: 3 -->\n```sh\ntrue\n```\n")[0]), 1)

    def test_blocks_share_a_folder(self):
        self.assertEqual(self.check("```sh\necho a > f\n```\n```sh\ngrep a f\n```\n")[0], [])

    def test_console(self):
        good = "```console\n$ printf 'a\\nb\\nc\\n'\na\n...\nc\n$ true\n```\n"
        self.assertEqual(self.check(good)[0], [])
        self.assertEqual(len(self.check(good.replace("\nc\n$", "\nd\n$"))[0]), 1)
        self.assertEqual(len(self.check("```console\n$ echo a\n```\n")[0]), 1)

    def test_cpp_and_json(self):
        self.assertEqual(self.check("```cpp\n#include <cstdio>\nint main() { std::puts(\"\"); }\n```\n")[0], [])
        self.assertEqual(len(self.check("```cpp\nint x = \"no\";\n```\n")[0]), 1)
        self.assertEqual(self.check("```json\n{\"a\": 1}\n```\n")[0], [])
        self.assertEqual(len(self.check("```json\n{a: 1}\n```\n")[0]), 1)

    def test_what_is_left_out_is_counted(self):
        problems, ran, left_out = self.check("<!-- run: no (needs a GPU) -->\n```sh\nfalse\n```\n")
        self.assertEqual((problems, ran), ([], 0))
        self.assertIn("needs a GPU", left_out[0])

    def test_drawings_are_not_run(self):
        self.assertEqual(self.check("```\nfalse\n```\n```text\nfalse\n```\n"), ([], 0, []))


if __name__ == "__main__":
    unittest.main()
