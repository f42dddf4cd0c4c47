"""A Docker engine of the tests' own.

usage: dockerd.py DIRECTORY [docker|podman|small-disk [UID]]

Starts dockerd, or podman as a service that speaks like it, with everything that it keeps in
DIRECTORY, which has to be there, and writes `ready` there when it answers at DIRECTORY/socket. A line
"start" on the standard input starts it again after it was ended, and writes `ready` again. The end of
the input ends it, and removes what it left. With a UID it is a rootless one of that user's; `small-disk` is
dockerd with its data on a disk of 16 MiB.
"""

import ctypes
import glob
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time

PR_SET_PDEATHSIG = 1
CLONE_NEWNS = 0x20000
STARTS_WITHIN = 40  # seconds
ROOTLESS = "/usr/share/docker.io/contrib/dockerd-rootless.sh"


class Connection(http.client.HTTPConnection):
    """HTTP over a socket of this host."""

    def __init__(self, path):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(5)
        self.sock.connect(self.path)


def answers(path):
    """Whether an engine answers there."""
    try:
        connection = Connection(path)
        connection.request("GET", "/_ping")
        return connection.getresponse().status == 200
    except OSError:
        return False


class Engine:
    """dockerd in a directory."""

    def __init__(self, directory, kind, user):
        self.directory = directory
        self.kind = kind
        self.user = user
        self.socket = os.path.join(directory, "socket")
        self.group = f"carrel-test-{os.getpid()}"
        self.process = None

    def start(self):
        """Starts it and waits until it answers."""
        def at_birth():
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        for left in [os.path.join(self.directory, "pid"), self.socket,
                     *glob.glob(self.directory + "/exec/containerd/containerd.[ps]*")]:
            if os.path.exists(left):
                os.unlink(left)
        words = ["dockerd", "--data-root", self.directory + "/data",
                 "--exec-root", self.directory + "/exec", "--pidfile", self.directory + "/pid",
                 "-H", "unix://" + self.socket, "--iptables=false", "--ip6tables=false",
                 "--bridge=none", "--storage-driver=vfs", "--cgroup-parent", "/" + self.group]
        crashes = os.path.join(self.directory, "crashes")
        with open(crashes, "w", encoding="ascii") as program:
            program.write("#!/bin/sh\nkill -SEGV $$\n")
        os.chmod(crashes, 0o755)
        # Everything but the machine is real behind a runtime that is only called so.
        runtimes = {"crashes": {"path": crashes}, "kata": {"path": shutil.which("runc")}}
        if shutil.which("runsc"):
            arguments = ["--platform=ptrace", "--network=none"]
            runtimes["runsc-closed"] = {"path": shutil.which("runsc"), "runtimeArgs": arguments}
            # The guest behind gVisor calls at a socket of the host's.
            runtimes["runsc"] = {"path": shutil.which("runsc"),
                                 "runtimeArgs": [*arguments, "--host-uds=open"]}
        settings = os.path.join(self.directory, "daemon.json")
        with open(settings, "w", encoding="ascii") as file:
            json.dump({"runtimes": runtimes}, file)
        words += ["--config-file", settings]
        if self.kind == "podman":
            # Its usual runtime, crun, gives up where control groups of both versions are used.
            words = ["podman", "--runtime", shutil.which("runc"), "--root", self.directory + "/data",
                     "--runroot", self.directory + "/exec", "--storage-driver", "vfs",
                     "--cgroup-manager", "cgroupfs", "system", "service", "-t", "0",
                     "unix://" + self.socket]
        if self.user is not None:
            words = self.as_user(words)
        with open(self.directory + "/log", "ab") as log:
            self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                            preexec_fn=at_birth)
        last = time.monotonic() + STARTS_WITHIN
        while not answers(self.socket):
            if self.process.poll() is not None or time.monotonic() > last:
                with open(self.directory + "/log", encoding="utf-8", errors="replace") as log:
                    sys.exit("dockerd does not start: " + log.read()[-2000:])
            time.sleep(0.05)
        os.chmod(self.socket, 0o666)  # the ordinary user of the tests is in its group, so to speak

    def as_user(self, words):
        """The same as a rootless engine: ids of his are written where only it sees them."""
        ids = os.path.join(self.directory, "ids")
        home = os.path.join(self.directory, "run")
        name = pwd.getpwuid(self.user).pw_name
        with open(ids, "w", encoding="ascii") as file:
            file.write(f"{name}:1000000:65536\n")
        os.makedirs(home, exist_ok=True)
        for path in (self.directory, home):
            os.chown(path, self.user, self.user)
        if self.kind == "docker":
            if "--cgroup-parent" in words:
                at = words.index("--cgroup-parent")
                del words[at:at + 2]
            words[0] = ROOTLESS
        return ["unshare", "--mount", "--propagation", "slave", "sh", "-c",
                'mount --bind "$0" /etc/subuid && mount --bind "$0" /etc/subgid && exec "$@"', ids,
                "setpriv", f"--reuid={self.user}", f"--regid={self.user}", "--clear-groups",
                "env", "-i", "PATH=" + os.environ.get("PATH", "") + ":/usr/sbin:/sbin", "HOME=" + home,
                "USER=" + name, "XDG_RUNTIME_DIR=" + home,
                f"DOCKERD_ROOTLESS_ROOTLESSKIT_FLAGS=--state-dir={self.directory}/state", *words]

    def end(self):
        """Ends it and what it started."""
        if self.process is None:
            return
        pids = [self.process.pid]
        for name in glob.glob(self.directory + "/exec/containerd/containerd.pid") + glob.glob(
                self.directory + "/pid"):
            with open(name, encoding="ascii") as file:
                pids.append(int(file.read()))
        for number, last in ((signal.SIGTERM, 10), (signal.SIGKILL, 5)):
            for pid in pids:
                # A number that was given to another process since is not ours.
                if is_ours(pid, self.directory):
                    os.kill(pid, number)
            deadline = time.monotonic() + last
            while time.monotonic() < deadline and any(is_ours(p, self.directory) for p in pids):
                self.process.poll()
                time.sleep(0.02)

    def end_shims(self):
        """Those that an engine left that was ended by force."""
        for name in os.listdir("/proc"):
            if name.isdigit() and (is_ours(int(name), self.directory + "/exec") or
                                   is_ours(int(name), f"XDG_RUNTIME_DIR={self.directory}/run",
                                           "environ")):
                os.kill(int(name), signal.SIGKILL)

    def clean(self):
        """Removes its directory, and its own control groups."""
        self.end_shims()
        with open("/proc/self/mounts", encoding="utf-8") as mounts:
            below = [line.split()[1] for line in mounts]
        for path in sorted(below, reverse=True):
            if path.startswith(self.directory + "/"):
                subprocess.run(["umount", "-l", path], check=False)
        for group in glob.glob("/sys/fs/cgroup/*/" + self.group) + glob.glob(
                "/sys/fs/cgroup/" + self.group):
            for folder, _, _ in os.walk(group, topdown=False):
                remove_group(folder)
        shutil.rmtree(self.directory, ignore_errors=True)


