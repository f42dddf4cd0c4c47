#!/usr/bin/env python3
"""./dev bench build: how long building and testing take, beside the last recorded values.

Everything is measured in a clone of the last commit in build-bench/, with empty build folders and
without compiler caches; the packages are there. A value is the median of the runs, with the least
and the most.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
RECORD = ROOT / "bench" / "build.json"
MUST = {"build": 180, "demo": 240, "test": 1080, "change, build": 30, "change, unit tests": 60}


def timed(clone: pathlib.Path, *words: str) -> float:
    begun = time.monotonic()
    done = subprocess.run(["./dev", *words], cwd=clone, capture_output=True, text=True, check=False,
                          stdin=subprocess.DEVNULL,
                          env={**os.environ, "CI": "true", "CCACHE_DISABLE": "1"})
    if done.returncode != 0:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
        sys.exit(f"bench: ./dev {' '.join(words)} failed; nothing was measured")
    return time.monotonic() - begun


def fresh_clone(work: pathlib.Path) -> pathlib.Path:
    clone = work / "clone"
    shutil.rmtree(clone, ignore_errors=True)
    work.mkdir(exist_ok=True)
    subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
    return clone


def folders() -> list[str]:
    """The folders of src/ that have unit tests, by the name of their target."""
    found = []
    for file in sorted((ROOT / "src").rglob("CMakeLists.txt")):
        name = re.search(r"carrel_module\((\w+)[^)]*?\bTESTS\b", file.read_text())
        if name:
            folder = str(file.parent.relative_to(ROOT / "src"))
            if folder.replace("/", "_") == name.group(1):
                found.append(folder)
    return found


def change(clone: pathlib.Path, folder: str) -> None:
    """A change of the folder's largest source, as somebody who works on it would make."""
    sources = [file for file in (clone / "src" / folder).glob("*.cc") if "_test" not in file.name]
    with max(sources, key=lambda file: file.stat().st_size).open("a") as file:
        file.write(f"// {time.time_ns()}\n")


def measure(runs: int, tests: bool, chosen: list[str], say) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}

    def add(name: str, seconds: float) -> None:
        found.setdefault(name, []).append(seconds)
        say(f"{name}: {seconds:.1f} s")

    for _ in range(runs):
        clone = fresh_clone(ROOT / "build-bench")
        build = timed(clone, "build")
        add("build", build)
        add("demo", build + timed(clone, "demo"))
    if tests:
        for _ in range(runs):
            add("test", timed(fresh_clone(ROOT / "build-bench"), "test"))
    for folder in chosen:
        timed(clone, "test", "--unit", folder)  # what is not measured: the rest of the program
        for _ in range(runs):
            change(clone, folder)
            add(f"change, build: {folder}", timed(clone, "build"))
            add(f"change, unit tests: {folder}", timed(clone, "test", "--unit", folder))
    return found


def table(found: dict[str, list[float]], recorded: dict[str, float]) -> int:
    print(f"{'seconds':40} {'must':>6} {'last':>8} {'now':>8}  from  to")
    missed = 0
    for name, samples in found.items():
        must = MUST[name.split(":")[0]]
        now = statistics.median(samples)
        missed += now > must
        last = f"{recorded[name]:8.1f}" if name in recorded else "       -"
        print(f"{name:40} {must:6} {last} {now:8.1f}  {min(samples):.1f} {max(samples):.1f}"
              f"{'  MISSED' if now > must else ''}")
    return missed


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench build", description=__doc__)
    parser.add_argument("--runs", type=int, default=3, help="samples of each (3)")
    parser.add_argument("--tests", action="store_true", help="./dev test as well, 18 minutes each")
    parser.add_argument("--folder", action="append", help="change this one only; may be repeated")
    parser.add_argument("--no-changes", action="store_true", help="measure whole builds only")
    parser.add_argument("--record", action="store_true", help="keep the medians in bench/build.json")
    arguments = parser.parse_args()
    chosen = [] if arguments.no_changes else arguments.folder or folders()
    unknown = [folder for folder in chosen if folder not in folders()]
    if unknown:
        sys.exit(f"bench: there are no unit tests of src/{unknown[0]}; there are of: "
                 + " ".join(folders()))
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    found = measure(arguments.runs, arguments.tests, chosen,
                    lambda text: print(text, file=sys.stderr, flush=True))
    missed = table(found, recorded)
    if arguments.record:
        recorded.update({name: round(statistics.median(row), 1) for name, row in found.items()})
        RECORD.write_text(json.dumps(recorded, indent=2) + "\n")
    shutil.rmtree(ROOT / "build-bench", ignore_errors=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
