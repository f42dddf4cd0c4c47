"""A resolver over HTTPS: doh.py AUTHORITY FILE [foreign]

AUTHORITY is the directory of internet.py, whose authority signs the certificate for 127.0.0.1; with
"foreign", one that nobody trusts does. Prints its port, and writes down what it was asked for.
"""
import http.server
import os
import socket
import ssl
import struct
import subprocess
import sys
import tempfile

NAMES = {"allowed.test": "11.1.1.1", "inside.test": "10.1.2.3"}
authority, record = sys.argv[1:3]
foreign = len(sys.argv) > 3


def make_certificate(place):
    def run(*words):
        subprocess.run(words, check=True, cwd=place, stderr=subprocess.DEVNULL)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
    signer = place if foreign else authority
    if foreign:
        run("openssl", "req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-days", "2",
            "-subj", "/CN=nobody")
    run("openssl", "req", *key, "-keyout", "doh.key", "-out", "doh.csr", "-subj", "/CN=resolver")
    with open(os.path.join(place, "names"), "w", encoding="ascii") as out:
        out.write("subjectAltName=IP:127.0.0.1\n")
    run("openssl", "x509", "-req", "-in", "doh.csr", "-CA", os.path.join(signer, "ca.pem"),
        "-CAkey", os.path.join(signer, "ca.key"), "-CAcreateserial", "-CAserial", "doh.srl",
        "-out", "doh.pem", "-days", "2", "-extfile", "names")


def answer_of(message):
    labels, at = [], 12
    while message[at]:
        labels.append(message[at + 1:at + 1 + message[at]].decode("latin-1"))
        at += 1 + message[at]
    name, kind = ".".join(labels).lower(), struct.unpack(">H", message[at + 1:at + 3])[0]
    with open(record, "a", encoding="utf-8") as out:
        out.write(f"{name} {kind}\n")
    data = [socket.inet_aton(NAMES[name])] if name in NAMES and kind == 1 else []
    head = message[:2] + struct.pack(">HHHHH", 0x8180 | (0 if name in NAMES else 3), 1, len(data),
                                     0, 0)
    rows = b"".join(struct.pack(">HHHIH", 0xC00C, kind, 1, 5, len(one)) + one for one in data)
    return head + message[12:at + 5] + rows


class Resolver(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        reply = answer_of(self.rfile.read(int(self.headers["Content-Length"])))
        good = (self.path == "/dns-query" and
                self.headers["Content-Type"] == "application/dns-message")
        self.send_response(200 if good else 415)
        self.send_header("Content-Type", "application/dns-message")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


with tempfile.TemporaryDirectory() as directory:
    make_certificate(directory)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.path.join(directory, "doh.pem"), os.path.join(directory, "doh.key"))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Resolver)
server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
print(server.server_address[1], flush=True)
server.serve_forever()
