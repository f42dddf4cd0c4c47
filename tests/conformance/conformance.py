"""The same tests with another backend.

usage: conformance.py BUILD BACKEND [--quick] [--jobs N] [--json FILE]

Runs the end-to-end, attack and crash tests of a build with CARREL_TEST_BACKEND, except for the
differences that are listed with their reasons. Without --quick all of them, and the differences as
well, which must still be some. The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

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


def differences(backend):
    """The patterns of a backend with their reasons."""
    found = {}
    for line in (HERE / "differences.txt").read_text().splitlines():
        if line.strip() and not line.startswith("#"):
            name, pattern, reason = (part.strip() for part in line.split("|", 2))
            if name == backend:
                found[pattern] = reason
    return found


def run(program, backend, gtest_filter, shard=0, shards=1):
    """The results of one program: {test: "passed", "skipped" or what it said}."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        environment = dict(os.environ, CARREL_TEST_BACKEND=backend,
                           GTEST_TOTAL_SHARDS=str(shards), GTEST_SHARD_INDEX=str(shard))
        done = subprocess.run(
            [program, f"--gtest_filter={gtest_filter}", f"--gtest_output=json:{report.name}"],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LONGEST,
            check=False)
        text = Path(report.name).read_text()
    if not text:
        said = done.stdout.decode(errors="replace")[-2000:]
        return {f"{program.name} {gtest_filter}": f"it ended with {done.returncode}: {said}"}
    results = {}
    for suite in json.loads(text)["testsuites"]:
        for test in suite["testsuite"]:
            name = f"{suite['name']}.{test['name']}"
            if test.get("failures"):
                results[name] = "\n".join(one["failure"] for one in test["failures"])
            elif test["result"] == "COMPLETED":
                results[name] = "passed"
            else:
                results[name] = "skipped"
    return results


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("build", type=Path)
    parser.add_argument("backend")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    os.environ["CARREL_BINARY"] = str((options.build / "carrel").resolve())
    known = differences(options.backend)
    if not known:
        sys.exit(f"there is no backend '{options.backend}' in differences.txt")
    programs = [(options.build / "tests" / name).resolve()
                for name in (QUICK if options.quick else WHOLE)]
    for program in programs:
        if not program.exists():
            sys.exit(f"{program.name} is not built")
    with engine_of(options.backend):
        return suite(options, programs, known)


@contextlib.contextmanager
def engine_of(backend):
    """What a backend needs beside its program: for docker an engine of this run's own."""
    if backend != "docker":
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
    """Runs the programs; the exit status."""
    results = {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        excluded = "*:-" + ":".join(known)
        waiting = [pool.submit(run, program, options.backend, excluded, shard, SHARDS)
                   for program in programs for shard in range(SHARDS)]
        for number, one in enumerate(waiting, 1):
            results.update(one.result())
            if sys.stdout.isatty():
                print(f"\r{number} of {len(waiting)} parts", end="", flush=True)
    failed = {name: said for name, said in results.items() if said not in ("passed", "skipped")}
    if not options.quick:
        for name, said in differing(programs, options.backend, known).items():
            if said == "passed":
                failed[name] = "it is listed as a difference, and there is none"
    for name, said in failed.items():
        print(f"FAILED {name}\n    " + said[:1500].replace("\n", "\n    "))
    skipped = sum(said == "skipped" for said in results.values())
    passed = sum(said == "passed" for said in results.values())
    if options.json:
        options.json.write_text(json.dumps(
            {"backend": options.backend, "run": "quick" if options.quick else "whole",
             "passed": passed, "skipped": skipped,
             "failed": sorted(failed), "differences": known}, indent=2) + "\n")
    if skipped:
        print(f"{skipped} skipped")
    print(f"{passed} passed, {len(failed)} failed")
    return 1 if failed or passed == 0 else 0


def differing(programs, backend, known):
    """The results of the tests that are known to differ."""
    results = {}
    for program in programs:
        results.update(run(program, backend, ":".join(known)))
    return results


if __name__ == "__main__":
    sys.exit(main())
