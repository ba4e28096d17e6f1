"""setup.sh and .ci/run, with stand-ins for the commands that they call: nothing is installed or built."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
SETUP = ROOT / "scripts" / "setup.sh"


class WithStandIns(unittest.TestCase):
    """PATH is one folder; each stand-in notes its name and arguments in `calls`."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for name in ("bash", "env", "grep", "cat", "tee", "mktemp", "rm", "dirname", "sh"):
            (self.bin / name).symlink_to(shutil.which(name))

    def stand_in(self, name, body=""):
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >>"{self.root}/calls"\n{body}\n')
        path.chmod(0o755)

    def calls(self):
        path = self.root / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def run_script(self, script, *arguments):
        return subprocess.run(
            [self.bin / "bash", script, *arguments], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False, timeout=60,
            env={"PATH": str(self.bin), "TMPDIR": str(self.root)})


class SetupTest(WithStandIns):
    def machine(self, user=0, installed=True, missing=()):
        """A Debian machine on which all packages but some (or none) are installed."""
        names = " | ".join(missing) or "no-such-package"
        self.stand_in("dpkg-query", "for last; do :; done\ncase $last in\n"
                      f"{names}) exit 1 ;;\n"
                      f"*) printf '{'install ok installed' if installed else 'deinstall ok config-files'}' ;;\n"
                      "esac")
        self.stand_in("apt-get")
        self.stand_in("id", f"echo {user}")

    def apt_calls(self):
        return [call for call in self.calls() if call.startswith("apt-get")]

    def test_does_nothing_when_all_is_there(self):
        self.machine(user=1000)
        for tier in ("build", "test"):
            run = self.run_script(SETUP, tier)
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
        self.assertEqual(self.apt_calls(), [])

    def test_installs_what_is_missing_and_no_more(self):
        self.machine(missing=("cmake", "chromium"))
        self.assertEqual(self.run_script(SETUP, "build").returncode, 0)
        update, install = self.apt_calls()
        self.assertTrue(update.endswith(" update"), update)
        self.assertTrue(install.endswith("--no-install-recommends cmake"), install)
        self.assertEqual(self.run_script(SETUP, "test").returncode, 0)
        self.assertTrue(self.apt_calls()[-1].endswith("--no-install-recommends cmake chromium"))

    def test_a_removed_package_is_missing(self):
        self.machine(installed=False)
        self.assertEqual(self.run_script(SETUP, "build").returncode, 0)
        self.assertIn(" g++ cmake ", self.apt_calls()[-1])

    def test_uses_sudo_when_not_root(self):
        self.machine(user=1000, missing=("cmake",))
        self.stand_in("sudo", 'exec "$@"')
        self.assertEqual(self.run_script(SETUP, "build").returncode, 0)
        self.assertEqual(sum(call.startswith("sudo") for call in self.calls()), 2)
        self.assertEqual(len(self.apt_calls()), 2)

    def test_says_what_to_do_without_root_and_sudo(self):
        self.machine(user=1000, missing=("cmake",))
        run = self.run_script(SETUP, "build")
        self.assertEqual(run.returncode, 1)
        self.assertIn("installing cmake needs root; run as root or install sudo", run.stderr)
        self.assertEqual(self.apt_calls(), [])

    def test_fails_when_apt_fails(self):
        self.machine(missing=("cmake",))
        self.stand_in("apt-get", "echo 'no network' >&2; exit 100")
        run = self.run_script(SETUP, "build")
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("no network", run.stderr)
        self.assertEqual(len(self.apt_calls()), 1)

    def test_names_the_packages_where_there_is_no_apt(self):
        run = self.run_script(SETUP, "build")
        self.assertEqual(run.returncode, 1)
        self.assertIn("libhwy-dev", run.stderr)

    def test_refuses_other_arguments(self):
        self.assertEqual(self.run_script(SETUP, "everything").returncode, 2)

    def test_each_package_stands_once_with_a_word_why(self):
        text = SETUP.read_text()
        packages = []
        for block in re.findall(r"^\w+_packages=\(\n(.*?)^\)", text, re.M | re.S):
            for line in block.splitlines():
                names, _, why = line.partition("#")
                self.assertTrue(names.strip() and why.strip(), line)
                packages += names.split()
        self.assertGreater(len(packages), 15)
        self.assertEqual(len(packages), len(set(packages)))


class CiRunTest(WithStandIns):
    def ci(self, make):
        shutil.copytree(ROOT / ".ci", self.root / ".ci")
        self.stand_in("make", make)
        run = self.run_script(self.root / ".ci" / "run")
        steps = [call.split()[1] for call in self.calls() if call.startswith("make ")]
        return run.returncode, run.stdout.splitlines(), steps

    TESTS = 'if [ "$1" = test ]; then echo "100% tests passed, 0 tests failed out of 9"; fi\n'

    def test_runs_tests_then_lint_and_ends_with_the_summary(self):
        code, lines, steps = self.ci(self.TESTS)
        self.assertEqual(code, 0)
        self.assertLess(steps.index("test"), steps.index("lint"))
        self.assertEqual(lines[-1], "100% tests passed, 0 tests failed out of 9")

    def test_any_failing_step_fails_it_and_is_named(self):
        for step, name in (("asan", "sanitizers: address, undefined"), ("fuzz", "fuzzers"),
                           ("test", "tests"), ("tsan", "sanitizers: thread"), ("lint", "lint")):
            with self.subTest(step=step):
                shutil.rmtree(self.root / ".ci", ignore_errors=True)
                (self.root / "calls").unlink(missing_ok=True)
                code, lines, steps = self.ci(self.TESTS + f'[ "$1" != {step} ]')
                self.assertEqual(code, 1)
                self.assertEqual(lines[-1], f"failed: {name}")
                self.assertIn("lint", steps)  # the steps behind it still run


if __name__ == "__main__":
    unittest.main()
