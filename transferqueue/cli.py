"""``tq``: run a storage service, and look at the sessions of this machine.

Imports neither torch nor Ray: every command but ``serve`` and ``bench`` answers within a fraction of a second.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from transferqueue import logs
from transferqueue.config import format_size, read_environment
from transferqueue.errors import CorruptSegmentError, PartitionNotFoundError, TransferQueueError
from transferqueue.metrics.endpoint import read_address
from transferqueue.nodes.local_sessions import local_sessions, part_here
from transferqueue.nodes.replica_figures import MEANINGS as REPLICA_MEANINGS
from transferqueue.nodes.replica_figures import read_figures
from transferqueue.partition_limits import PartitionLimits
from transferqueue.printable import printable
from transferqueue.session_stats import MEANINGS
from transferqueue.storage.attachment import Attachment, attach
from transferqueue.storage.cleaning import clean, own_sessions
from transferqueue.storage.names import SessionPaths, new_session_name
from transferqueue.storage.session_dir import is_in_use, read_description
from transferqueue.text_table import counted, show_table

_STATE_LIMIT_ROWS = 20
_MEANINGS = MEANINGS | {
    **REPLICA_MEANINGS,
    "reserved_bytes": "payload that memory was set aside for so far; it grows up to total_bytes",
    "free_extent_bytes": "of the reserved ones, what the next puts may take",
    "spilled_live_bytes": "of the spilled ones, what rows still name",
    "spill_pending_bytes": "places on disk of moves in flight",
    "spill_free_extent_bytes": "of the reserved ones on disk, what the next moves may take",
    "index_used_bytes": "metadata index: rows, keys, tags, cells",
    "index_total_bytes": "what the metadata index may grow to (storage.index_size)",
    "rows": "in all partitions",
}
_NAME_WIDTH = max(map(len, _MEANINGS))
_WHICH = "which (default: the one that TRANSFERQUEUE_SESSION names, else the only one)"


def main(arguments: Sequence[str] | None = None) -> int:
    """The ``tq`` program. Returns its exit status: 0, 1 for an error (one line on stderr), 2 for wrong usage."""
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        return status
    except (TransferQueueError, ValueError, OSError) as error:
        print(printable(f"tq {parsed.command}: {error}", lines=True), file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tq", description="Storage service and inspection of TransferQueue sessions.")
    commands = parser.add_subparsers(dest="command", required=True)

    serve = commands.add_parser("serve", help="run a stand-alone storage service until SIGTERM or Ctrl-C")
    serve.add_argument("--session", help="name to serve; created when it does not exist (default: a new one)")
    serve.add_argument("--empty", action="store_true", help="do not take over rows of a dead session of that name")
    _add_storage_arguments(serve)
    serve.set_defaults(run=_serve)

    node = commands.add_parser(
        "node",
        help="make this machine a node of a session that spans several, without Ray; until SIGTERM or Ctrl-C",
        description="The head starts the session and ends it on all nodes; the others join it and leave it. In a Ray "
        "cluster init() does all this by itself.",
    )
    role = node.add_mutually_exclusive_group(required=True)
    role.add_argument("--head", metavar="SESSION", help="start the session of that name")
    role.add_argument("--join", metavar="HOST:PORT", help="join the session of which a node, best the head, is there")
    role.add_argument(
        "--make-head", metavar="HOST:PORT", help="have the node that is there take the place of a head that is lost"
    )
    node.add_argument(
        "--token-file", required=True, help="whoever has its content may join; the head makes it where there is none"
    )
    node.add_argument(
        "--host", help="this machine's address for the others (default: 127.0.0.1; joining: the one towards the head)"
    )
    node.add_argument("--port", help="TCP port, or a range FIRST-LAST (default: any free one)")
    node.add_argument("--name", help="of the node, the same when it is started again (default: the machine's name)")
    _add_storage_arguments(node)
    node.set_defaults(run=_node)

    nodes = commands.add_parser("nodes", help="the nodes of a session, where they are and what they hold")
    nodes.add_argument("--session", help=_WHICH)
    nodes.add_argument("--json", action="store_true", help="for programs")
    nodes.set_defaults(run=_nodes)

    commands.add_parser("ls", help="sessions of this user on this machine").set_defaults(run=_list)

    stats = commands.add_parser(
        "stats",
        help="sizes, rows and clients of a session",
        epilog="\n".join(f"{name:{_NAME_WIDTH}}  {meaning}" for name, meaning in _MEANINGS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    stats.add_argument("--session", help=_WHICH)
    stats.set_defaults(run=_stats)

    leases = commands.add_parser(
        "leases",
        help="who holds views of what, since when, and how much that keeps from being used again",
        description="One line a process and block, the oldest first. 'of no row' is the share of a block whose rows "
        "were cleared or overwritten; its space returns when the other rows are gone, too, and the last view dies.",
    )
    leases.add_argument("--session", help=_WHICH)
    leases.add_argument("--partition", help="only blocks of this one")
    leases.add_argument("--json", action="store_true", help="for programs")
    leases.set_defaults(run=_leases)

    config = commands.add_parser(
        "config",
        help="the configuration, and where each value comes from",
        description="The configuration of a session for a process that joins it from here; without a session, what "
        "init() would create. Sources: the default, an environment variable, or for the session's keys what its "
        "creator had them from (init argument, configuration mapping, ...).",
    )
    config.add_argument("--session", help="which (default: the one that TRANSFERQUEUE_SESSION names, else none)")
    config.add_argument("--json", action="store_true", help="for programs")
    config.set_defaults(run=_config)

    inspect = commands.add_parser("inspect", help="rows, fields and keys of one partition")
    inspect.add_argument("partition")
    inspect.add_argument("--session", help=_WHICH)
    inspect.add_argument(
        "--rows", type=int, default=_STATE_LIMIT_ROWS, help="how many rows to list (default: %(default)s)"
    )
    inspect.set_defaults(run=_inspect)

    bench = commands.add_parser(
        "bench", help="measure puts and gets on this machine, beside memcpy and Ray if installed"
    )
    bench.add_argument("--rows", type=int, default=512, help="rows of the batch; 512 are 67 MB (default: 512)")
    bench.add_argument("--keys", type=int, default=10_000, help="keys of the key-value part (default: 10000)")
    bench.add_argument("--rounds", type=int, default=7, help="repetitions; medians are shown (default: 7)")
    bench.add_argument("--dir", help="directory for a file-backed store instead of /dev/shm")
    bench.add_argument("--no-peers", action="store_true", help="leave Ray out")
    bench.add_argument("--json", metavar="FILE", help="write everything measured, raw seconds included")
    bench.set_defaults(run=_bench)

    dropin = commands.add_parser(
        "dropin",
        help="run a program of TransferQueue 0.1.11 on this data plane: tq dropin -- python train.py",
        description="Runs a command in which `import transfer_queue` gives this package's compatible face, also in "
        "the processes and Ray workers that it starts. Without a command: prints what to set in a shell.",
    )
    dropin.add_argument("program", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    dropin.set_defaults(run=_dropin)

    clean_command = commands.add_parser(
        "clean",
        help="remove what dead processes of this user left",
        description="Removes sessions whose processes are all dead, and what was left of sessions half made or half "
        "removed. What lives, is another user's, or cannot be told is left and named. Checkpoints are none of its "
        "business: the next save to the same place removes what a killed one left.",
    )
    clean_command.add_argument("--dry-run", action="store_true", help="remove nothing, say what would go")
    clean_command.add_argument(
        "--dir",
        action="append",
        default=[],
        help="a storage.dir or spill.dir: files in it whose session is gone go, too",
    )
    clean_command.set_defaults(run=_clean)
    return parser


def _add_storage_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--size", help="payload size, for instance 4GiB")
    parser.add_argument("--dir", help="directory for a file-backed store instead of /dev/shm")
    parser.add_argument("--populate", help="memory to touch ahead of use, for instance 1GiB")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any configuration key")
    parser.add_argument("--log-level", default="INFO", help="of the service's log on stderr (default: %(default)s)")


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    overrides: dict[str, Any] = {"logging.level": arguments.log_level}
    for name, key in (("size", "storage.size"), ("dir", "storage.dir"), ("populate", "storage.populate")):
        if getattr(arguments, name) is not None:
            overrides[key] = getattr(arguments, name)
    for entry in arguments.set:
        key, equals, value = entry.partition("=")
        if not equals:
            raise ValueError(f"--set takes KEY=VALUE, not {entry!r}")
        overrides[key] = value
    return overrides


def _serve(arguments: argparse.Namespace) -> int:
    from transferqueue.session import init

    overrides = _overrides(arguments)
    asked_to_stop = threading.Event()
    # Before the session exists: a signal that comes while it is made must not leave it behind.
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    handlers = {number: signal.signal(number, lambda *_: asked_to_stop.set()) for number in numbers}
    try:
        session = init(session=arguments.session or new_session_name(), adopt=not arguments.empty, **overrides)
        try:
            if not session.service.start():
                raise TransferQueueError(f"session {session.name!r} has a storage service already")
            print(
                f"serving session {session.name}; other processes join with TRANSFERQUEUE_SESSION={session.name}",
                flush=True,
            )
            if (address := read_address(session.attachment.paths)) is not None:
                print(f"metrics at http://{address}/metrics", flush=True)
            while not asked_to_stop.wait(1.0):
                if session.attachment.store.ended:
                    break
        finally:
            session.close()
    finally:
        # A program that calls `main` goes on after this.
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return 0


def _node(arguments: argparse.Namespace) -> int:
    from transferqueue.node_service.program import NodeOptions, make_head, run_head, run_joined

    overrides = _overrides(arguments)
    if arguments.port is not None:
        overrides["cluster.port"] = arguments.port
    options = NodeOptions(arguments.token_file, arguments.host, arguments.name, overrides)
    if arguments.head is not None:
        return run_head(arguments.head, options)
    if arguments.make_head is not None:
        return make_head(arguments.make_head, options)
    return run_joined(arguments.join, options)


def _nodes(arguments: argparse.Namespace) -> int:
    from transferqueue.node_service.node_listing import print_nodes

    return print_nodes(arguments.session or read_environment()[0], as_json=arguments.json)


def _list(arguments: argparse.Namespace) -> int:
    rows = []
    for paths in own_sessions():
        in_use = is_in_use(paths)
        try:
            description = read_description(paths)
        except TransferQueueError as error:
            rows.append([paths.name, "unreadable", "", "", str(error)])
            continue
        if description is None:
            rows.append([paths.name, "being made" if in_use else "half made", "", "", ""])
            continue
        started = datetime.fromtimestamp(description.created_s).strftime("%Y-%m-%d %H:%M:%S")
        size = format_size(int(description.config.get("storage.size", 0)))
        where = description.payload_directory or "/dev/shm"
        rows.append(
            [paths.name, "in use" if in_use else "dead", started, f"{size} in {where}", str(description.creator_pid)]
        )
    show_table(["session", "state", "started", "size", "creator pid"], rows)
    return 0


def _only_session(name: str | None) -> Attachment:
    name = name or read_environment()[0]
    if name is None:
        names = [paths.name for paths in own_sessions()]
        if len(names) != 1:
            found = ", ".join(names) or "none"
            raise ValueError(f"say which session with --session; there are: {found}")
        name = names[0]
    elif not os.path.isdir(SessionPaths.of(name).directory) and (part := part_here(local_sessions(name))) is not None:
        name = part.paths.name
    return attach(name, observer=True)


def _stats(arguments: argparse.Namespace) -> int:
    attachment = _only_session(arguments.session)
    try:
        store = attachment.store
        figures = store.stats()
        if (replicas := read_figures(attachment.paths)) is not None:
            figures |= replicas.known()
        clients = store.clients()
        partitions = [{**row, "unconsumed_rows": store.unconsumed_rows(row["name"])} for row in store.partition_stats()]
        for partition in partitions:
            limits = PartitionLimits.of(store.limit_report(partition["name"]))
            partition |= {"limits": limits.describe(), "shed_rows": limits.shed_rows}
        rules = store.limit_rules()
        ours = store.owner
    finally:
        attachment.detach()
    print(f"session {attachment.paths.name}")
    show_table(["", "", ""], [[name, _shown(name, value), _MEANINGS.get(name, "")] for name, value in figures.items()])
    show_table(
        list(partitions[0]) if partitions else ["name"],
        [[_shown(name, value) for name, value in row.items()] for row in partitions],
    )
    if rules:
        show_table(
            ["limits of", "settings"],
            [[name, ", ".join(f"{key}={value}" for key, value in settings.items())] for name, settings in rules],
        )
    rows = [
        [
            str(client["pid"]) + (" (this command)" if client["owner"] == ours else ""),
            "alive" if client["alive"] else "dead",
            str(client["leases"]),
            format_size(client["leased_bytes"]),
            format_size(client["pending_bytes"]),
            f"{client['age_s']:.0f} s",
        ]
        for client in clients
    ]
    show_table(["client pid", "state", "leases", "leased", "pending", "age"], rows)
    return 0


def _leases(arguments: argparse.Namespace) -> int:
    from transferqueue.lease_report import HEADER, as_row, list_leases, summary, to_plain

    attachment = _only_session(arguments.session)
    try:
        leases = list_leases(attachment.store, arguments.partition)
    finally:
        attachment.detach()
    if arguments.json:
        print(json.dumps(to_plain(attachment.paths.name, leases), indent=2))
        return 0
    print(printable(f"session {attachment.paths.name}: {summary(leases, arguments.partition)}"))
    if leases:
        show_table(HEADER, [as_row(lease) for lease in leases])
    return 0


def _config(arguments: argparse.Namespace) -> int:
    from transferqueue.config_report import report

    found = report(arguments.session or read_environment()[0])
    if arguments.json:
        print(json.dumps(found.to_plain(), indent=2))
        return 0
    if found.session is None:
        print("no session: what init() would create here")
    else:
        adopted = f", adopted by pid {found.adopter_pid}" if found.adopter_pid is not None else ""
        print(f"session {found.session}, created by pid {found.creator_pid}{adopted}")
    show_table(["key", "value", "of the", "source"], found.rows())
    return 0


def _shown(name: str, value: Any) -> str:
    return format_size(value) if name.endswith("bytes") else str(value)


def _inspect(arguments: argparse.Namespace) -> int:
    from transferqueue.tag_maps import TagDecoder

    attachment = _only_session(arguments.session)
    try:
        store = attachment.store
        listing = store.list_rows(arguments.partition)
        if not listing.partition_found:
            known = store.partitions()
            raise PartitionNotFoundError(
                f"there is no partition {arguments.partition!r} in session {attachment.paths.name!r}; there are: "
                f"{', '.join(known) or 'none'}",
                partition_id=arguments.partition,
                known=tuple(known),
            )
        fields = store.field_names(arguments.partition)
        _, indexes, ready, _ = store.production(arguments.partition, fields)
    finally:
        attachment.detach()
    decoder = TagDecoder(allow_pickle=False)
    total = len(listing.indexes)
    print(printable(f"partition {arguments.partition}: {total} rows, fields: {', '.join(fields) or 'none'}"))
    position = {int(index): row for row, index in enumerate(indexes)}
    rows = []
    for at, index in enumerate(listing.indexes[: arguments.rows]):
        row = position.get(int(index))
        have = [name for name, flag in zip(fields, ready[row], strict=True) if flag] if row is not None else []
        try:
            tags = str(decoder.decode(listing.tags[at]))
        except ValueError:
            tags = "(pickled)"
        except CorruptSegmentError:
            tags = "(damaged)"
        rows.append([str(int(index)), listing.keys[at] or "", ", ".join(have), tags])
    show_table(["global index", "key", "ready fields", "tags"], rows)
    if total > arguments.rows:
        print(f"... and {total - arguments.rows} more rows (--rows)")
    return 0


def _bench(arguments: argparse.Namespace) -> int:
    from transferqueue.microbench.command import run

    return run(
        rows=arguments.rows,
        keys=arguments.keys,
        rounds=arguments.rounds,
        directory=arguments.dir,
        peers=not arguments.no_peers,
        json_file=arguments.json,
    )


def _dropin(arguments: argparse.Namespace) -> int:
    from transferqueue import dropin

    return dropin.main(arguments.program)


def _clean(arguments: argparse.Namespace) -> int:
    started_s = time.monotonic()
    if strangers := [path for path in arguments.dir if not os.path.isdir(os.path.expanduser(path))]:
        raise ValueError(f"--dir: {', '.join(strangers)} is not a directory")
    # Where this environment would have them: what a reboot left there, no session names any more.
    configured = (read_environment()[1].get(key) for key in ("storage.dir", "spill.dir"))
    directories = [os.path.abspath(os.path.expanduser(path)) for path in (*arguments.dir, *configured) if path]
    done = clean(dry_run=arguments.dry_run, directories=filter(os.path.isdir, dict.fromkeys(directories)))
    verb = "would remove" if arguments.dry_run else "removed"
    for removed in done.removed:
        print(printable(f"{verb} {removed.what} ({format_size(removed.nbytes)})"))
    for left in done.left:
        print(printable(f"left {left.what}: {left.why}"))
    dead = counted(sum(removed.session is not None for removed in done.removed), "dead session")
    others = counted(sum(removed.session is None for removed in done.removed), "other leftover")
    nbytes = format_size(sum(removed.nbytes for removed in done.removed))
    took_s = time.monotonic() - started_s
    print(f"{verb} {dead} and {others}, {nbytes}, in {took_s:.2f} s")
    return 0


if __name__ == "__main__":
    logs.configure("WARNING")
    sys.exit(main())
