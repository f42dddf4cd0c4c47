"""An internet for one test: internet.py DIRECTORY

In a network namespace of its own: an authority for every name, which writes down each question;
web servers with and without TLS; a metadata service; servers that repeat what they hear. Whoever
begins to talk to it is written down in "packets", whether there is a server or not, and a datagram
that begins with MARK is written down in "marks": what was sent before it is in "packets". The test
connects its own namespace to it. Prints its process id, waits for a line, and prints "ready"; each
further line is a command that it runs in its network. What is in DIRECTORY/files is at /files/.
"""
import ctypes
import gzip
import http.server
import json
import os
import socket
import socketserver
import signal
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.parse

CLONE_NEWNET = 0x40000000
GATEWAY = "11.0.0.1"
AUTHORITY = "11.0.0.53"
METADATA = "169.254.169.254"
NAMES = {
    "allowed.test": ["11.1.1.1"],
    "a.wild.test": ["11.1.1.2"],
    "a.b.wild.test": ["11.1.1.2"],
    "wild.test": ["11.1.1.2"],
    "evil.test": ["11.6.6.6"],
    "six.test": ["2400:1111::1"],
    "inside.test": ["10.1.2.3"],
    "loop.test": ["127.0.0.1"],
    "metadata.test": [METADATA],
    "gateway.test": ["11.0.0.2"],
    "twice.test": ["10.1.2.3", "11.1.1.1"],
    "mapped.test": ["::ffff:10.1.2.3"],
    "nat64.test": ["64:ff9b::a01:203"],
    "sixtofour.test": ["2002:a01:203::1"],
    "local6.test": ["fe80::1"],
    "turning.test": ["11.1.1.1"],
    "slow.test": ["11.1.1.1"],
    "four.test": ["127.0.0.1"],
    "large.test": ["127.0.0.1"],
    "cut.test": ["11.1.1.1"],
    "plain.test": ["11.1.1.1"],
}
# Names about which the authority misbehaves.
SILENT = "silent.test"
FAILING = "failing.test"
GARBAGE = "garbage.test"
FOREIGN = "foreign.test"
FOUR = "four.test"  # fails for IPv6
CUT = ("large.test", "cut.test")  # the answer fits in no datagram
PLAIN = "plain.test"  # EDNS makes no sense to it
MARK = b"carrel-mark "
ECHO_PORTS = (21, 25, 853, 2222, 7000, 8080)

directory = sys.argv[1]
lock = threading.Lock()
turns = 0


def note(file, text):
    with lock, open(os.path.join(directory, file), "a", encoding="utf-8", errors="replace") as out:
        out.write(text + "\n")


def run(*words):
    subprocess.run(words, check=True, cwd=directory)


def question_of(message):
    labels, at = [], 12
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    kind = struct.unpack(">H", message[at + 1:at + 3])[0]
    return ".".join(labels).lower(), kind, message[12:at + 5]


def answer_of(message, transport):
    global turns
    name, kind, question = question_of(message)
    note("queries", f"{name} {kind}")
    if name == SILENT:
        return b""
    if name == FAILING or (name == FOUR and kind == 28):
        return message[:2] + struct.pack(">HHHHH", 0x8182, 1, 0, 0, 0) + question
    if name in CUT and transport == "udp":
        return message[:2] + struct.pack(">HHHHH", 0x8380, 1, 0, 0, 0) + question
    if name == PLAIN and message[11]:
        return message[:2] + struct.pack(">HHHHH", 0x8181, 0, 0, 0, 0)
    if name == GARBAGE:
        return message[:2] + b"\xff" * 60
    addresses = NAMES.get(name, [])
    if name == "slow.test":
        time.sleep(0.7)
    if name == "turning.test":  # leads outward once, and inward from then on
        turns += 1
        addresses = addresses if turns == 1 else ["10.1.2.3"]
    if name == FOREIGN:  # the answer is about another name
        other = b"\x04evil\x04test\x00" + struct.pack(">HHIH", 1, 1, 5, 4)
        return (message[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0) + question + other +
                socket.inet_aton("11.6.6.6"))
    family = {1: socket.AF_INET, 28: socket.AF_INET6}.get(kind)
    data = []
    for address in addresses:
        if family and (":" in address) == (family == socket.AF_INET6):
            data.append(socket.inet_pton(family, address))
    code = 0 if name in NAMES else 3
    head = message[:2] + struct.pack(">HHHHH", 0x8180 | code, 1, len(data), 0, 0)
    rows = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(one)) + one for one in data)
    return head + question + rows


class Datagrams(socketserver.BaseRequestHandler):
    def handle(self):
        message, sock = self.request
        reply = answer_of(message, "udp")
        if reply:
            sock.sendto(reply, self.client_address)


