"""``tq node``: makes this machine a node of a session, without Ray.

The first one (``--head``) starts the session and has its directory; the others join it there. A process on any of the
machines attaches to the session by its name, as on one machine.
"""

from __future__ import annotations

import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from transferqueue import logs
from transferqueue.config import Config, build_config
from transferqueue.config_sources import Given
from transferqueue.errors import NodeUnreachableError, TransferQueueError
from transferqueue.logs import get_logger
from transferqueue.node_service.agent import Agent
from transferqueue.node_service.agent_spec import AgentSpec, tls_files
from transferqueue.node_service.headship import Headship
from transferqueue.node_service.node_session import last_file
from transferqueue.nodes.cluster_file import ClusterFile
from transferqueue.nodes.directory.service import DirectoryService
from transferqueue.nodes.place import endpoint_text
from transferqueue.nodes.rpc_client import RpcClient
from transferqueue.storage.private_files import create_private, read_private

_log = get_logger("nodes")
_SETTLE_S = 5.0
_OTHERS_END_WITHIN_S = 10.0
_LOOK_S = 0.05
_JOINED_WITHIN_S = 30.0
_SAYS_WITHIN_S = 2.0


@dataclass(frozen=True)
class NodeOptions:
    """What the command was given.

    Attributes:
        token_file: holds the token of the session; the head makes it where there is none.
        host: the address that this node serves at; None: loopback for the head, else the one from which the head is
            reached.
        name: what the node calls itself; None: the machine's name. Of two nodes on one machine one needs another.
        overrides: dotted key -> value of this node's configuration.
    """

    token_file: str
    host: str | None = None
    name: str | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)

    @property
    def node_id(self) -> str:
        """The node's name."""
        return self.name or socket.gethostname()


def run_head(session: str, options: NodeOptions) -> int:
    """Runs the first node of a session until SIGTERM or Ctrl-C, then ends the session on all nodes.

    Killed and started again with the same arguments, it finds its rows, if they are still there, and the other nodes
    find it if ``cluster.port`` names one port; they tell it what there is. Where the token is there already and no rows
    are, it waits for them, `_SETTLE_S` at most, before it takes itself for the first.
    """
    with _signals() as asked_to_stop:
        # Where the token is there already, nodes may be left of a head that had it.
        again = os.path.exists(options.token_file)
        token = _token(options.token_file, make=True)
        given = Given.by(None, options.overrides)
        config = _configured(build_config(given.values))
        spec = AgentSpec(
            session,
            options.node_id,
            options.host or config.cluster.host or "127.0.0.1",
            token,
            given.values,
            given.of_creator(),
        )
        before = last_file(spec)
        if before is not None:
            _check_still_head(spec, before)
        headship = Headship(
            spec,
            {key: value for key, value in given.values.items() if _is_plain(value)},
            directory=DirectoryService(lost_after_s=config.cluster.lost_after_s, settle_s=_SETTLE_S, again=again),
            settle_s=_SETTLE_S if again else 0.0,
            term=0 if before is None else before.term,
        )
        agent = Agent(spec, headship=headship)
        place = agent.start()
        at = endpoint_text(place.host, place.port)
        print(
            f"node {place.ordinal} of session {session} at {at}; others join with: "
            f"tq node --join {at} --token-file {options.token_file}",
            flush=True,
        )
        _run_until_over(agent, headship, asked_to_stop)
    return 1 if headship.is_superseded else 0


def run_joined(head: str, options: NodeOptions) -> int:
    """Runs a further node until SIGTERM or Ctrl-C, after which its rows are gone, or until the session ends."""
    with _signals() as asked_to_stop:
        host, port = _endpoint(head)
        token = _token(options.token_file, make=False)
        own = Given.by(None, options.overrides)
        config = _configured(build_config(own.values))
        client = RpcClient(host, port, token=token, tls=tls_files(config.cluster), node=f"the head at {head}")
        try:
            described = client.call("node.describe", {}, until_s=time.monotonic() + _JOINED_WITHIN_S)
        finally:
            client.close()
        at = str(described["directory"][0]), int(described["directory"][1])
        session = str(described["session"])
        given = {**{str(key): value for key, value in described["given"].items()}, **own.values}
        for own_key in ("cluster.host", "cluster.port"):  # the head's own
            if own_key not in own.values:
                given.pop(own_key, None)
        spec = AgentSpec(
            session,
            options.node_id,
            options.host or _address_towards(host, port),
            token,
            given,
            {**dict.fromkeys(described["given"], f"head {head}"), **own.sources},
        )
        headship = Headship(spec, described["given"], at=at, term=int(described["term"]))
        agent = Agent(spec, headship=headship)
        place = agent.start()
        print(
            f"node {place.ordinal} of session {session} at {endpoint_text(place.host, place.port)}; processes here "
            f"join with TRANSFERQUEUE_SESSION={session}",
            flush=True,
        )
        _run_until_over(agent, headship, asked_to_stop)
    return 1 if headship.is_superseded else 0


