"""What attacks on the network are written with; comes before the text of each.

An attempt prints "through NAME" if what it returns is true, and "held NAME: WHY" otherwise. Text
that came from a server of the test's internet begins with "hello from"; echo servers repeat.
"""
import contextlib
import json
import os
import socket
import ssl
import struct
import sys
import threading
import time
import urllib.request

PATIENCE = 6 * SLOWNESS  # comes before this text, from support/patience.h
TOKEN = b"token-4711"


def attempt(name, action, *words, **named):
    try:
        result = action(*words, **named)
        print(f"through {name}" if result else f"held {name}: {result!r}", flush=True)
    except Exception as error:
        print(f"held {name}: {error!r}", flush=True)


def spoken_to(sock, data, patience=PATIENCE):
    """Sends the bytes and returns everything that comes back until the end or a silence."""
    sock.settimeout(patience)
    if data:
        sock.sendall(data)
    result = b""
    try:
        while piece := sock.recv(65536):
            result += piece
            if b"hello from" in result or TOKEN in result:
                sock.settimeout(0.2)
    except socket.timeout:
        pass
    except ConnectionResetError:
        if not result:
            raise
    return result


def said(host, port, data, patience=PATIENCE):
    with socket.create_connection((host, port), patience) as sock:
        return spoken_to(sock, data, patience)


def echoes(host, port=7000):
    """Whether a server that repeats what it hears is reached."""
    return TOKEN in said(host, port, TOKEN, 3 * SLOWNESS)


def request(host, path="/", more="", version="1.1", method="GET"):
    return (f"{method} {path} HTTP/{version}\r\nHost: {host}\r\nConnection: close\r\n{more}\r\n"
            ).encode("latin-1")


def answers(host, port=80, data=None):
    """Whether a web server of the internet answers those bytes."""
    return b"hello from" in said(host, port, request(host) if data is None else data)


def unverified():
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def secured(host, name, port=443, sock=None):
    """Whether a web server answers over TLS in which `name` is asked for; None: no name."""
    sock = sock or socket.create_connection((host, port), PATIENCE)
    with unverified().wrap_socket(sock, server_hostname=name) as tls:
        return b"hello from" in spoken_to(tls, request(name or host))


def fetch(url):
    return b"hello from" in urllib.request.urlopen(url, timeout=PATIENCE,
                                                   context=unverified()).read()


def question(name, kind=1, extra=b"", number=7, count_extra=0):
    labels = name if isinstance(name, list) else name.rstrip(".").split(".")
    wire = b"".join(bytes([len(one)]) + one.encode("latin-1") for one in labels) + b"\0"
    return (struct.pack(">HHHHHH", number, 0x100, 1, 0, 0, count_extra) + wire +
            struct.pack(">HH", kind, 1) + extra)


def looked_up(server, message, port=53, stream=False, patience=3):
    """The code of the answer and how many rows it has."""
    family = socket.AF_INET6 if ":" in server else socket.AF_INET
    if stream:
        with socket.socket(family, socket.SOCK_STREAM) as sock:
            sock.settimeout(patience)
            sock.connect((server, port))
            sock.sendall(struct.pack(">H", len(message)) + message)
            reply = sock.recv(4096)[2:]
    else:
        with socket.socket(family, socket.SOCK_DGRAM) as sock:
            sock.settimeout(patience)
            sock.connect((server, port))
            sock.send(message)
            reply = sock.recv(4096)
    return reply[3] & 15, struct.unpack(">H", reply[6:8])[0]


def finds(server, name, kind=1, **how):
    """Whether the lookup has an address as its answer."""
    code, rows = looked_up(server, question(name, kind), **how)
    return code == 0 and rows > 0


def proxied(data, port=3128):
    """The first line of what the proxy says to these bytes, and all of it."""
    reply = said("127.0.0.1", port, data, 3)
    return reply.split(b"\r\n")[0], reply


def tunnelled(target, more=""):
    """Whether the proxy opens a tunnel there."""
    line, _ = proxied(f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{more}\r\n".encode("latin-1"))
    return b" 200 " in line


def socks_echoes(name, port):
    """Whether a server that repeats what it hears is reached through the SOCKS5 server."""
    with socket.create_connection(("127.0.0.1", 3128), 3) as sock:
        return socks(name, port, sock=sock) == 0 and TOKEN in spoken_to(sock, TOKEN, 3)


def socks(name, port, command=1, kind=3, sock=None):
    """The code of the SOCKS5 server's answer to a request for `name`, which is bytes; None: none."""
    with contextlib.nullcontext(sock) if sock else socket.create_connection(
            ("127.0.0.1", 3128), 3) as sock:
        sock.settimeout(3)
        sock.sendall(b"\5\1\0")
        if sock.recv(2) != b"\5\0":
            return None
        size = bytes([len(name)]) if kind == 3 else b""
        sock.sendall(bytes([5, command, 0, kind]) + size + name + struct.pack(">H", port))
        reply = sock.recv(10)
        return reply[1] if len(reply) > 1 else None


