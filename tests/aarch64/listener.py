"""Says a word to whoever connects, at every address of the emulated machine, port 8080."""

import socket

server = socket.create_server(("0.0.0.0", 8080))
while True:
    client, _ = server.accept()
    client.sendall(b"reached\n")
    client.close()
