"""The layer checker on small made-up trees: each rule, kept and broken."""
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402

LAYERS = """
3 cli
2 left right
1 base
public status.h base
public left.h left
"""


class CheckLayersTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.folder.name)
        self.write("layers.txt", LAYERS)
        self.write("src/base/a.h", "int a;\n")
        self.write("src/left/l.cc", '#include "base/a.h"\n#include "blockscale/status.h"\n')
        self.write("src/right/r.h", "int r;\n")
        self.write("src/cli/m.cc", '#include "left/l.h"\n#include "right/r.h"\n')
        self.write("include/blockscale/status.h", "#include <string>\n")
        self.write("tests/t.cc", "int t;\n" * 100)

    def tearDown(self):
        self.folder.cleanup()

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def problems(self):
        return check_layers.check_tree(self.root)[0]

    def expect_one(self, part):
        problems = self.problems()
        self.assertEqual(len(problems), 1, problems)
        self.assertIn(part, problems[0])

    def test_a_good_tree_has_none(self):
        self.assertEqual(self.problems(), [])

    def test_upward(self):
        self.write("src/base/b.h", '#include "cli/m.h"\n')
        self.expect_one("src/base/b.h:1: base (line 1) includes cli (line 3)")

    def test_sideways(self):
        self.write("src/left/x.h", '\n#include "right/r.h"\n')
        self.expect_one("src/left/x.h:2: left")

    def test_within_the_room_is_fine(self):
        self.write("src/left/x.h", '#include "left/l.h"\n')
        self.assertEqual(self.problems(), [])

    def test_public_header_of_a_higher_room(self):
        self.write("src/base/b.h", '#include "blockscale/left.h"\n')
        self.expect_one("base (line 1) includes left")

    def test_public_header_that_is_not_listed(self):
        self.write("src/left/x.h", '#include "blockscale/other.h"\n')
        self.expect_one("not in layers.txt")

    def test_public_header_that_includes_source(self):
        self.write("include/blockscale/left.h", '#include "left/l.h"\n')
        self.expect_one("users do not have it")

    def test_include_of_no_room(self):
        self.write("src/left/x.h", '#include "a.h"\n')
        self.expect_one("in no room")

    def test_room_that_is_not_listed(self):
        self.write("src/other/x.h", "int x;\n")
        self.expect_one("room 'other'")

    def test_banned_name(self):
        self.write("src/left/utils.h", "int x;\n")
        self.expect_one("the name 'utils' says nothing")

    def test_long_file(self):
        self.write("src/left/x.h", "int x;\n" * 801)
        self.write("tests/t.cc", "int t;\n" * 500)
        self.expect_one("has 801 lines, limit 800")

    def test_long_function(self):
        body = "  x();\n" * 99
        self.write("src/left/x.cc", f"void F(int a) {{\n{body}}}\n")
        self.expect_one("src/left/x.cc:1: a function of 101 lines")

    def test_function_at_the_limit(self):
        body = "  x(\"{\", '{');  // {\n" * 98
        self.write("src/left/x.cc", f"void F(int a) const {{\n{body}}}\n")
        self.assertEqual(self.problems(), [])

    def test_every_kind_of_function_is_measured(self):
        for head in ("T& value() &", "T value() &&", "auto F(int a) -> std::vector<int>",
                     "A::A(int b) : b_{b}, c_(2)", "void F(std::vector<int> v = {})",
                     "void F() noexcept(true)", "int F(int) const override", "TEST(A, B)",
                     "template <class T>\nvoid F(T t) requires std::integral<T>", "auto f = []",
                     "auto f = [&](int a)", "__global__ void F()"):
            text = head + " {\n  x(1'000, '{', R\"(}{ \" ')\");\n\n}\n"
            longest = max((length for _, length, _ in check_layers.functions(text)), default=0)
            self.assertEqual(longest, 4, head)

    def test_what_is_no_function_is_not_measured(self):
        for head in ("namespace a", "struct A", "class A : public B<C>", "enum class E : int",
                     "int table[] =", "const X x = Y"):
            self.assertEqual(check_layers.functions(head + " {\n  1\n}\n"), [], head)

    def test_public_headers_and_benchmarks_have_budgets_too(self):
        self.write("include/blockscale/status.h", "int x;\n" * 801)
        self.write("tests/t.cc", "int t;\n" * 500)
        self.expect_one("include/blockscale/status.h:801: has 801 lines")
        self.write("include/blockscale/status.h", "")
        self.write("bench/common.h", "")
        self.expect_one("bench/common.h:1: the name 'common' says nothing")

    def test_long_class_is_no_function(self):
        body = "  void x() {}\n" * 150
        self.write("src/left/x.cc", f"class A final : public B<C> {{\n{body}}};\nnamespace {{\n{body}}}\n")
        self.write("tests/t.cc", "int t;\n" * 500)
        self.assertEqual(self.problems(), [])

    def test_kernels_may_be_longer(self):
        body = "  x();\n" * 200
        self.write("src/left/x.cu", f"__global__ void F(int a) {{\n{body}}}\n")
        self.write("tests/t.cc", "int t;\n" * 500)
        self.assertEqual(self.problems(), [])

    def test_too_few_tests(self):
        self.write("tests/t.cc", "int t;\n")
        self.expect_one("write the missing tests")


if __name__ == "__main__":
    unittest.main()
