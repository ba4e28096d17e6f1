#!/usr/bin/env python3
"""Runs every snippet of the papers, so that none of them lies.

In README.md, CONTRIBUTING.md and docs/**/*.md:
  ```sh        run with bash -e in a folder of the file's own, block after block, with the built program
               on PATH; `<!-- expect-exit: N -->` on the line before allows one exit code
  ```console   each `$ command` is run there, and what follows it is what it must print; a line `...`
               stands for any lines
  ```cpp       compiled against the library
  ```json      parsed
  `<!-- run: no (reason) -->` before a block leaves it out; those are counted and printed.
Blocks without one of these tags are drawings. Also checks that docs/architecture.md shows layers.txt.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(\w*)\s*$")
COMMENT = re.compile(r"^<!--\s*(run|expect-exit):\s*(.*?)\s*-->$")


def blocks(text):
    """(line, tag, body, options) of every fenced block."""
    found, options, lines = [], {}, text.splitlines()
    number = 0
    while number < len(lines):
        comment, fence = COMMENT.match(lines[number]), FENCE.match(lines[number])
        if comment:
            options[comment.group(1)] = comment.group(2)
        elif fence:
            start = number + 1
            number = start
            while number < len(lines) and lines[number].strip() != "```":
                number += 1
            found.append((start + 1, fence.group(1), "\n".join(lines[start:number]), options))
            options = {}
        elif lines[number].strip():
            options = {}
        number += 1
    return found


def matches(expected, printed):
    """Whether lines are as expected; `...` alone on a line stands for any number of lines."""
    if not expected:
        return not printed
    if expected[0].strip() == "...":
        return any(matches(expected[1:], printed[i:]) for i in range(len(printed) + 1))
    return bool(printed) and expected[0].rstrip() == printed[0].rstrip() and matches(
        expected[1:], printed[1:])


class Runner:
    def __init__(self, program, library, work):
        self.env = dict(os.environ)
        self.env["PATH"] = f"{pathlib.Path(program).parent}:{self.env['PATH']}"
        self.library = library
        self.work = work

    def shell(self, script):
        return subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.work, env=self.env,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)

    def sh(self, body, options):
        run = self.shell(body)
        wanted = int(options.get("expect-exit", "0"))
        return "" if run.returncode == wanted else (
            f"exit code {run.returncode}, expected {wanted}; it printed:\n{run.stdout}")

    def console(self, body, _options):
        parts = re.split(r"^\$ ", body, flags=re.M)[1:]
        for part in parts:
            command, _, expected = part.partition("\n")
            run = self.shell(command + " 2>/dev/null || true")
            if not matches(expected.rstrip("\n").splitlines() if expected.strip() else [],
                           run.stdout.rstrip("\n").splitlines() if run.stdout.strip() else []):
                return f"`{command}` printed:\n{run.stdout}"
        return ""

    def cpp(self, body, _options):
        source = pathlib.Path(self.work) / "snippet.cc"
        source.write_text(body if "int main" in body else f"int main() {{\n{body}\n}}\n")
        run = subprocess.run(
            [os.environ.get("CXX", "g++"), "-std=c++20", "-Wall", "-Wextra", "-Werror",
             "-Wno-missing-field-initializers", f"-I{ROOT}/include", "-fsyntax-only", str(source)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return "" if run.returncode == 0 else run.stdout

    @staticmethod
    def json(body, _options):
        try:
            json.loads(body)
        except ValueError as error:
            return str(error)
        return ""


def check_file(path, make_runner):
    """(problems, blocks run, blocks left out) of one paper."""
    problems, ran, left_out = [], 0, []
    with tempfile.TemporaryDirectory() as work:
        runner = make_runner(work)
        for line, tag, body, options in blocks(path.read_text()):
            check = {"sh": runner.sh, "console": runner.console, "cpp": runner.cpp,
                     "json": runner.json}.get(tag)
            if options.get("run", "").startswith("no"):
                left_out.append(f"{path.name}:{line} {options['run']}")
            elif check is not None:
                ran += 1
                trouble = check(body, options)
                if trouble:
                    problems.append(f"{path}:{line}: {trouble}")
    return problems, ran, left_out


def check_layer_table(root):
    table = [line for line in (root / "layers.txt").read_text().splitlines()
             if re.match(r"\d", line)]
    paper = (root / "docs" / "architecture.md").read_text()
    return [f"docs/architecture.md: does not show the line '{line}' of layers.txt"
            for line in table if line not in paper]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True, help="the built blockscale")
    parser.add_argument("--library", required=True, help="the built archive")
    arguments = parser.parse_args()
    papers = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    problems, ran, left_out = check_layer_table(ROOT), 0, []
    for paper in papers:
        found, count, skipped = check_file(
            paper, lambda work: Runner(arguments.program, arguments.library, work))
        problems += found
        ran += count
        left_out += skipped
    for problem in problems:
        print(problem)
    for skipped in left_out:
        print("left out:", skipped)
    print(f"check_docs: {len(papers)} papers, {ran} snippets run, {len(left_out)} left out, "
          f"{len(problems)} problems")
    return 1 if problems or ran == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