def remove_group(folder):
    """A control group of the engine's, with the containers that it left."""
    try:
        with open(folder + "/cgroup.procs", encoding="ascii") as file:
            for pid in file.read().split():
                os.kill(int(pid), signal.SIGKILL)
                time.sleep(0.1)
        os.rmdir(folder)
    except OSError:
        pass


def is_ours(pid, directory, told="cmdline"):
    """Whether a process was started with this directory and lives."""
    try:
        with open(f"/proc/{pid}/{told}", "rb") as file:
            return directory.encode() in file.read()
    except OSError:
        return False


def main():
    engine = Engine(os.path.abspath(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "docker",
                    int(sys.argv[3]) if len(sys.argv) > 3 and sys.argv[3] else None)
    ready = os.path.join(engine.directory, "ready")
    if engine.kind == "small-disk":
        # In a mount namespace of this process's, which outlives the engine.
        os.mkdir(engine.directory + "/data")
        if ctypes.CDLL(None).unshare(CLONE_NEWNS) != 0:
            sys.exit("no mount namespace of its own")
        subprocess.run(["mount", "--make-rslave", "/"], check=True)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs",
                        engine.directory + "/data"], check=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        engine.start()
        with open(ready, "w", encoding="ascii"):
            pass
        for line in sys.stdin:
            if line.strip() == "start":
                engine.end()
                engine.start()
                with open(ready, "w", encoding="ascii"):
                    pass
    finally:
        engine.end()
        engine.clean()


if __name__ == "__main__":
    main()
