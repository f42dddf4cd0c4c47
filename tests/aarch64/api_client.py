"""Has the API at a unix socket run one command, and prints the answer: api_client.py SOCKET."""

import socket
import sys
import time

BODY = b'{"command": "echo $((6*7))"}'
REQUEST = (
    b"POST /v1/run HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(BODY)
)


def connected(path):
    """A connection to a daemon that may still be starting."""
    deadline = time.monotonic() + 120
    while True:
        server = socket.socket(socket.AF_UNIX)
        server.settimeout(120)
        try:
            server.connect(path)
            return server
        except (FileNotFoundError, ConnectionRefusedError):
            server.close()
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main():
    with connected(sys.argv[1]) as server:
        server.sendall(REQUEST + BODY)
        answer = b""
        while more := server.recv(65536):
            answer += more
    print(answer.decode())


if __name__ == "__main__":
    main()