def make_head(node: str, options: NodeOptions) -> int:
    """Has a node take the place of a head that is lost. The others follow it."""
    host, port = _endpoint(node)
    token = _token(options.token_file, make=False)
    tls = tls_files(build_config(Given.by(None, options.overrides).values).cluster)
    client = RpcClient(host, port, token=token, tls=tls, node=f"the node at {node}")
    try:
        at = client.call("node.lead", {}, until_s=time.monotonic() + _JOINED_WITHIN_S)
    except NotImplementedError as error:
        raise TransferQueueError(
            f"the node at {node} is one of a Ray cluster, where Ray starts the directory"
        ) from error
    finally:
        client.close()
    print(f"the head is at {endpoint_text(str(at[0]), int(at[1]))} from now on", flush=True)
    return 0


def _check_still_head(spec: AgentSpec, before: ClusterFile) -> None:
    """Raises TransferQueueError: another node was made head of the session since."""
    tls = tls_files(build_config(spec.given).cluster)
    for place in before.nodes:
        if place.ordinal == before.ordinal:
            continue  # one that stood still takes all others for lost
        client = RpcClient(place.host, place.port, token=spec.token, tls=tls, node=str(place))
        try:
            described = client.call("node.describe", {}, until_s=time.monotonic() + _SAYS_WITHIN_S)
        except NodeUnreachableError:
            continue
        finally:
            client.close()
        host, port = str(described["directory"][0]), int(described["directory"][1])
        if int(described["term"]) >= before.term and (host, port) != (before.host, before.port):
            at = endpoint_text(host, port)
            raise TransferQueueError(f"session {spec.cluster!r} has its head at {at} now: join it with --join {at}")
        return


def _run_until_over(agent: Agent, headship: Headship, asked_to_stop: threading.Event) -> None:
    """Until somebody asks to stop, or the session ends; who has the directory ends it for all, and last."""
    with _running(agent) as running:
        while running.is_alive() and not asked_to_stop.wait(0.2):
            if headship.members is not None and headship.members.ended.is_set():
                break
        members = headship.members
        if members is None or headship.is_superseded:
            return
        members.ended.set()
        until_s = time.monotonic() + _OTHERS_END_WITHIN_S
        while running.is_alive() and members.present() - {agent.place.ordinal} and time.monotonic() < until_s:
            time.sleep(_LOOK_S)


@contextmanager
def _running(agent: Agent) -> Iterator[threading.Thread]:
    """The thread in which the agent runs until the end of the block."""
    running = threading.Thread(target=agent.run, name="transferqueue-agent")
    running.start()
    yield running
    agent.ask_to_end()
    running.join()


def _is_plain(value: Any) -> bool:
    """Whether it can be told to another node; a sampler that is an object of this process cannot."""
    return value is None or isinstance(value, (str, int, float, bool, list, tuple, dict))


def _configured(config: Config) -> Config:
    logs.configure(config.logging.level)
    return config


@contextmanager
def _signals() -> Iterator[threading.Event]:
    """Set by the first signal that asks to stop. Before anything is made: one that comes then must not leave it."""
    asked_to_stop = threading.Event()
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.signal(number, lambda *_: asked_to_stop.set()) for number in numbers}
    try:
        yield asked_to_stop
    finally:
        # A program that calls `main` goes on after this.
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _token(path: str, *, make: bool) -> str:
    if make:
        try:
            with open(create_private(path), "w", encoding="ascii") as file:
                file.write(secrets.token_hex(32) + "\n")
        except FileExistsError:
            pass
    try:
        token = read_private(path).strip()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"there is no {os.path.abspath(path)}: --token-file is a copy of the file that the head made, of mode 0600"
        ) from error
    if len(token) < 16 or not token.isascii() or not token.isprintable():
        raise ValueError(f"{os.path.abspath(path)} holds no token: one line of at least 16 letters is asked for")
    return token


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"--join and --make-head take HOST:PORT of a node, not {text!r}")
    return host.strip("[]"), int(port)


def _address_towards(host: str, port: int) -> str:
    """The address of this machine from which `host` is reached; nothing is sent."""
    try:
        family, kind, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            own: str = probe.getsockname()[0]
            return own
    except OSError as error:
        raise TransferQueueError(f"there is no way to {host}: {error}; say --host, this machine's address") from error
