"""Hosts of a test: network namespaces on two switches, one for master and workers, one for what they load.

    control 198.18.0.0/24: master .1, workers .11, .12, ...      service 198.18.1.0/24: the same, and the server .100

A worker can so be cut off from its master while it still reaches the server, where a request sent twice would be seen.
"""

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from tests.nodes import ROOT

MASTER, SERVER = "198.18.0.1", "198.18.1.100"


@dataclass
class Network:
    """Namespaces whose names begin with `prefix`; hosts are `master`, `server` and `worker-N`."""

    prefix: str
    links: list[subprocess.Popen[str]] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)

    def enter(self, host: str) -> tuple[str, ...]:
        """Return the command that starts another on a host."""
        return ("ip", "netns", "exec", f"{self.prefix}{host}")

    def add(self, host: str, number: int, *networks: str) -> None:
        """Make a host with an interface in each of the networks (`control`, `service`)."""
        self._namespace(host)
        for network in networks:
            self._ip("-n", self._name(host), "link", "add", network, "type", "veth", *self._peer(host, network))
            self._attach(host, number, network)

    def add_far(self, host: str, number: int, *, delay_ms: float, jitter_ms: float, loss_percent: float) -> None:
        """Make a host in both networks, behind a slow and lossy link to the master."""
        self._namespace(host)
        figures = (str(delay_ms), str(jitter_ms), str(loss_percent))
        ends = (self._name(host), "control", self._name("switch"), f"{host}-control")
        link = subprocess.Popen(
            [sys.executable, "-m", "tests.servers.link", *ends, *figures], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        self.links.append(link)
        assert link.stdout is not None
        assert link.stdout.readline() == "ready\n"
        self._attach(host, number, "control")
        self._ip("-n", self._name(host), "link", "add", "service", "type", "veth", *self._peer(host, "service"))
        self._attach(host, number, "service")

    def cut(self, host: str) -> None:
        """Let the control network swallow, without a word, what this host sends and what is sent to it."""
        self._ip("-n", self._name("switch"), "link", "set", f"{host}-control", "nomaster")

    def heal(self, host: str) -> None:
        """Undo `cut`."""
        self._ip("-n", self._name("switch"), "link", "set", f"{host}-control", "master", "control")

    def end(self) -> None:
        """Remove everything."""
        for link in self.links:
            link.terminate()
            link.communicate(timeout=10)
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", self._name(host)], check=False, capture_output=True)

    def begin(self) -> None:
        """Make the switches, the master and the server."""
        self._namespace("switch")
        for network in ("control", "service"):
            self._ip("-n", self._name("switch"), "link", "add", network, "type", "bridge")
            self._ip("-n", self._name("switch"), "link", "set", network, "up")
        self.add("master", 1, "control", "service")
        self.add("server", 100, "service")

    def _namespace(self, host: str) -> None:
        self._ip("netns", "add", self._name(host))
        self.hosts.append(host)
        self._ip("-n", self._name(host), "link", "set", "lo", "up")

    def _peer(self, host: str, network: str) -> tuple[str, ...]:
        return ("peer", "name", f"{host}-{network}", "netns", self._name("switch"))

    def _attach(self, host: str, number: int, network: str) -> None:
        third = ("control", "service").index(network)
        self._ip("-n", self._name("switch"), "link", "set", f"{host}-{network}", "master", network, "up")
        self._ip("-n", self._name(host), "addr", "add", f"198.18.{third}.{number}/24", "dev", network)
        self._ip("-n", self._name(host), "link", "set", network, "up")

    def _name(self, host: str) -> str:
        return f"{self.prefix}{host}"

    @staticmethod
    def _ip(*arguments: str) -> None:
        done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
        assert done.returncode == 0, f"ip {' '.join(arguments)}: {done.stderr}"


@contextmanager
def network() -> Iterator[Network]:
    """Give a network with a master and a server; skip the test where this machine cannot make one."""
    name = f"sb{secrets.token_hex(2)}-"
    probe = f"{name}probe"
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    steps = (
        ["ip", "netns", "add", probe],
        ["ip", "-n", probe, "link", "add", "probe", "type", "bridge"],
        ["ip", "netns", "del", probe],
    )
    try:
        results = [subprocess.run(step, check=False, capture_output=True, text=True) for step in steps]
    except FileNotFoundError:
        pytest.skip("network namespaces need the command ip (Debian: iproute2)")
    if failed := [result.stderr.strip() for result in results if result.returncode]:
        pytest.skip(f"no network namespaces with bridges here: {failed[0]}")
    made = Network(name)
    try:
        made.begin()
        yield made
    finally:
        made.end()
