"""The same tests with another backend.

usage: conformance.py BUILD BACKEND [--quick | --only PROGRAM...] [--jobs N] [--json FILE]

Runs the end-to-end, attack and crash tests of a build with CARREL_TEST_BACKEND, except for the
differences that are listed with their reasons. Without --quick all of them, and the differences as
well, which must still be some. --only names some of the programs, as `shell` or `box_attacks`: what
they find takes the place of what FILE says of them, so that a whole run can be made in parts.

A test that fails has failed: nothing is run again. What a program found is written to FILE at once.
The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import contextlib
import fnmatch
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import table

HERE = Path(__file__).resolve().parent

# What a user can see of a sandbox, whoever built it. Nurseries, warm pools and old kernels are the
# native backend's own affair.
QUICK = ["attacks/attack_probes_test", "end_to_end/end_to_end_lifecycle_test"]
WHOLE = QUICK + [
    *(f"end_to_end/end_to_end_{name}_test" for name in (
        "shell", "network", "apply", "budgets", "credentials", "errors", "files", "golden_tasks", "holding", "images",
        "limits", "lives", "memory_workspaces", "mounting", "mounts", "one_shot", "ports",
        "privileges", "quotas", "recovery", "results", "services", "workspaces")),
    *(f"attacks/attack_{name}_attacks_test" for name in (
        "box", "egress_bytes", "egress_life", "egress_names", "egress_route", "file", "files_api",
        "limit", "mount", "privilege", "session", "workspace")),
    *(f"crash/crash_{name}_test" for name in ("disk", "keeper", "kill", "sweep", "workspace_kill")),
]
SHARDS = 4
LONGEST = 1200  # seconds of one shard
KEPT = 600  # characters of what a test said that are written down
# How much more time than `native` the tests give a backend (see tests/support/patience.h).
SLOWNESS = {"docker": 2, "oci-runsc": 4, "docker-runsc": 6, "microvm": 10}


def differences(backend):
    """The patterns of a backend with their reasons."""
    return {tests: reason for name, tests, reason in table.read_differences() if name == backend}


def run(program, backend, gtest_filter, shard=0, shards=1, slowness=None):
    """The results of one program: {test: "passed", "skipped" or what it said}."""
    slowness = slowness or SLOWNESS.get(backend, 1)
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        environment = dict(os.environ, CARREL_TEST_BACKEND=backend,
                           CARREL_TEST_SLOWNESS=str(slowness),
                           GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(shard))
        try:
            done = subprocess.run(
                [program, f"--gtest_filter={gtest_filter}", f"--gtest_output=json:{report.name}"],
                env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                timeout=LONGEST * slowness, check=False)
            ending, output = f"with {done.returncode}", done.stdout
        except subprocess.TimeoutExpired as late:
            ending, output = "because it took too long", late.stdout or b""
        text = Path(report.name).read_text()
    if not text:
        said = output.decode(errors="replace")[-2000:]
        return {f"{program.name} {shard + 1} of {shards}": f"it ended {ending}: {said}"}
    results = {}
    for suite in json.loads(text)["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                results[name] = "\n".join(
                    [*(one["failure"] for one in test["failures"]), test.get("refusals", "")])
            elif test["result"] == "COMPLETED":
                results[name] = "passed"
            else:
                results[name] = "skipped"
    return results


def failures(results):
    return {name: said for name, said in results.items() if said not in ("passed", "skipped")}


def judged(differing, known):
    """What is wrong with the tests that are listed as differences: {test: why}.

    A difference must be one. Where the reason ends with the words of a refusal, as in ("has no
    network"), the tests have to fail for just that, and one that needs nothing of it may hold.
    """
    wrong = {}
    for name, said in differing.items():
        reason = next((reason for pattern, reason in known.items()
                       if any(fnmatch.fnmatchcase(name, one) for one in pattern.split(":"))), None)
        refusal = re.search(r'\("([^"]+)"\)$', reason or "")
        if reason is None:
            wrong[name] = said  # it is no test: a program ended before it could tell
        elif refusal is None and said == "passed":
            wrong[name] = "it is listed as a difference, and there is none"
        elif refusal is not None and said not in ("passed", "skipped") and refusal[1] not in said:
            wrong[name] = f"it fails, and not with '{refusal[1]}': {said}"
    return wrong


def chosen(options):
    """The programs of this run."""
    names = QUICK if options.quick else WHOLE
    if options.only:
        short = {name: name.split("/")[1].split("_", 1)[1].removesuffix("_test")
                 .removeprefix("to_end_") for name in WHOLE}
        unknown = set(options.only) - set(short.values())
        if unknown:
            sys.exit(f"there is no {', '.join(sorted(unknown))} among {', '.join(short.values())}")
        names = [name for name in WHOLE if short[name] in options.only]
    programs = [(options.build / "tests" / name).resolve() for name in names]
    for program in programs:
        if not program.exists():
            sys.exit(f"{program.name} is not built")
    return programs


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("backend")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="PROGRAM")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["CARREL_BINARY"] = str((options.build / "carrel").resolve())
    known = differences(options.backend)
    if not known:
        sys.exit(f"there is no backend '{options.backend}' in differences.txt")
    programs = chosen(options)
    with engine_of(options.backend):
        found = suite(options, programs, known)
    for one in found.values():
        for name, said in one["failed"].items():
            print(f"FAILED {name}\n    " + said[:1500].replace("\n", "\n    "))
    passed = sum(one["passed"] for one in found.values())
    failed = sum(len(one["failed"]) for one in found.values())
    skipped = sum(one["skipped"] for one in found.values())
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {failed} failed")
    ran = passed + sum(len(one["differing"]) for one in found.values())
    return 1 if failed or ran == 0 else 0


@contextlib.contextmanager
def engine_of(backend):
    """What a backend needs beside its program: for docker an engine of this run's own."""
    if not backend.startswith("docker"):
        yield
        return
    with tempfile.TemporaryDirectory(prefix="carrel-engine-", dir="/tmp",
                                     ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        with subprocess.Popen([sys.executable, "-B", HERE.parent / "support/dockerd.py", directory],
                              stdin=subprocess.PIPE, start_new_session=True) as helper:
            while helper.poll() is None and not os.path.exists(directory + "/ready"):
                time.sleep(0.1)
            if helper.poll() is not None:
                sys.exit("there is no engine (package docker.io)")
            os.environ["DOCKER_HOST"] = f"unix://{directory}/socket"
            try:
                yield
            finally:
                helper.stdin.close()
                helper.wait(30)


def suite(options, programs, known):
    """Runs the programs: {name: {"passed", "skipped", "failed", "differing"}}

    What one of them found is written as soon as it is known: a run that is stopped loses the rest.
    """
    found = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        excluded = "*:-" + ":".join(known)
        listed = None if options.quick else ":".join(known)
        # Tests of what is refused wait for what never comes: they are given no more time than usual.
        waiting = [(program, *([pool.submit(run, program, options.backend, which, shard, SHARDS, slow)
                                for shard in range(SHARDS) if which]
                               for which, slow in ((excluded, None), (listed, 1))))
                   for program in programs]
        for number, (program, usual, differing) in enumerate(waiting, 1):
            found[program.name] = summed(together(usual), together(differing), known)
            keep(options, known, found)
            if sys.stdout.isatty():
                print(f"\r{number} of {len(waiting)} programs", end="", flush=True)
    return found


def together(shards):
    return {name: said for one in shards for name, said in one.result().items()}


def summed(tests, differing, known):
    """What a program found, by its tests and by those that are listed as differences."""
    failed = judged(differing, known)
    held = [name for name, said in differing.items() if said == "passed" and name not in failed]
    tests.update((name, differing.pop(name)) for name in held)
    failed.update(failures(tests))
    return {"passed": sum(said == "passed" for said in tests.values()),
            "skipped": sum(said == "skipped" for said in tests.values()),
            "differing": sorted(differing), "failed": failed}


def shortened(said):
    """What tests said, as much of it as tells why."""
    return {name: text if len(text) <= KEPT else text[:KEPT] + "..."
            for name, text in sorted(said.items())}


def keep(options, known, found):
    """Writes what was found, with what the file says of programs that are not part of this run."""
    path = options.json
    if not path:
        return
    programs = json.loads(path.read_text())["programs"] if options.only and path.exists() else {}
    for name, one in found.items():
        programs[name] = dict(one, failed=shortened(one["failed"]))
    names = {Path(name).name for name in WHOLE}
    quick = {Path(name).name for name in QUICK}
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({
        "backend": options.backend,
        "run": "whole" if names <= set(programs) else
               "quick" if set(programs) == quick else "part",
        "passed": sum(one["passed"] for one in programs.values()),
        "skipped": sum(one["skipped"] for one in programs.values()),
        "failed": sorted(name for one in programs.values() for name in one["failed"]),
        "differences": known,
        "programs": dict(sorted(programs.items()))}, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
