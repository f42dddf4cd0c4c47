#!/usr/bin/env python3
"""./dev soak suite: runs the whole of ./dev test again and again, and says what ever failed.

One commit is tested, in a clone of its own in build-soak/. Most runs have the machine for
themselves; in three, busy loops keep every processor at work, and in one, others write to the disk
and wait for it all the time. What each run found is kept in tests/soak/results/COMMIT.json, so that
an interrupted series goes on with the run that it was in, on another machine too; the logs are in
build-soak/.
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

CONDITIONS = ["quiet", "busy", "quiet", "quiet", "busy", "disk", "quiet", "busy", "quiet", "quiet"]
BUSY_LOOP = "while True: pass"
# Writes 64 MiB and waits until the disk has them, again and again.
DISK_WRITER = """
import os, sys
block = os.urandom(1 << 20)
while True:
    with open(sys.argv[1], "wb", buffering=0) as file:
        for _ in range(64):
            file.write(block)
            os.fdatasync(file.fileno())
"""


def git(repository: pathlib.Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(repository), *words], check=True, text=True,
                          capture_output=True).stdout.strip()


class Load:
    """What keeps the machine at work while a run lasts."""

    def __init__(self, condition: str, folder: pathlib.Path) -> None:
        self.files = []
        self.processes = []
        if condition == "busy":
            commands = [[BUSY_LOOP]] * (os.cpu_count() or 2)
        elif condition == "disk":
            self.files = [folder / f"disk-writer-{number}" for number in range(2)]
            commands = [[DISK_WRITER, str(file)] for file in self.files]
        else:
            commands = []
        self.processes = [subprocess.Popen([sys.executable, "-c", *command]) for command in commands]

    def __enter__(self) -> "Load":
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
        for file in self.files:
            file.unlink(missing_ok=True)


def prepare(repository: pathlib.Path, work: pathlib.Path, commit: str) -> pathlib.Path:
    clone = work / "clone"
    if not (clone / ".git").exists():
        subprocess.run(["git", "clone", "-q", str(repository), str(clone)], check=True)
    if git(clone, "rev-parse", "HEAD") != commit:
        git(clone, "fetch", "-q", str(repository), "HEAD")
        git(clone, "checkout", "-q", "--detach", commit)
    return clone


def failures_in(log: str) -> list[str]:
    """The names that ctest lists as failed, and those that GoogleTest does in whole programs."""
    named = [name for name, how in re.findall(r"^\s*\d+ - (\S+) .*?\(([A-Za-z ]+)\)$", log, re.M)
             if how not in ("Skipped", "Disabled")]
    whole = re.findall(r"^(?:\d+: )?\[  FAILED  \] (\S+?)(?:,| \(|$)", log, re.M)
    steps = re.findall(r"^dev: (.+ failed)$", log, re.M)
    return sorted(set(named) | {name for name in whole if "." in name} | set(steps))


def run_in_group(command: list[str], **options) -> int:
    """Runs it, and ends all of it if this program is ended."""
    with subprocess.Popen(command, start_new_session=True, **options) as process:
        try:
            return process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            raise


def run(clone: pathlib.Path, logs: pathlib.Path, number: int, condition: str,
        from_nothing: bool) -> dict:
    log = logs / f"run-{number}.log"
    if from_nothing:
        for folder in clone.glob("build*"):
            shutil.rmtree(folder)
    begun = time.monotonic()
    with Load(condition, logs), log.open("w") as out:
        status = run_in_group(["./dev", "test"], cwd=clone, stdout=out, stderr=subprocess.STDOUT,
                              env={**os.environ, "CI": "true",
                                   **({"CCACHE_DISABLE": "1"} if from_nothing else {})})
    text = log.read_text(errors="replace")
    last = re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M)
    return {"run": number, "condition": condition, "from_nothing": from_nothing, "status": status,
            "minutes": round((time.monotonic() - begun) / 60, 1),
            "passed": int(last[-1][0]) if last else 0,
            "failed": int(last[-1][1]) if last else 1,
            "failures": failures_in(text)}


class Record:
    """The results of one commit. A commit that was made anew with the same files is the same one."""

    def __init__(self, folder: pathlib.Path, commit: str, tree: str) -> None:
        self.commit, self.tree, self.runs = commit, tree, []
        self.file = folder / f"{commit[:12]}.json"
        for file in folder.glob("*.json"):
            kept = json.loads(file.read_text())
            if kept["tree"] == tree:
                self.file, self.commit, self.runs = file, kept["commit"], kept["runs"]

    def keep(self) -> None:
        self.file.parent.mkdir(exist_ok=True)
        draft = self.file.with_suffix(".draft")
        rows = ",\n".join("  " + json.dumps(one) for one in self.runs)
        draft.write_text(f'{{"commit": "{self.commit}", "tree": "{self.tree}", "runs": [\n{rows}\n]}}\n')
        draft.rename(self.file)


def show(result: dict) -> None:
    print(f"run {result['run']:2}  {result['condition']:5}  {result['passed']:5} passed  "
          f"{result['failed']:3} failed  {result['minutes']:5} min  "
          f"{' '.join(result['failures'])}".rstrip(), flush=True)


def summary(results: list[dict], commit: str) -> int:
    print(f"\n{len(results)} runs of {commit[:12]}")
    counts: dict[str, list[str]] = {}
    for result in results:
        for name in result["failures"]:
            counts.setdefault(name, []).append(result["condition"])
    for name, conditions in sorted(counts.items(), key=lambda row: -len(row[1])):
        print(f"  {name}: {len(conditions)} of {len(results)} ({', '.join(conditions)})")
    bad = sum(1 for result in results if result["status"] != 0 or result["failures"])
    print(f"{len(results) - bad} passed, {bad} failed")
    return 1 if bad else 0


def main() -> int:
    # What keeps the machine busy ends with this program, however it ends.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog="./dev soak suite", description=__doc__)
    parser.add_argument("--runs", type=int, default=len(CONDITIONS), help="how many (10)")
    parser.add_argument("--commit", default="HEAD", help="which one is tested (the last)")
    parser.add_argument("--from-nothing", action="store_true",
                        help="empty build folders before each run that has the machine for itself")
    parser.add_argument("--afresh", action="store_true", help="forget the runs of this commit")
    arguments = parser.parse_args()
    repository = pathlib.Path(__file__).resolve().parents[2]
    commit = git(repository, "rev-parse", "--verify", arguments.commit + "^{commit}")
    if git(repository, "status", "--porcelain", "--", ".", ":!tests/soak/results"):
        print("soak: what is not committed is not tested", file=sys.stderr)
    work = repository / "build-soak"
    logs = work / "suite" / commit
    logs.mkdir(parents=True, exist_ok=True)
    record = Record(repository / "tests" / "soak" / "results", commit,
                    git(repository, "rev-parse", commit + "^{tree}"))
    if arguments.afresh:
        record.runs = []
    clone = prepare(repository, work, commit)
    for result in record.runs:
        show(result)
    for number in range(len(record.runs) + 1, arguments.runs + 1):
        condition = CONDITIONS[(number - 1) % len(CONDITIONS)]
        record.runs.append(run(clone, logs, number, condition,
                               arguments.from_nothing and condition == "quiet"))
        record.keep()
        show(record.runs[-1])
    return summary(record.runs, commit)


if __name__ == "__main__":
    sys.exit(main())