class Streams(socketserver.StreamRequestHandler):
    def handle(self):
        size = struct.unpack(">H", self.rfile.read(2))[0]
        reply = answer_of(self.rfile.read(size), "tcp")
        self.wfile.write(struct.pack(">H", len(reply)) + reply)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        note("connections", "%s %d" % self.request.getsockname())
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Stalled(socketserver.BaseRequestHandler):
    """Takes connections, and nothing of what they bring."""

    def handle(self):
        threading.Event().wait()


class Web(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self):
        body = self.read_body()
        place = self.connection.getsockname()
        note("requests", json.dumps({
            "address": place[0], "port": place[1], "method": self.command, "path": self.path,
            "host": self.headers.get("Host"), "headers": dict(self.headers.items()),
            "fields": [f"{name.lower()}: {value}" for name, value in self.headers.items()],
            "body": len(body)}))
        if self.path == "/redirect":
            self.send_response(302)
            self.send_header("Location", "http://evil.test/")
            text = b""
        elif self.path == "/socket":
            self.send_response(101)
            self.send_header("Connection", "Upgrade")
            self.send_header("Upgrade", "websocket")
            self.end_headers()
            while data := self.connection.recv(4096):
                self.connection.sendall(data)
            self.close_connection = True
            return
        elif self.path == "/redirect-tls":
            self.send_response(302)
            self.send_header("Location", "https://evil.test/echo")
            text = b""
        elif self.path.startswith("/redirect/"):
            self.send_response(302)
            self.send_header("Location", urllib.parse.unquote(self.path[len("/redirect/"):]))
            text = b""
        elif self.path.startswith("/drip/"):
            self.drip(int(self.path.split("/")[2]))
            return
        elif self.path.startswith("/files/"):
            self.send_file()
            return
        elif self.path.startswith("/echo"):
            self.echo()
            return
        elif self.path.startswith("/bytes/"):
            self.send_response(200)
            text = b"x" * int(self.path.split("/")[2])
        else:
            self.send_response(200)
            text = f"hello from {self.headers.get('Host')} {self.path}\n".encode()
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def drip(self, pieces):
        """An answer that takes a tenth of a second for each piece."""
        self.send_response(200)
        self.send_header("Content-Length", str(pieces * 1000))
        self.end_headers()
        for _ in range(pieces):
            self.wfile.write(b"x" * 1000)
            time.sleep(0.1)

    def send_file(self):
        path = os.path.join(directory, urllib.parse.unquote(self.path[1:].split("?")[0]))
        if os.path.isdir(path):
            path = os.path.join(path, "index.html")
        try:
            with open(path, "rb") as file:
                text = file.read()
            self.send_response(200)
        except OSError:
            text = b"there is no such file\n"
            self.send_response(404)
        kind = "text/html" if path.endswith(".html") else "application/octet-stream"
        self.send_header("Content-Type", "application/json" if path.endswith(".json") else kind)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def echo(self):
        """Everything that was sent, in the body and in a header of the answer."""
        kind = self.path[len("/echo"):]
        text = json.dumps(dict(self.headers.items())).encode()
        self.send_response(200)
        self.send_header("X-Heard", self.headers.get("Authorization", "nothing"))
        if kind == "/gzip":
            text = gzip.compress(text)
            self.send_header("Content-Encoding", "gzip")
        if kind == "/chunked":
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for at in range(0, len(text), 3):
                piece = text[at:at + 3]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            return
        if kind == "/close":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = answer

    def log_message(self, *_):
        pass


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 512


class Server6(Server):
    address_family = socket.AF_INET6


class Datagram(socketserver.ThreadingMixIn, socketserver.UDPServer):
    daemon_threads = True


def make_certificates():
    names = ",".join("DNS:" + name for name in [*NAMES, "*.wild.test"])
    run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "ca.key", "-out", "ca.pem", "-days", "2", "-subj", "/CN=test internet",
        "-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=keyCertSign")
    run("openssl", "req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
        "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=server")
    with open(os.path.join(directory, "extensions"), "w", encoding="ascii") as out:
        out.write(f"subjectAltName={names}\n")
    run("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
        "-CAcreateserial", "-out", "server.pem", "-days", "2", "-extfile", "extensions")


def watch():
    """Notes the first packet of whatever arrives from outside."""
    # Of TCP over IPv4 only what has SYN and not ACK; everything else.
    program = [(0x28, 0, 0, 12), (0x15, 0, 7, 0x800), (0x30, 0, 0, 23), (0x15, 0, 5, 6),
               (0xb1, 0, 0, 14), (0x50, 0, 0, 27), (0x54, 0, 0, 0x12), (0x15, 1, 0, 2),
               (0x6, 0, 0, 0), (0x6, 0, 0, 0x40000)]
    code = b"".join(struct.pack("HBBI", *one) for one in program)
    buffer = ctypes.create_string_buffer(code)
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x3))
    tap.setsockopt(socket.SOL_SOCKET, 26, struct.pack("HxxxxxxQ", len(program),
                                                      ctypes.addressof(buffer)))
    tap.setsockopt(socket.SOL_SOCKET, 33, 8 << 20)  # SO_RCVBUFFORCE
    tap.bind(("inside", 0))
    names = {1: "icmp", 6: "tcp", 17: "udp", 58: "icmp6"}
    threading.Thread(target=watch_with, args=(tap, names), daemon=True).start()


