"""The machines of one attempt at a job, as namespaces: a bridge, and a container on it for each host.

    python -S cluster.py SPECIFICATION.json

The specification is written by containers.py. Whatever is made here, processes, mounts, network devices, belongs to
namespaces that end with this process, and this process ends when its standard input does: so nothing is left behind,
however the tests end.

It reads lines, `term HOST` and `kill HOST`, and writes lines: `ended HOST CODE`.
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
    inside = os.fork()
    if inside:
        _, status = os.waitpid(inside, 0)
        return os.waitstatus_to_exitcode(status) % 256
    # Process 1 of the cluster: all else ends with it.
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
    say("started")
    with selectors.DefaultSelector() as selector:
        selector.register(ended, selectors.EVENT_READ)
        selector.register(sys.stdin, selectors.EVENT_READ)
        while hosts:
            ready = [key.fileobj for key, _ in selector.select()]
            if ended in ready:
                ended.recv(4096)
            if sys.stdin in ready:
                order = os.read(0, 4096).decode()
                if not order:
                    return  # the tests are gone
                for line in order.splitlines():
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
                    say(f"ended {hosts.pop(process)} {code if code >= 0 else 128 - code}")


def start(host: dict[str, Any], number: int) -> int:
    """Starts a host's container; returns its process 1, by its number out here."""
    told, tell = os.pipe()
    go, give = os.pipe()
    middle = os.fork()
    if not middle:
        namespaces.unshare(namespaces.NEW_PROCESSES)
        process = os.fork()
        if process:
            # Who forked it is gone at once, so that it becomes a child of process 1, which is told its number.
            os.write(tell, f"{process}\n".encode())
            os._exit(0)
        try:
            os.close(give)
            become(host, tell, go)
        except BaseException as error:
            os.write(2, f"the emulator can't start {host['name']}: {error}\n".encode())
        os._exit(125)
    os.waitpid(middle, 0)
    os.close(tell)
    os.close(go)
    with open(told, encoding="ascii") as lines:
        said = sorted(lines.readline().strip() for _ in range(2))  # "ready" and the number, in whatever order
    process = int(said[0])
    ip("link", "add", f"host{number}", "type", "veth", "peer", "name", "eth0", "netns", str(process))
    ip("link", "set", f"host{number}", "master", BRIDGE, "up")
    os.close(give)
    return process


def become(host: dict[str, Any], tell: int, go: int) -> NoReturn:
    """Is process 1 of a container from here on."""
    # Before there are mounts of our own: those can't become read-only while something on them is being written.
    output = os.open(host["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    namespaces.unshare(namespaces.NEW_MOUNTS | namespaces.NEW_UTS | namespaces.NEW_IPC | namespaces.NEW_NETWORK)
    os.write(tell, b"ready\n")
    os.close(tell)
    os.read(go, 1)  # until the network device is there
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
    """Opens a port on the cluster's own network and hands it to the tests, who serve AWS on it."""
    if specification.get("hand_out") is None:
        return
    with socket.socket(fileno=specification["hand_out"]) as line, socket.socket() as listener:
        listener.bind((specification["gateway"], specification["port"]))
        listener.listen(64)
        socket.send_fds(line, [b"."], [listener.fileno()])


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def say(line: str) -> None:
    os.write(1, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
