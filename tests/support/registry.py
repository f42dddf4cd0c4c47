"""Registries on loopback for the tests of `carrel image pull`.

    registry.py debian DIRECTORY BUSYBOX [none|token|basic|tls]
    registry.py hostile DIRECTORY BUSYBOX

The first starts Debian's docker-registry with its data in DIRECTORY and pushes images to it; the
second is a server that misbehaves, differently for each repository. Either prints one line of JSON
with its port and the digests of its images, and ends with its standard input.
"""

import base64
import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import random
import socket
import ssl
import subprocess
import sys
import tarfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
import warnings

OCI = "application/vnd.oci.image."
LAYER = OCI + "layer.v1.tar+gzip"
MANIFEST = OCI + "manifest.v1+json"
INDEX = OCI + "index.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
USER, PASSWORD = "tester", "s3cret"
BASIC = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


def sha(data):
    return "sha256:" + hashlib.sha256(data).hexdigest()


def member(name, data=b"", mode=0o644, **more):
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    for key, value in more.items():
        setattr(info, key, value)
    return info, data


def layer(*members):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    return gzip.compress(out.getvalue(), 1, mtime=0)


class Image:
    """Layers, a configuration and a manifest, as bytes."""

    def __init__(self, layers, marker="", architecture=None, **config):
        machine = {"x86_64": "amd64"}.get(os.uname().machine, "arm64")
        self.layers = layers
        self.config = json.dumps(
            {
                "architecture": architecture or machine,
                "os": "linux",
                "config": {
                    "Env": ["PATH=/bin:/app", "GREETING=" + marker],
                    "WorkingDir": "/app",
                    "Entrypoint": ["/app/main"],
                    **config,
                },
                "rootfs": {"type": "layers", "diff_ids": [sha(gzip.decompress(l)) for l in layers]},
            }
        ).encode()
        self.document = {
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": self.described(self.config, OCI + "config.v1+json"),
            "layers": [self.described(l, LAYER) for l in layers],
        }

    @staticmethod
    def described(data, kind):
        return {"mediaType": kind, "digest": sha(data), "size": len(data)}

    @property
    def manifest(self):
        return json.dumps(self.document).encode()


def busybox_layer(path):
    links = [
        member("bin/" + name, type=tarfile.SYMTYPE, linkname="busybox")
        for name in ("sh", "cat", "ls", "echo", "id", "pwd")
    ]
    return layer(
        member("bin", type=tarfile.DIRTYPE, mode=0o755),
        member("bin/busybox", pathlib.Path(path).read_bytes(), 0o755),
        *links,
        member("etc/marker", b"low\n"),
        member("app/main", b'#!/bin/sh\necho main "$@" in $(pwd)\n', 0o755),
    )


def top_layer(marker):
    return layer(member("etc/marker", marker.encode() + b"\n"))


