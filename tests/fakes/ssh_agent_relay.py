"""An ssh-agent socket of somebody else's making: what it is told it passes on to a real agent, as sshd does for ssh -A.

Run as a process whose name is the point: `argv: SOCKET REAL_SOCKET`. Prints a line once it listens.
"""

from __future__ import annotations

import socket
import sys
import threading


def relay(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(65536):
        target.sendall(data)
    target.shutdown(socket.SHUT_WR)


def serve(connection: socket.socket, real: str) -> None:
    with connection, socket.socket(socket.AF_UNIX) as agent:
        agent.connect(real)
        back = threading.Thread(target=relay, args=(agent, connection), daemon=True)
        back.start()
        relay(connection, agent)
        back.join()


def main(path: str, real: str) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        print("listening", flush=True)
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=serve, args=(connection, real), daemon=True).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
