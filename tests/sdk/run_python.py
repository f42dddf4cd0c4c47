"""Runs the tests of the Python SDK against the finished program: run_python.py root|user|package.

As root or as an ordinary user, in a place of its own: a copy of the program and of sdk/python, a
state directory, and a mount namespace. What is left of its processes at the end, daemons and keepers
among them, is ended. `package` checks the types and the wheel instead.

CARREL_BINARY names the program. Exit status 77 is a test that cannot be run here.
"""

import ctypes
import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
USER = "carrel-test"
SKIPPED = 77
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
PATIENCE = 240
PARTS = 3

PR_SET_CHILD_SUBREAPER = 36
CLONE_NEWNS = 0x00020000
MS_REC = 0x4000
MS_PRIVATE = 1 << 18


def skip(why):
    print(f"skipped: {why}")
    sys.exit(SKIPPED)


def settle():
    """Whatever is started from here comes back here, and its mounts are seen here alone."""
    # Who is started in the background ignores it, and so would the programs under test.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    if os.geteuid() == 0:
        if libc.unshare(CLONE_NEWNS) != 0:
            raise OSError(ctypes.get_errno(), "unshare")
        if libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
            raise OSError(ctypes.get_errno(), "make / private")


def ordinary_user():
    """The user that the other tests have, too."""
    with open("/run/lock/carrel-test-user", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            return pwd.getpwnam(USER)
        except KeyError:
            words = ["useradd", "--user-group", "--no-create-home", "--shell", "/bin/sh", USER]
            subprocess.run(words, env={"PATH": PATH}, check=True)
            return pwd.getpwnam(USER)


def descendants():
    """Processes below this one: parents are read from /proc, children of the dead come here."""
    parents = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="latin-1") as file:
                    parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found = {os.getpid()}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return found - {os.getpid()}
        found |= more


def end_descendants():
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        except ChildProcessError:
            pass
        left = descendants()
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)


class Place:
    """A directory that its user can read and, in parts, write."""

    def __init__(self, user):
        self.user = user
        self.path = Path(tempfile.mkdtemp(prefix="carrel-sdk-", dir="/tmp"))
        self.path.chmod(0o755)
        self.program = self.path / "carrel"
        shutil.copy(os.environ["CARREL_BINARY"], self.program)
        self.program.chmod(0o755)
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info", ".mypy_cache", "build")
        self.package = self.path / "python"
        shutil.copytree(ROOT / "sdk/python", self.package, ignore=ignored)
        self.own("python")
        for name, mode in (("home", 0o700), ("user", 0o700), ("tmp", 0o755)):
            (self.path / name).mkdir(mode=mode)
            self.own(name)

    def own(self, name):
        if self.user is not None:
            for folder, _, files in os.walk(self.path / name):
                for one in ("", *files):
                    os.chown(os.path.join(folder, one), self.user.pw_uid, self.user.pw_gid)

    def environment(self):
        return {
            "PATH": PATH,
            "HOME": str(self.path / "user"),
            "LANG": "C.UTF-8",
            "TMPDIR": str(self.path / "tmp"),
            "CARREL_HOME": str(self.path / "home"),
            "CARREL_BINARY": str(self.program),
            "PYTHONPATH": str(self.package / "src"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, *words, **more):
        """Runs a program as the user; returns whether it succeeded."""
        who = {}
        if self.user is not None:
            who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []}
        options = {"cwd": self.package, "env": self.environment(), **who, **more}
        with subprocess.Popen(words, **options) as process:
            try:
                return process.wait(PATIENCE) == 0
            except subprocess.TimeoutExpired:
                print(f"{words[:4]} takes too long")
                process.kill()
                return False

    def remove(self):
        end_descendants()
        shutil.rmtree(self.path, ignore_errors=True)


def run_tests(place):
    """In parts that run side by side, each with a home and a daemon of its own: they wait more than
    they work."""
    files = sorted(str(path) for path in (place.package / "tests").glob("test_*.py"))
    verdicts = []

    def run_part(number):
        part = place.path / f"tmp/part{number}"
        part.mkdir()
        home = place.path / f"home{number}"
        home.mkdir(mode=0o700)
        place.own(home.name)
        place.own(f"tmp/{part.name}")
        words = [sys.executable, "-m", "pytest", f"--basetemp={part}/pytest", "--durations=3"]
        environment = {**place.environment(), "CARREL_HOME": str(home)}
        with open(place.path / f"log{number}", "w+", encoding="utf-8") as log:
            good = place.run(
                *words, *sys.argv[2:], *files[number::PARTS], env=environment, stdout=log, stderr=log
            )
            log.seek(0)
            verdicts.append((good, log.read()))

    threads = [threading.Thread(target=run_part, args=[number]) for number in range(PARTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for _, text in verdicts:
        print(text)
    return len(verdicts) == PARTS and all(good for good, _ in verdicts)


def check_package(place):
    """The types hold; the wheel can be built, has what it should, and works once installed."""
    if not place.run(sys.executable, "-m", "mypy", f"--cache-dir={place.path}/tmp/mypy"):
        return False
    wheels = place.path / "tmp/wheels"
    words = ["wheel", "--quiet", "--no-build-isolation", "--no-deps", "--no-index", "-w", wheels]
    if not place.run(sys.executable, "-m", "pip", *words, "."):
        return False
    [wheel] = wheels.glob("carrel-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [about] = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(about).decode()
    for wanted in ("carrel/__init__.py", "carrel/py.typed"):
        if wanted not in names:
            print(f"the wheel has no {wanted}")
            return False
    if any(name.startswith("tests") for name in names):
        print("the wheel has the tests in it")
        return False
    for line in ("Name: carrel", "Requires-Python: >=3.10", "# Carrel for Python"):
        if line not in metadata:
            print(f"the wheel's metadata have no '{line}'")
            return False
    python = place.path / "tmp/env/bin/python"
    words = [sys.executable, "-m", "venv", "--system-site-packages", "--without-pip"]
    if not place.run(*words, python.parents[1]):
        return False
    # The sources themselves are not to be found any more.
    alone = {"env": {**place.environment(), "PYTHONPATH": ""}, "cwd": place.path}
    words = ["-m", "pip", "--quiet", "--python", python, "install", "--no-index", "--no-deps"]
    if not place.run(sys.executable, *words, wheel, **alone):
        return False
    trial = (
        "import carrel, importlib.metadata as m\n"
        "assert '/env/' in carrel.__file__, carrel.__file__\n"
        "assert m.version('carrel') == carrel.__version__\n"
        "assert carrel.run_code('print(42)').stdout == '42\\n'\n"
    )
    return place.run(python, "-c", trial, **alone)


def main():
    what = sys.argv[1]
    if what == "root" and os.geteuid() != 0:
        skip("this is not root")
    settle()
    place = Place(ordinary_user() if what == "user" and os.geteuid() == 0 else None)
    try:
        good = check_package(place) if what == "package" else run_tests(place)
    finally:
        place.remove()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
