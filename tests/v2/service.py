"""The daemon as a service of systemd's: the units of packaging/, as they are."""

import http.client
import json
import os
import shutil
import signal
import socket
import subprocess
import time

UNITS = "/etc/systemd/system"
HOME = "/var/lib/carrel"
SLOW = 60  # seconds; the machine may be emulated


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def systemctl(*words):
    done = run("systemctl", *words)
    assert done.returncode == 0, f"systemctl {words}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


def shown(what):
    return systemctl("show", "--value", "-p", what, "carrel.service")


def eventually(question, seconds=SLOW):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        answer = question()
        if answer:
            return answer
        time.sleep(0.2)
    return question()


class Connection(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("localhost", timeout=SLOW)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(SLOW)
        self.sock.connect(f"{HOME}/run/api.sock")


def ask(method, path, body=None):
    connection = Connection()
    connection.request(method, path, None if body is None else json.dumps(body),
                       {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, json.loads(text) if text.startswith("{") else text


def install():
    program = os.environ["CARREL_BINARY"]
    run("install", "-m", "0755", program, "/usr/bin/carrel")
    for unit in ("carrel.service", "carrel.socket"):
        shutil.copy(f"/payload/{unit}", f"{UNITS}/{unit}")
    checked = run("systemd-analyze", "verify", "--man=no", f"{UNITS}/carrel.service", f"{UNITS}/carrel.socket")
    assert "carrel" not in checked.stderr, checked.stderr
    # A wait of half a minute is a long one in a test.
    os.makedirs(f"{UNITS}/carrel.service.d", exist_ok=True)
    with open(f"{UNITS}/carrel.service.d/test.conf", "w", encoding="utf-8") as file:
        file.write("[Service]\nWatchdogSec=8\nTimeoutStartSec=120\n")
    systemctl("daemon-reload")


def carrel(*words):
    return subprocess.run(["/usr/bin/carrel", *words], env=dict(os.environ, CARREL_HOME=HOME),
                          capture_output=True, text=True, timeout=180, check=False)


def says(box, command):
    status, answer = ask("POST", f"/v1/sandboxes/{box}/shell", {"command": command})
    assert status == 200, (status, answer)
    return answer["stdout"]


def new_process(old):
    """The daemon that follows on one that ended, once it answers."""
    def there():
        now = int(shown("MainPID"))
        return now if now not in (0, old) and shown("ActiveState") == "active" else 0
    assert eventually(there), f"no new daemon: {shown('ActiveState')} {shown('Result')}"
    return int(shown("MainPID"))


def the_service_starts_by_its_socket_and_its_sandboxes_outlive_it():
    install()
    systemctl("start", "carrel.socket")
    assert run("systemctl", "is-active", "carrel.service").stdout.strip() == "inactive"
    mode = oct(os.stat(f"{HOME}/run/api.sock").st_mode & 0o777)
    assert mode == "0o600", mode
    status, answer = ask("GET", "/v1/health")
    assert status == 200, (status, answer)
    assert shown("ActiveState") == "active" and shown("Type") == "notify"
    first = int(shown("MainPID"))

    status, made = ask("POST", "/v1/sandboxes", {"memory": "64m"})
    assert status == 201, (status, made)
    box = made["id"]
    assert says(box, "x=7; echo made") == "made\n"
    rows = json.loads(carrel("info", "--json", box).stdout)["enforcement"]
    memory = next(row for row in rows if row["name"] == "memory")
    assert "cgroup" in memory["by"], memory

    systemctl("reload", "carrel.service")
    assert int(shown("MainPID")) == first and says(box, "echo $x") == "7\n"

    os.kill(first, signal.SIGKILL)
    second = new_process(first)
    assert says(box, "echo $x") == "7\n", "the sandbox was adopted, with its shell"

    os.kill(second, signal.SIGSTOP)
    third = new_process(second)
    assert says(box, "echo $x") == "7\n", "and after one that hung and was ended by the watchdog"
    assert int(shown("NRestarts")) == 2, shown("NRestarts")

    began = time.monotonic()
    systemctl("stop", "carrel.service")
    assert time.monotonic() - began < 15, "it was not killed for being slow"
    assert shown("Result") == "success", shown("Result")
    listed = carrel("ls")
    assert box[:8] in listed.stdout, listed.stdout + listed.stderr
    assert says(box, "echo $x") == "7\n", "the socket starts it again"
    assert int(shown("MainPID")) not in (0, third)

    status, answer = ask("DELETE", f"/v1/sandboxes/{box}?grace_ms=0")
    assert status in (200, 204), (status, answer)
    systemctl("stop", "carrel.socket", "carrel.service")
    assert eventually(lambda: box[:8] not in carrel("ls").stdout)


def the_service_is_not_exposed():
    """What systemd says of the hardening, so that a setting that is lost is noticed."""
    install()
    done = run("systemd-analyze", "security", "--json=short", "carrel.service")
    assert done.returncode == 0, done.stderr
    settings = {row["json_field"]: row["set"] for row in json.loads(done.stdout)}
    for name in ("NoNewPrivileges", "ProtectKernelModules", "ProtectClock", "RestrictRealtime",
                 "SystemCallArchitectures"):
        assert settings.get(name) is True, (name, settings.get(name))


STORIES = [
    the_service_starts_by_its_socket_and_its_sandboxes_outlive_it,
    the_service_is_not_exposed,
]
