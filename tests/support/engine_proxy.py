"""Stands between the program and a Docker engine, and changes what one tells the other.

usage: engine_proxy.py SOCKET ENGINE CHANGE

CHANGE is Python, run for each request before it goes to the engine, with `method`, `path` and `body`
(a dict of a container that is created, or None), and with `answer`, which is None then; and for each
answer, with `answer` a dict. `host` is the HostConfig of either. `refuse(status, message)` answers
instead of the engine, `hang()` never does, and `drop()` closes the connection. A connection that is
upgraded is carried as it is, unless `say(head, later)` answers with these bytes, the second ones when
the container was started; a third argument ends the connection then. `alter(old, new)` replaces bytes of
what comes out of it. Prints a line when it listens.
"""

import json
import os
import socket
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from dockerd import Connection  # noqa: E402


class Refused(Exception):
    """An answer of our own."""


class Dropped(Exception):
    """No answer at all."""


class Said(Exception):
    """Bytes in the place of an upgraded connection's."""


UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
STARTED = threading.Event()
ALTERED = []


def alter(old, new):
    ALTERED.append((old, new))


def say(*words):
    raise Said(*words)


def refuse(status, message):
    raise Refused(status, message)


def hang():
    time.sleep(3600)


def drop():
    raise Dropped()


class Handler(BaseHTTPRequestHandler):
    """One connection of the program's."""

    protocol_version = "HTTP/1.1"

    def change(self, body, answer):
        one = answer if answer is not None else body
        host = one.get("HostConfig") if isinstance(one, dict) else None
        names = {"method": self.command, "path": self.path, "body": body, "answer": answer,
                 "host": host, "refuse": refuse, "hang": hang, "drop": drop,
                 "say": say, "upgraded": UPGRADED, "alter": alter}
        exec(sys.argv[3], names)  # pylint: disable=exec-used

    def carry(self):
        """A connection that is handed over."""
        self.close_connection = True
        try:
            self.change(None, None)
        except Said as said:
            self.connection.sendall(said.args[0])
            if len(said.args) > 1:
                STARTED.wait(10)
                self.connection.sendall(said.args[1])
            if len(said.args) < 3:
                self.connection.recv(1)
            return
        engine = socket.socket(socket.AF_UNIX)
        engine.connect(sys.argv[2])
        head = f"{self.command} {self.path} HTTP/1.1\r\n" + "".join(
            f"{name}: {value}\r\n" for name, value in self.headers.items())
        engine.sendall(head.encode() + b"\r\n")

        def copy(source, target, altered=()):
            try:
                while data := source.recv(1 << 16):
                    for old, new in altered:
                        data = data.replace(old, new)
                    target.sendall(data)
            except OSError:
                pass
            for end in (source, target):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
        back = threading.Thread(target=copy, args=(engine, self.connection, ALTERED),
                                daemon=True)
        back.start()
        copy(self.connection, engine)
        back.join()

    def pass_on(self):
        if self.headers.get("Upgrade"):
            self.carry()
            return
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            body = json.loads(data) if "/containers/create" in self.path else None
            self.change(body, None)
            if body is not None:
                data = json.dumps(body).encode()
            engine = Connection(sys.argv[2])
            engine.timeout = 60
            headers = {"Content-Type": self.headers.get("Content-Type", "")} if data else {}
            engine.request(self.command, self.path, data or None, headers)
            engine.sock.settimeout(60)
            response = engine.getresponse()
            status, told = response.status, response.read()
            if self.path.endswith("/start"):
                STARTED.set()
            try:
                answer = json.loads(told)
            except ValueError:
                answer = None
            if isinstance(answer, dict):
                self.change(None, answer)
                told = json.dumps(answer).encode()
        except Refused as refused:
            status, told = refused.args[0], json.dumps({"message": refused.args[1]}).encode()
        except Dropped:
            self.close_connection = True
            return
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(told)))
        self.end_headers()
        if status != 204:
            self.wfile.write(told)

    do_GET = do_POST = do_DELETE = pass_on

    def log_message(self, format, *args):  # pylint: disable=redefined-builtin
        pass

    def address_string(self):
        return "carrel"


class Server(socketserver.ThreadingUnixStreamServer):
    """It ends with whoever started it."""

    daemon_threads = True


def main():
    with Server(sys.argv[1], Handler) as server:
        os.chmod(sys.argv[1], 0o666)
        print("ready", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
