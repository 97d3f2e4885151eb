"""Emulate the hosts of one attempt of a job: a network bridge, and a container of Linux namespaces for each host.

    python -S cluster.py SPECIFICATION.json

containers.py writes the specification. All processes, mounts and network devices belong to namespaces that end with
this process, and this process ends with its standard input. So nothing remains, however the tests end.

It reads the lines `term HOST` and `kill HOST`, and writes `started` and `ended HOST CODE`.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import sys
from typing import Any, NoReturn

import namespaces

BRIDGE = "jobs0"


def main(path: str) -> int:
    with open(path, encoding="utf-8") as file:
        specification = json.load(file)
    namespaces.unshare(namespaces.NEW_PROCESSES | namespaces.NEW_MOUNTS | namespaces.NEW_NETWORK | namespaces.NEW_UTS)
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        return os.waitstatus_to_exitcode(status) % 256
    # Process 1 of the cluster: all other processes end with it.
    namespaces.die_with_parent()
    namespaces.mount(None, "/", flags=namespaces.RECURSIVE | namespaces.PRIVATE)
    namespaces.mount("proc", "/proc", "proc")
    run(specification)
    os._exit(0)


def run(specification: dict[str, Any]) -> None:
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{specification['gateway']}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    hand_out_listener(specification)

    ended, wake = socket.socketpair()
    for end in (ended, wake):
        end.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    hosts = {start(host, number): host["name"] for number, host in enumerate(specification["hosts"])}
    write_line("started")
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while hosts:
            ready = [key.fileobj for key, _ in selector.select()]
            if ended in ready:
                ended.recv(4096)
            if sys.stdin in ready:
                commands = os.read(0, 4096).decode()
                if not commands:
                    return  # the tests have ended
                for line in commands.splitlines():
                    verb, name = line.split()
                    for process, host in hosts.items():
                        if host == name:
                            os.kill(process, signal.SIGKILL if verb == "kill" else signal.SIGTERM)
            while True:
                try:
                    process, status = os.waitpid(-1, os.WNOHANG)
                except ChildProcessError:
                    return
                if not process:
                    break
                if process in hosts:
                    code = os.waitstatus_to_exitcode(status)
                    write_line(f"ended {hosts.pop(process)} {code if code >= 0 else 128 - code}")


def start(host: dict[str, Any], number: int) -> int:
    """Start a host's container; return the process id of its process 1 in the outer namespace."""
    messages, send = os.pipe()
    network_ready, signal_network = os.pipe()
    middle = os.fork()
    if not middle:
        namespaces.unshare(namespaces.NEW_PROCESSES)
        process = os.fork()
        if process:
            # Its parent exits at once, so that it becomes a child of process 1, which reads its process id.
            os.write(send, f"{process}\n".encode())
            os._exit(0)
        try:
            os.close(signal_network)
            exec_container(host, send, network_ready)
        except BaseException as error:
            os.write(2, f"the emulator can't start {host['name']}: {error}\n".encode())
        os._exit(125)
    os.waitpid(middle, 0)
    os.close(send)
    os.close(network_ready)
    with open(messages, encoding="ascii") as lines:
        process = int(min(lines.readline().strip() for _ in range(2)))  # "ready" and the process id, in any order
    ip("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", str(process))
    ip("link", "set", f"host{number}", "master", BRIDGE, "up")
    os.close(signal_network)
    return process


def exec_container(host: dict[str, Any], send: int, network_ready: int) -> NoReturn:
    """Become process 1 of a container."""
    # Opened before the mounts are private: a mount with an open file can't become read-only.
    output = os.open(host["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    namespaces.unshare(namespaces.NEW_MOUNTS | namespaces.NEW_UTS | namespaces.NEW_IPC | namespaces.NEW_NETWORK)
    os.write(send, b"ready\n")
    os.close(send)
    os.read(network_ready, 1)  # blocks until the network device exists
    ip("link", "set", "lo", "up")
    ip("addr", "add", f"{host['address']}/24", "dev", "eth0")
    ip("link", "set", "eth0", "up")
    namespaces.name_host(host["name"])
    namespaces.own_view(host["hidden"], host["kept"], host["bound"])
    os.chdir("/")
    nothing = os.open("/dev/null", os.O_RDONLY)
    for number, descriptor in enumerate((nothing, output, output)):
        os.dup2(descriptor, number)
    os.closerange(3, 1024)
    os.setsid()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.execvpe(host["command"][0], host["command"], host["environment"])


def hand_out_listener(specification: dict[str, Any]) -> None:
    """Open a port on the cluster's network and pass it to the tests, which serve AWS on it."""
    if specification.get("hand_out") is None:
        return
    with socket.socket(fileno=specification["hand_out"]) as line, socket.socket() as listener:
        listener.bind((specification["gateway"], specification["port"]))
        listener.listen(64)
        socket.send_fds(line, [b"."], [listener.fileno()])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def write_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