def answering(port, seconds=20):
    for _ in range(seconds * 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    sys.exit("the registry does not answer")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


# --- Debian's registry --------------------------------------------------------------------------


class Pusher:
    def __init__(self, base, authorization=None, context=None):
        self.base, self.authorization, self.context = base, authorization, context

    def send(self, method, url, data=None, kind="application/octet-stream"):
        if not url.startswith("http"):
            url = self.base + url
        request = urllib.request.Request(url, data=data, method=method)
        request.add_header("Content-Type", kind)
        if self.authorization:
            request.add_header("Authorization", self.authorization)
        return urllib.request.urlopen(request, context=self.context)

    def blob(self, repository, data):
        where = self.send("POST", f"/v2/{repository}/blobs/uploads/", b"").headers["Location"]
        mark = "&" if "?" in where else "?"
        self.send("PUT", f"{where}{mark}digest={sha(data)}", data)

    def image(self, repository, tag, image):
        for data in [*image.layers, image.config]:
            self.blob(repository, data)
        self.send("PUT", f"/v2/{repository}/manifests/{tag}", image.manifest, MANIFEST)
        return sha(image.manifest)

    def index(self, repository, tag, images, kind):
        described = []
        for platform, image in images:
            self.image(repository, sha(image.manifest), image)
            described.append({**Image.described(image.manifest, MANIFEST), "platform": platform})
        data = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": described}).encode()
        self.send("PUT", f"/v2/{repository}/manifests/{tag}", data, kind)
        return sha(data)


def run(*command):
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def make_certificate(directory):
    pem, key = directory / "server.pem", directory / "server.key"
    run(
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout", key, "-out", pem,
    )
    return pem, key


class TokenServer(http.server.BaseHTTPRequestHandler):
    """Signs tokens for whoever has the password, with the key of the certificate."""

    def do_GET(self):
        query = urllib.parse.parse_qs(urllib.parse.urlparse(self.path).query)
        if self.headers.get("Authorization") != BASIC:
            self.send_error(401)
            return
        kind, name, actions = query["scope"][0].rsplit(":", 2)[-3:]
        token = self.server.sign(query["service"][0], kind, name, actions.split(","))
        body = json.dumps({"token": token}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def token_signer(directory):
    pem, key = make_certificate(directory)
    der = ssl.PEM_cert_to_DER_cert(pem.read_text())

    def sign(service, kind, name, actions):
        now = int(time.time())
        header = {"typ": "JWT", "alg": "RS256", "x5c": [base64.b64encode(der).decode()]}
        claims = {
            "iss": "carrel-test", "sub": USER, "aud": service, "jti": str(random.random()),
            "exp": now + 300, "nbf": now - 10, "iat": now,
            "access": [{"type": kind, "name": name, "actions": actions}],
        }
        text = ".".join(encoded(json.dumps(part).encode()) for part in (header, claims))
        signature = subprocess.run(
            ["openssl", "dgst", "-sha256", "-sign", key], input=text.encode(),
            capture_output=True, check=True,
        ).stdout
        return text + "." + encoded(signature)

    return pem, sign


def debian_registry(directory, busybox, how):
    port = free_port()
    scheme, context, authorization = "http", None, None
    settings = [
        "version: 0.1", "log: {level: error, accesslog: {disabled: true}}",
        f"storage: {{filesystem: {{rootdirectory: {directory}/data}}}}",
    ]
    listen = f"http: {{addr: '127.0.0.1:{port}', secret: test"
    sign = None
    if how == "basic":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import crypt  # goes away with Python 3.13
        hashed = crypt.crypt(PASSWORD, crypt.mksalt(crypt.METHOD_BLOWFISH, rounds=16))
        (directory / "htpasswd").write_text(f"{USER}:{hashed}\n")
        settings.append(f"auth: {{htpasswd: {{realm: test, path: {directory}/htpasswd}}}}")
        authorization = BASIC
    elif how == "token":
        pem, sign = token_signer(directory)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), TokenServer)
        server.sign = sign
        threading.Thread(target=server.serve_forever, daemon=True).start()
        settings.append(
            f"auth: {{token: {{realm: 'http://127.0.0.1:{server.server_port}/token', "
            f"service: test-registry, issuer: carrel-test, rootcertbundle: {pem}}}}}"
        )
    elif how == "tls":
        pem, key = make_certificate(directory)
        listen += f", tls: {{certificate: {pem}, key: {key}}}"
        scheme, context = "https", ssl.create_default_context(cafile=pem)
    (directory / "config.yml").write_text("\n".join([*settings, listen + "}", ""]))
    process = subprocess.Popen(
        ["docker-registry", "serve", directory / "config.yml"], stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL, stderr=open(directory / "log", "w", encoding="utf-8"),
    )
    try:
        answering(port)
        pusher = Pusher(f"{scheme}://localhost:{port}", authorization, context)
        low = busybox_layer(busybox)
        digests = {}

        def push(action, repository, *arguments):
            if sign:
                token = sign("test-registry", "repository", repository, ["pull", "push"])
                pusher.authorization = "Bearer " + token
            digests[repository] = action(repository, *arguments)

        push(pusher.image, "team/tool", "v1", Image([low, top_layer("one")], "one"))
        push(pusher.image, "team/tool2", "latest", Image([low, top_layer("two")], "two"))
        here = Image([low, top_layer("here")], "here")
        other = Image([top_layer("other")], "other", architecture="s390x")
        platforms = [
            ({"os": "linux", "architecture": "s390x"}, other),
            ({"os": "unknown", "architecture": "unknown"}, other),
            ({"os": "linux", "architecture": json.loads(here.config)["architecture"]}, here),
        ]
        push(pusher.index, "many", "latest", platforms, INDEX)
        push(pusher.index, "list", "latest", platforms, DOCKER_LIST)
        push(pusher.index, "foreign", "latest", platforms[:2], INDEX)
        digests["many-manifest"] = sha(here.manifest)
        print(json.dumps({"port": port, "digests": digests}), flush=True)
        # A line moves the tag v1 to another image.
        for _ in sys.stdin:
            push(pusher.image, "team/tool", "v1", Image([low, top_layer("moved")], "moved"))
            print(json.dumps({"digest": digests["team/tool"]}), flush=True)
    finally:
        process.kill()
        process.wait()


# --- one that misbehaves ------------------------------------------------------------------------


