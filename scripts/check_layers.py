#!/usr/bin/env python3
"""Holds the source to its architecture: rooms, one-way includes, length budgets, tests, names.

Reads layers.txt. Prints each breach as `file:line: what, limit, remedy` and a summary; exits 1 on any
breach. `--root DIR` looks at another tree.
"""
import argparse
import pathlib
import re
import statistics
import sys

FILE_LINES = 800
FUNCTION_LINES = 100
KERNEL_LINES = 250
TEST_RATIO = 0.5
BANNED_NAMES = ("utils", "util", "common", "helpers", "misc")
SOURCE_ENDINGS = {".h", ".cc", ".cu", ".cuh", ".inc"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


class Layers:
    """The table of layers.txt: the line number (level) of each room, the room of public headers."""

    def __init__(self, text):
        self.level = {}
        self.public = {}
        for line in text.splitlines():
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "public":
                self.public[words[1]] = words[2]
            else:
                for room in words[1:]:
                    self.level[room] = int(words[0])

    def room_of_include(self, path):
        """The room that an include path belongs to, or None for outside headers."""
        first, _, rest = path.partition("/")
        if first == "blockscale":
            return self.public.get(rest, "?")
        return self.room_of_parts(path.split("/"))

    def room_of_parts(self, parts):
        """A room is a folder, or a folder of a folder: 'moe', 'backends/cpu'."""
        for room in ("/".join(parts[:2]), parts[0]):
            if room in self.level:
                return room
        return None


def strip_comments_and_strings(text):
    """Blanks comments and literals, keeping line breaks, so that braces can be counted."""
    pattern = re.compile(
        r'R"([^(\s]*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\'',
        re.S)
    return pattern.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


# What stands before the brace of a function or lambda: `)`, `[]`, a qualifier or a requires clause.
FUNCTION_HEAD = re.compile(
    r"(?:\)|\]|&|\bconst|\boverride|\bnoexcept|\bfinal|\brequires\b[^;{}=]*)\s*(?:->\s*[\w:<>,&*\s]+)?(?::[^;{}]*(?:\{[^{}]*\}[^;{}]*)*)?$")


NO_FUNCTION = re.compile(r"(?:template\s*<[^{}]*>\s*)?(?:class|struct|enum|union|namespace)\b|"
                         r"(?:else\s+)?(?:if|for|while|switch)\b|do\b|else\b")


def functions(text):
    """(first line, length, is kernel) of every function body, by matching braces."""
    clean = strip_comments_and_strings(text)
    stack = []
    found = []
    last_break = 0
    line = 1
    for position, char in enumerate(clean):
        if char == "\n":
            line += 1
        elif char == "{":
            head = clean[last_break:position].strip()
            is_function = bool(FUNCTION_HEAD.search(head)) and not re.match(NO_FUNCTION, head)
            stack.append((line, is_function, "__global__" in head))
            last_break = position + 1
        elif char == "}":
            if stack:
                start, is_function, kernel = stack.pop()
                if is_function:
                    found.append((start, line - start + 1, kernel))
            last_break = position + 1
        elif char == ";":
            last_break = position + 1
    return found


def check_includes(layers, room, path, lines, problems):
    for number, line in enumerate(lines, 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        target = layers.room_of_include(match.group(1))
        where = f"{path}:{number}"
        if target == "?":
            problems.append(f"{where}: public header {match.group(1)} is not in layers.txt; add it")
        elif target is None:
            problems.append(f"{where}: includes \"{match.group(1)}\", which is in no room; use "
                            "<...> for outside headers and ROOM/name.h for our own")
        elif target != room and layers.level[target] >= layers.level[room]:
            problems.append(f"{where}: {room} (line {layers.level[room]}) includes {target} (line "
                            f"{layers.level[target]}); includes run downward only, see layers.txt")


def check_file(path, text, problems, lengths):
    lines = text.splitlines()
    if path.stem in BANNED_NAMES:
        problems.append(f"{path}:1: the name '{path.stem}' says nothing; name it after what it does")
    if len(lines) > FILE_LINES:
        problems.append(f"{path}:{len(lines)}: has {len(lines)} lines, limit {FILE_LINES}; split it")
    for start, length, kernel in functions(text):
        lengths.append((length, f"{path}:{start}"))
        limit = KERNEL_LINES if kernel else FUNCTION_LINES
        if length > limit:
            problems.append(f"{path}:{start}: a function of {length} lines, limit {limit}; split it")


def source_files(folder):
    if not folder.is_dir():
        return []
    return sorted(p for p in folder.rglob("*") if p.suffix in SOURCE_ENDINGS and p.is_file())


def check_tree(root):
    problems, lengths, file_lines = [], [], []
    layers = Layers((root / "layers.txt").read_text())
    source_lines = 0
    for path in source_files(root / "src"):
        relative = path.relative_to(root)
        room = layers.room_of_parts(relative.parts[1:])
        text = path.read_text()
        source_lines += text.count("\n")
        file_lines.append(text.count("\n"))
        if room is None:
            problems.append(f"{relative}: room '{relative.parts[1]}' is not in layers.txt; add it or move the file")
            continue
        check_includes(layers, room, relative, text.splitlines(), problems)
        check_file(relative, text, problems, lengths)
    for path in source_files(root / "include"):
        relative = path.relative_to(root)
        text = path.read_text()
        source_lines += text.count("\n")
        file_lines.append(text.count("\n"))
        check_file(relative, text, problems, lengths)
        for number, line in enumerate(text.splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1)
            owner = layers.public.get(relative.name, "?")
            target = layers.room_of_include(name)
            if not name.startswith("blockscale/"):
                problems.append(f"{relative}:{number}: a public header includes {name} of src/; users "
                                "do not have it")
            elif target == "?" or owner == "?":
                problems.append(f"{relative}:{number}: {name} or {relative.name} is not in layers.txt")
            elif target != owner and layers.level[target] >= layers.level[owner]:
                problems.append(f"{relative}:{number}: {owner} includes {target}; includes run "
                                "downward only")
    test_lines = 0
    for path in source_files(root / "tests"):
        text = path.read_text()
        test_lines += text.count("\n")
        check_file(path.relative_to(root), text, problems, [])
    for path in source_files(root / "bench"):
        check_file(path.relative_to(root), path.read_text(), problems, [])
    if source_lines and test_lines < TEST_RATIO * source_lines:
        problems.append(f"tests: {test_lines} lines for {source_lines} lines of source, limit "
                        f"{TEST_RATIO}; write the missing tests")
    summary = (f"{len(file_lines)} source files, {source_lines} lines (median "
               f"{int(statistics.median(file_lines or [0]))}), tests {test_lines} lines; longest "
               f"function {max(lengths, default=(0, '-'))[0]} lines at "
               f"{max(lengths, default=(0, '-'))[1]}")
    return problems, summary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", default=pathlib.Path(__file__).resolve().parent.parent)
    root = pathlib.Path(parser.parse_args().root)
    problems, summary = check_tree(root)
    for problem in problems:
        print(problem)
    print(f"check_layers: {summary}; {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
