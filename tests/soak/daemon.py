"""A daemon of a soak test's, and clients of it."""

import http.client
import json
import pathlib
import signal
import socket
import time


class Connection(http.client.HTTPConnection):
    """HTTP over the daemon's unix socket."""

    def __init__(self, path):
        super().__init__("localhost", timeout=120)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Client:
    """One connection that is kept open."""

    def __init__(self, connection, token=None):
        self.connection = connection
        self.headers = {} if token is None else {"authorization": f"Bearer {token}"}

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body)
        headers = dict(self.headers)
        if data is not None:
            headers["content-type"] = "application/json"
        self.connection.request(method, path, data, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text.startswith(b"{") else text

    def want(self, status, method, path, body=None):
        got, answer = self.ask(method, path, body)
        if got != status:
            raise RuntimeError(f"{method} {path}: {got} {answer}")
        return answer

    def create(self, **settings):
        return "/v1/sandboxes/" + self.want(201, "POST", "/v1/sandboxes", settings)["id"]

    def shell(self, box, command):
        return self.want(200, "POST", box + "/shell", {"command": command})

    def close(self):
        self.connection.close()


class Daemon:
    """`carrel serve` in a place of soak's."""

    def __init__(self, place, *options):
        self.socket = str(place.home / "run/api.sock")
        log = open(place.root / "daemon.log", "ab")
        self.process = place.start("serve", *options, log=log)
        log.close()
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                self.client().want(200, "GET", "/v1/health")
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("the daemon does not come up: "
                           + (place.root / "daemon.log").read_text()[-2000:])

    def client(self):
        return Client(Connection(self.socket))

    def resident(self):
        """Bytes of memory."""
        status = pathlib.Path("/proc", str(self.process.pid), "status").read_text()
        return int(status.split("VmRSS:")[1].split()[0]) << 10

    def descriptors(self):
        return len(list(pathlib.Path("/proc", str(self.process.pid), "fd").iterdir()))

    def threads(self):
        return len(list(pathlib.Path("/proc", str(self.process.pid), "task").iterdir()))

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        if self.process.wait(timeout=30) != 0:
            raise RuntimeError("the daemon ended badly")
