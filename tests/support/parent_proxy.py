"""A company's proxy: parent_proxy.py FILE [USER:PASSWORD]

Speaks HTTP CONNECT on one port of 127.0.0.1 and SOCKS5 on another, and prints both. It knows where
the names of internet.py are without asking anybody, and writes down what it was asked for.
"""
import base64
import socket
import socketserver
import struct
import sys
import threading

NAMES = {"allowed.test": "11.1.1.1", "evil.test": "11.6.6.6"}
login = sys.argv[2] if len(sys.argv) > 2 else None
lock = threading.Lock()


def note(text):
    with lock, open(sys.argv[1], "a", encoding="utf-8") as out:
        out.write(text + "\n")


def carry(source, target):
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def join(client, server):
    other = threading.Thread(target=carry, args=(server, client), daemon=True)
    other.start()
    carry(client, server)
    other.join()


def reach(host, port):
    return socket.create_connection((NAMES.get(host, host), port), 10)


class Http(socketserver.StreamRequestHandler):
    def handle(self):
        words = self.rfile.readline().decode().split()
        given = None
        while (line := self.rfile.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode().partition(":")
            if name.lower() == "proxy-authorization":
                given = base64.b64decode(value.split()[1]).decode()
        note(f"http {words[0]} {words[1]} {given}")
        if given != login:
            self.wfile.write(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n")
            return
        host, _, port = words[1].rpartition(":")
        with reach(host, int(port)) as server:
            self.wfile.write(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
            join(self.connection, server)


class Socks(socketserver.StreamRequestHandler):
    def handle(self):
        count = self.rfile.read(2)[1]
        methods = self.rfile.read(count)
        method = 2 if login else 0
        self.wfile.write(bytes([5, method if method in methods else 255]))
        given = None
        if method == 2:
            user = self.rfile.read(self.rfile.read(2)[1]).decode()
            given = user + ":" + self.rfile.read(self.rfile.read(1)[0]).decode()
            self.wfile.write(bytes([1, 0 if given == login else 1]))
        kind = self.rfile.read(4)[3]
        if kind == 3:
            host = self.rfile.read(self.rfile.read(1)[0]).decode()
        else:
            host = socket.inet_ntop(socket.AF_INET if kind == 1 else socket.AF_INET6,
                                    self.rfile.read(4 if kind == 1 else 16))
        port = struct.unpack(">H", self.rfile.read(2))[0]
        note(f"socks {host}:{port} {given}")
        with reach(host, port) as server:
            self.wfile.write(bytes([5, 0, 0, 3, 4]) + b"here" + b"\0\0")
            join(self.connection, server)


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True


# No byte of the tunnel may be read ahead with the head of the request.
Http.rbufsize = Socks.rbufsize = 0
servers = [Server(("127.0.0.1", 0), kind) for kind in (Http, Socks)]
for one in servers:
    threading.Thread(target=one.serve_forever, daemon=True).start()
print(*(one.server_address[1] for one in servers), flush=True)
sys.stdin.read()
