#!/usr/bin/env python3
"""Times the whole convert command against copies of the same folder, in turn, and against numpy.

usage: whole_command.py PROGRAM WORK_FOLDER [ROUNDS]
Makes a checkpoint of about 4 GiB (once), then in each round, from the page cache: convert with two
threads, `cp -r`, and `cp -r` followed by a flush of the disk, which is what convert does. Last, from a
cold cache (needs root), convert and the numpy script. Prints medians and ratios.
"""
import json
import mmap
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

SYNTH = ["--layers", "4", "--experts", "64", "--hidden", "3072", "--intermediate", "1536", "--heads",
         "48", "--kv-heads", "8", "--vocab", "32000", "--shards", "4"]


def timed(command, **options):
    start = time.perf_counter()
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                         text=True, **options)
    return time.perf_counter() - start, run.stdout


def clear(folder):
    """Removes a folder and lets the disk come to rest, so that no run pays for another's writes."""
    shutil.rmtree(folder, ignore_errors=True)
    os.sync()


def own_memory():
    """Touches most of the free memory. A virtual machine gives freed memory back to its host within
    seconds and pays dearly to get it again, which would favour a program that needs little of it."""
    lines = pathlib.Path("/proc/meminfo").read_text().splitlines()
    available = next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    pieces = []
    for _ in range(available * 1024 * 6 // 10 >> 28):
        piece = mmap.mmap(-1, 1 << 28)
        for offset in range(0, 1 << 28, mmap.PAGESIZE):
            piece[offset] = 1
        pieces.append(piece)


def prepare(source, *results, touch=True):
    """The same before every timed run: old results gone, disk at rest, source in the page cache, and
    free memory either touched or left to the host."""
    for result in results:
        clear(result)
    if not touch:
        time.sleep(3)
    for path in source.iterdir():
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
    if touch:
        own_memory()


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")


def in_turn(convert, source, out, copy, rounds, touch):
    times = {"convert": [], "cp -r": [], "cp -r and flush": []}
    for _ in range(rounds):
        prepare(source, out, copy, touch=touch)
        times["convert"].append(timed(convert)[0])
        prepare(source, out, copy, touch=touch)
        start = time.perf_counter()
        timed(["cp", "-r", str(source), str(copy)])
        times["cp -r"].append(time.perf_counter() - start)
        os.sync()
        times["cp -r and flush"].append(time.perf_counter() - start)
    clear(copy)
    clear(out)
    return times


def print_ratios(times):
    for name, values in times.items():
        ratios = [a / b for a, b in zip(times["convert"], values)]
        print(f"  {name:<16} {statistics.median(values):6.2f} s  ({min(values):.2f} to {max(values):.2f})"
              f"   convert / {name}: {statistics.median(ratios):.2f}")


def main():
    program, work = sys.argv[1], pathlib.Path(sys.argv[2])
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    work.mkdir(parents=True, exist_ok=True)
    source, out, copy = work / "source", work / "out", work / "copy"
    if not (source / "config.json").exists():
        clear(source)
        subprocess.run([program, "synth", "--family", "minimax-m2", "--output", str(source), *SYNTH],
                       check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    size = sum(path.stat().st_size for path in source.iterdir())
    convert = [program, "convert", "--source", str(source), "--output", str(out), "--to",
               "int8-channel", "--threads", "2", "--quiet"]
    for touch in (True, False):
        times = in_turn(convert, source, out, copy, rounds, touch)
        print(f"\nwhole command, {size / 2**30:.2f} GiB from the page cache, {rounds} rounds in turn, free"
              f" memory {'touched before' if touch else 'first touched by the command'}")
        print_ratios(times)
    cold(program, source, out, convert)


def cold(program, source, out, convert):
    if os.geteuid() != 0:
        print("cold cache: left out, dropping the page cache needs root")
        return
    script = pathlib.Path(__file__).with_name("numpy_convert.py")
    drop_caches()
    numpy_seconds, printed = timed(["/usr/bin/python3", str(script), str(source), str(out)])
    clear(out)
    drop_caches()
    ours = timed(convert)[0]
    clear(out)
    numbers = json.loads(printed)
    rate = numbers["elements"] / numbers["arithmetic_seconds"] / 1e9
    print(f"cold cache: numpy script {numpy_seconds:.1f} s, convert {ours:.1f} s, "
          f"ratio {numpy_seconds / ours:.1f}")
    print(f"numpy's arithmetic alone: {rate:.3f} G elements/s")


if __name__ == "__main__":
    main()