def hostile_images(busybox):
    """Repository -> (manifest, {digest: bytes that are sent for it}, content type)."""
    low = busybox_layer(busybox)
    good = Image([low, top_layer("good")])
    images = {}

    def add(name, document=None, blobs=None, image=good, kind=MANIFEST):
        held = {sha(data): data for data in [*image.layers, image.config]}
        held.update(blobs or {})
        images[name] = (json.dumps(document or image.document).encode(), held, kind)

    def changed(**more):
        return {**json.loads(good.manifest), **more}

    flipped = low[:-20] + bytes([low[-20] ^ 1]) + low[-19:]
    add("good")
    add("slow")
    add("redirected")
    add("wrong-layer", blobs={sha(low): flipped})
    add("wrong-config", blobs={sha(good.config): good.config + b" "})
    add("longer-layer", blobs={sha(low): low + b"x"})
    add("shorter-layer", blobs={sha(low): low[:-1]})
    add("other-digest")
    add("no-layers", changed(layers="x"))
    add("not-json")
    images["not-json"] = (b"[" * 100_000, {}, MANIFEST)
    many = [Image.described(top_layer(str(i)), LAYER) for i in range(1000)]
    add("thousand-layers", changed(layers=many))
    add("huge-layer", changed(layers=[{**Image.described(low, LAYER), "size": 1 << 50}]))
    add("negative-layer", changed(layers=[{**Image.described(low, LAYER), "size": -1}]))
    add("path-layer", changed(layers=[{**Image.described(low, LAYER), "digest": "sha256:../../x"}]))
    remote = {**Image.described(low, LAYER), "urls": ["http://127.0.0.1:1/"]}
    remote["mediaType"] = "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip"
    add("foreign-layer", changed(layers=[remote]))
    bomb, _ = member("bomb", b"")
    bomb.size = 1 << 50
    claim = gzip.compress(bomb.tobuf(tarfile.GNU_FORMAT) + b"\0" * 4096)
    add("bomb", image=Image([low, claim]))
    add("escape", image=Image([low, layer(member("../../escaped", b"x"))]))
    add("whiteout", image=Image([low, layer(member(".wh..."))]))
    endless = {"schemaVersion": 2, "manifests": []}
    for _ in range(6):
        data = json.dumps(endless).encode()
        images["endless-index"] = (data, dict(images.get("endless-index", (b"", {}, ""))[1]), INDEX)
        images["endless-index"][1][sha(data)] = data
        endless = {"schemaVersion": 2, "manifests": [Image.described(data, INDEX)]}
    images["endless-index"] = (json.dumps(endless).encode(), images["endless-index"][1], INDEX)
    return images


class Hostile(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        log = self.server.requests
        log.append([self.path, self.headers.get("Range"), self.headers.get("Authorization")])
        (self.server.directory / "requests.json").write_text(json.dumps(log))
        parts = self.path.split("/")
        if self.path == "/v2/":
            self.answer(200, b"{}")
            return
        name, kind, what = parts[-3], parts[-2], parts[-1]
        if name == "secret" or (name == "redirected" and "cdn" not in self.path):
            if self.headers.get("Authorization") != BASIC:
                self.answer(401, WWW_Authenticate='Basic realm="x"')
                return
        if name == "rude":
            message = {"errors": [{"code": "X", "message": "\x1b[31mrude\n" + "x" * 5000}]}
            self.answer(403, json.dumps(message).encode())
            return
        if name == "token-thief":
            self.answer(401, WWW_Authenticate='Bearer realm="http://192.0.2.1/t",service="x"')
            return
        if name not in self.server.images:
            self.answer(404, b'{"errors": [{"code": "NAME_UNKNOWN", "message": "unknown"}]}')
            return
        manifest, blobs, media = self.server.images[name]
        if kind == "manifests":
            self.answer(200, blobs.get(what, manifest), Content_Type=media)
        elif what not in blobs:
            self.answer(404)
        elif name == "redirected" and "cdn" not in self.path:
            # Another origin: the same server by another name.
            where = f"http://localhost:{self.server.server_port}/cdn/redirected/blobs/{what}"
            self.answer(307, Location=where)
        else:
            self.blob(blobs[what], name)

    def blob(self, data, name):
        begin = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        # A third at a time of what is large, and then the connection breaks.
        if name == "slow" and len(data) > 100_000:
            self.wfile.write(data[begin : begin + len(data) // 3])
            self.wfile.flush()
            if (self.server.directory / "stalls").exists():
                time.sleep(60)
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.wfile.write(data[begin:])

    def log_message(self, *_):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_):
        pass


def hostile_registry(directory, busybox):
    server = QuietServer(("127.0.0.1", 0), Hostile)
    server.directory = directory
    server.requests = []
    server.images = hostile_images(busybox)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port, "names": sorted(server.images)}), flush=True)
    sys.stdin.read()


def main():
    which, directory, busybox = sys.argv[1:4]
    path = pathlib.Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    if which == "debian":
        debian_registry(path, busybox, sys.argv[4])
    else:
        hostile_registry(path, busybox)


if __name__ == "__main__":
    main()