def watch_with(tap, names):
    while True:
        data, place = tap.recvfrom(2048)
        if place[2] == socket.PACKET_OUTGOING or len(data) < 38:
            continue
        kind = struct.unpack(">H", data[12:14])[0]
        if kind == 0x800:
            protocol, at = data[23], 14 + 4 * (data[14] & 15)
            target = socket.inet_ntop(socket.AF_INET, data[30:34])
        elif kind == 0x86dd:
            protocol, at = data[20], 54
            target = socket.inet_ntop(socket.AF_INET6, data[38:54])
            if protocol in (0, 58) or (protocol == 6 and data[at + 13] & 0x12 != 2):
                continue  # neighbours; connections that exist
        else:
            continue
        if protocol == 17 and data[at + 8:].startswith(MARK):
            note("marks", data[at + 8 + len(MARK):].decode("ascii", "replace"))
            continue
        port = struct.unpack(">H", data[at + 2:at + 4])[0] if protocol in (6, 17) else 0
        note("packets", f"{names.get(protocol, protocol)} {target} {port}")


def obey():
    """Runs what the test asks for, until there is nobody to ask."""
    children = []
    for line in sys.stdin:
        children.append(subprocess.Popen(line, shell=True, cwd=directory, start_new_session=True,
                                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL))
    for child in children:
        try:
            os.killpg(child.pid, signal.SIGKILL)
        except OSError:
            pass
        child.wait()


# Certificates that nobody should take: of nobody, of the past, and of another server.
BAD_PORTS = {8441: "self", 8442: "expired", 8443: "other"}


def make_bad_certificates():
    run("openssl", "req", "-x509", "-key", "server.key", "-out", "self.pem", "-days", "2",
        "-subj", "/CN=allowed.test", "-addext", "subjectAltName=DNS:allowed.test")
    with open(os.path.join(directory, "others"), "w", encoding="ascii") as out:
        out.write("subjectAltName=DNS:evil.test\n")
    for name, days, extensions in (("expired", "-1", "extensions"), ("other", "2", "others")):
        run("openssl", "x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-out", name + ".pem", "-days", days, "-extfile", extensions)


def secured(server, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(directory, certificate + ".pem"),
                            os.path.join(directory, "server.key"))
    server.socket = context.wrap_socket(server.socket, server_side=True,
                                        do_handshake_on_connect=False)
    return server


def serve(server):
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main():
    os.makedirs(directory, exist_ok=True)
    for file in ("queries", "requests", "connections", "packets", "marks"):
        open(os.path.join(directory, file), "a", encoding="ascii").close()
    devnull = os.open(os.devnull, os.O_RDWR)
    os.dup2(devnull, 2)
    make_certificates()
    make_bad_certificates()
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNET) != 0:
        sys.exit("unshare")
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    run("ip", "link", "set", "lo", "up")
    run("ip", "link", "set", "inside", "up")
    run("ip", "addr", "add", GATEWAY + "/24", "dev", "inside")
    run("ip", "-6", "addr", "add", "2400:1111:ffff::1/64", "dev", "inside", "nodad")
    addresses = {AUTHORITY, METADATA, "8.8.8.8", "10.1.2.3"}
    for some in NAMES.values():
        addresses.update(some)
    wrapping = {"::ffff:10.1.2.3", "64:ff9b::a01:203", "2002:a01:203::1", "fe80::1"}
    for address in addresses - wrapping - {"127.0.0.1", "11.0.0.2"}:
        family = ["-6"] if ":" in address else []
        length = "/128" if ":" in address else "/32"
        run("ip", *family, "addr", "add", address + length, "dev", "lo")
    serve(Datagram((AUTHORITY, 53), Datagrams))  # elsewhere it would answer from another address
    serve(Server(("0.0.0.0", 53), Streams))
    for port in ECHO_PORTS:
        serve(Server(("0.0.0.0", port), Echo))
    serve(Server(("0.0.0.0", 9), Stalled))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(directory, "server.pem"),
                            os.path.join(directory, "server.key"))
    for kind, any_address in ((Server, "0.0.0.0"), (Server6, "::")):
        if kind is Server6:
            kind.server_bind = bind_six_only
        serve(kind((any_address, 80), Web))
        secure = kind((any_address, 443), Web)
        secure.socket = context.wrap_socket(secure.socket, server_side=True,
                                            do_handshake_on_connect=False)
        serve(secure)
    watch()
    for port, certificate in BAD_PORTS.items():
        serve(secured(Server(("0.0.0.0", port), Web), certificate))
    serve(secured(Server(("0.0.0.0", 9443), Web), "server"))
    print("ready", flush=True)
    obey()


def bind_six_only(self):
    self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    self.socket.bind(self.server_address)
    self.server_address = self.socket.getsockname()


main()
