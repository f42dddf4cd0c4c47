"""The API against its own document, and under load.

check.py PROGRAM SCHEMATHESIS SECONDS
"""

import http.client
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

from daemon import Client, Daemon
from place import Place, become_reaper

SLOW_CLIENTS = 100
CHECKS = ("not_a_server_error,status_code_conformance,content_type_conformance,"
          "response_schema_conformance,negative_data_rejection,ignored_auth,unsupported_method")
# Those whose answers have no end, and those after which there is nothing left to ask.
ENDLESS = ("followEvents", "openTerminal")
ENDING = ("followCommand", "deleteSandbox", "stopSandbox", "pauseSandbox", "putLease")
EXAMPLES = os.environ.get("CARREL_EXAMPLES", "100")


def fail(place, what):
    print(f"FAILED: {what}")
    print(f"the state is in {place.home}")
    place.end_processes()
    sys.exit(1)


def port_of(place):
    text = (place.root / "daemon.log").read_text()
    return int(re.findall(r"127\.0\.0\.1:(\d+)", text)[-1])


def ask_what_it_says(place, schemathesis, port, token, box):
    """Every operation with many bodies and queries, good and bad: each answer is as documented.
    Most are about a sandbox that is there; those that would end it or have it rest, about none."""
    for number, parameters in enumerate((f'"path.id" = "{box}"', "")):
        work = place.root / f"schema{number}"
        work.mkdir()
        (work / "schemathesis.toml").write_text("[parameters]\n" + parameters + "\n")
        chosen = []
        if parameters:
            for name in ENDLESS + ENDING:
                chosen += ["--exclude-operation-id", name]
        else:
            for name in ENDING:
                chosen += ["--include-operation-id", name]
        done = subprocess.run(
            [schemathesis, "run", f"http://127.0.0.1:{port}/v1/openapi.json",
             "--header", f"Authorization: Bearer {token}", "--checks", CHECKS, *chosen,
             "--max-examples", EXAMPLES, "--request-timeout", "60", "--generation-deterministic",
             "--no-color", "--warnings", "off", "--phases", "examples,coverage,fuzzing"],
            cwd=work, check=False)
        if done.returncode != 0:
            fail(place, "the API is not what its document says")


def load(place, daemon, port, token, seconds):
    """As many requests as there can be, while others take their time: none fails."""
    slow = []
    for number in range(SLOW_CLIENTS):
        one = socket.create_connection(("127.0.0.1", port))
        one.sendall(b"GET /v1/health HTTP/1.1\r\nhost: 127.0.0.1"[: 10 + number % 30])
        slow.append(one)
    before = daemon.resident()
    done = subprocess.run(
        ["wrk", "-t2", "-c50", f"-d{seconds}s", "-H", f"authorization: Bearer {token}",
         f"http://127.0.0.1:{port}/v1/sandboxes"], capture_output=True, text=True, check=False)
    print(done.stdout, flush=True)
    if done.returncode != 0 or "Non-2xx" in done.stdout or "Socket errors" in done.stdout:
        fail(place, f"requests failed under load: {done.stderr}")
    time.sleep(11)  # heads have ten seconds
    cut = 0
    for one in slow:
        one.settimeout(0.2)
        try:
            while one.recv(4096):
                pass
            cut += 1
        except (TimeoutError, ConnectionResetError) as error:
            cut += isinstance(error, ConnectionResetError)
        one.close()
    if cut != SLOW_CLIENTS:
        fail(place, f"only {cut} of {SLOW_CLIENTS} slow clients were cut off")
    if daemon.resident() > before + (64 << 20):
        fail(place, f"the daemon grew from {before >> 20} to {daemon.resident() >> 20} MiB")


def main():
    program, schemathesis, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    become_reaper()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    place = Place(program, os.geteuid() == 0)
    tokens = str(place.home / "tokens")
    status, token, error = place.carrel("serve", "--new-token", "tests", "--token-file", tokens)
    if status != 0:
        fail(place, error)
    token = token.strip()
    daemon = Daemon(place, "--listen", f"unix:{place.home}/run/api.sock,tcp:127.0.0.1:0",
                    "--token-file", tokens)
    port = port_of(place)
    client = Client(http.client.HTTPConnection("127.0.0.1", port), token)
    box = client.want(201, "POST", "/v1/sandboxes", {"name": "asked"})["id"]
    ask_what_it_says(place, schemathesis, port, token, box)
    if shutil.which("wrk"):
        load(place, daemon, port, token, seconds)
    daemon.stop()
    place.carrel("rm", "--all", "--force")
    place.close()
    print("the API is what its document says")


if __name__ == "__main__":
    main()
