"""Where the soak test happens, and what it sees of the host."""

import ctypes
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

USER = "carrel-test"
PR_SET_CHILD_SUBREAPER = 36


def become_reaper():
    """Orphans of sandboxes stay below this process, where they can be counted."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def ordinary_user():
    try:
        return pwd.getpwnam(USER)
    except KeyError:
        subprocess.run(["useradd", "--user-group", "--no-create-home", USER], check=True)
        return pwd.getpwnam(USER)


def group_mounts():
    with open("/proc/self/mounts", encoding="utf-8") as mounts:
        fields = [line.split() for line in mounts]
    return [one[1] for one in fields if one[2] in ("cgroup", "cgroup2")]


def descendants():
    """{pid: name} of every live process below this one."""
    parents, names = {}, {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            text = pathlib.Path("/proc", entry, "stat").read_text(errors="replace")
        except OSError:
            continue
        name, rest = text[text.index("(") + 1 :].rsplit(")", 1)
        state, parent = rest.split()[:2]
        parents[int(entry)] = int(parent)
        if state not in "ZX":
            names[int(entry)] = name
    found = {}
    for pid, name in names.items():
        above = parents[pid]
        while above > 1 and above != os.getpid():
            above = parents.get(above, 0)
        if above == os.getpid():
            found[pid] = name
    return found


def reap():
    try:
        while os.waitpid(-1, os.WNOHANG)[0] != 0:
            pass
    except ChildProcessError:
        pass


def eventually(seconds, question):
    """The last answer of a question that should become empty."""
    end = time.monotonic() + seconds
    while True:
        answer = question()
        if not answer or time.monotonic() > end:
            return answer
        time.sleep(0.02)


class Place:
    """A copy of the program and a state directory of its own, for one user."""

    def __init__(self, program, as_root):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="carrel-soak-"))
        self.root.chmod(0o755)
        self.program = str(shutil.copy(program, self.root / "carrel"))
        self.home = self.root / "home"
        self.home.mkdir(mode=0o700)
        self.identity = {}
        if os.geteuid() == 0 and not as_root:
            user = ordinary_user()
            os.chown(self.home, user.pw_uid, user.pw_gid)
            self.identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        self.environment = {"PATH": "/usr/bin:/bin", "CARREL_HOME": str(self.home)}

    def start(self, *words, log=None):
        """`log` is a file for both outputs, in place of pipes."""
        return subprocess.Popen(
            [self.program, *words], env=self.environment, cwd="/", stdin=subprocess.DEVNULL,
            stdout=log or subprocess.PIPE, stderr=log or subprocess.PIPE, text=True,
            **self.identity)

    def carrel(self, *words):
        with self.start(*words) as process:
            try:
                out, err = process.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                err += "(killed after 60 seconds)"
            return process.returncode, out, err

    def keepers(self):
        found = []
        for pid in descendants():
            try:
                words = pathlib.Path("/proc", str(pid), "cmdline").read_bytes().split(b"\0")
                if os.readlink(f"/proc/{pid}/exe") == self.program and words[1:2] == [b"keeper"]:
                    found.append(pid)
            except OSError:
                continue
        return found

    def kill_keepers(self):
        killed = set(self.keepers())
        for pid in killed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        eventually(5, lambda: killed & set(self.keepers()))

    def boxes(self):
        """The ids of the sandboxes that have a record and a live first process."""
        alive = set()
        for box in (self.home / "run/box").iterdir():
            try:
                lines = (box / "record").read_text().splitlines()
                pid = dict(line.split("=", 1) for line in lines)["pid"]
                text = pathlib.Path("/proc", pid, "stat").read_text(errors="replace")
                if text.rsplit(")", 1)[1].split()[0] not in "ZX":
                    alive.add(box.name)
            except (OSError, ValueError):
                continue
        return alive

    def inconsistencies(self):
        """Whatever belongs to no live sandbox, and whatever a live one lacks."""
        reap()
        alive = self.boxes()
        run = self.home / "run"
        wrong = [f"mark {one.name}" for one in (run / "once").iterdir()]
        wrong += [f"box {one.name}" for one in (run / "box").iterdir() if one.name not in alive]
        claims = [os.readlink(one) for one in (run / "ids").iterdir()]
        wrong += [f"ids of {one}" for one in claims if one not in alive]
        wrong += [f"file {one.name}" for one in self.home.iterdir() if ".new" in one.name]
        prefix = "carrel-" + (self.home / "installation").read_text().strip() + "-"
        for mount in group_mounts():
            for name in os.listdir(mount):
                if name.startswith(prefix) and name[len(prefix) :] not in alive:
                    wrong.append(f"group {mount}/{name}")
        keepers = self.keepers()
        first = 0
        for pid, name in descendants().items():
            # A keeper's nursery has a process ready for the next sandbox.
            if pid in keepers or (keepers and name == "carrel-nursery"):
                continue
            first += self.is_first(pid)
            if not alive:
                wrong.append(f"process {pid} {name}")
        if first != len(alive):
            wrong.append(f"{first} first processes for {len(alive)} sandboxes")
        return wrong

    @staticmethod
    def is_first(pid):
        try:
            for line in pathlib.Path("/proc", str(pid), "status").read_text().splitlines():
                if line.startswith("NSpid:"):
                    return line.split()[-1] == "1"
        except OSError:
            pass
        return False

    def end_processes(self):
        for pid in descendants():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.1)
        reap()

    def close(self):
        self.end_processes()
        shutil.rmtree(self.root, ignore_errors=True)
