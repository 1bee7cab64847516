"""Checkpoints of a session of several nodes: each node writes and reads what it has, one process leads."""

from __future__ import annotations

import os
from typing import Any, NoReturn

import numpy as np

from transferqueue.aio import asynchronous
from transferqueue.checkpoint.cluster_files import finish_save, write_mark
from transferqueue.checkpoint.cluster_plan import ClusterPlan
from transferqueue.checkpoint.directories import resolved, written_beside
from transferqueue.checkpoint.libraries import check_libraries
from transferqueue.checkpoint.manifest import check_user_metadata
from transferqueue.client.checkpoint_leader import CheckpointLeader
from transferqueue.client.prefetching import PrefetchCalls
from transferqueue.errors import DataLostError, TransferQueueError
from transferqueue.nodes.names import ordinals_of
from transferqueue.storage.loaded_sessions import read_loaded_sessions


class ClusterCheckpointCalls(PrefetchCalls):
    """Part of `ClusterClient`."""

    def save_checkpoint(
        self, dir: str | os.PathLike[str], *, include_storage: bool = True, metadata: Any = None
    ) -> None:
        """Writes all rows of all nodes to one directory, which must be on a file system that all nodes share: each node
        writes the partitions whose home it is, and the payload that it keeps for those of others. What is saved, and
        how `dir` is made or replaced in one step, is as on one machine: see `TransferQueueClient.save_checkpoint`.

        *Which moment.* All partitions that have one home are as they were at one moment: of these, a put is in it whole
        or not at all, and so are keys, tags and consumption. Homes are looked at one beside the other, not at one
        moment: between two puts into partitions of different homes, made one after the other while the save begins,
        the save may have the later one without the earlier. All moments lie between the call and its return.

        *Failures.* A node that dies, or whose agent is started again, before it has written its share ends the save:
        the older checkpoint stands.

        Raises:
            as `TransferQueueClient.save_checkpoint`. FileNotFoundError: a node does not see `dir`.
            DataLostError: payload of some rows (`rows`, `partition_id`), or the home of a partition, is lost with its
            node, before or during the save. NodeUnreachableError: a node's agent was started again during the save.
        """
        self._open()
        check_user_metadata(metadata)
        check_libraries()
        nodes = self._all_homes()
        with written_beside(resolved(dir)) as temporary:
            with CheckpointLeader(self.link, nodes) as leader:
                write_mark(temporary, leader.key)
                leader.each("begin_save", lambda _: {"directory": str(temporary)})
                # From here on no node frees payload: what a home names when it is looked at can be written afterwards.
                named = leader.each("look")
                writers = self._writers(leader, np.unique(np.concatenate(list(named.values()))))
                written = leader.each("write", lambda ordinal: {"names": writers[ordinal]})
            finish_save(
                temporary,
                list(written.values()),
                session=self.session,
                earlier_sessions=read_loaded_sessions(self._attachment.paths),
                user_metadata=metadata,
            )

    def load_checkpoint(self, dir: str | os.PathLike[str], *, allow_pickle: bool | None = None) -> Any:
        """Puts the rows of a checkpoint in the place of all rows of all nodes; returns the `metadata` saved with it.
        `dir` must be on a file system that all nodes share; it may have been saved by a session of one machine, or of
        another number of nodes.

        A partition comes to the home that it has; one that has none to the node of the number that was its home when
        it was saved, to this process's node where it was saved on one machine, or to the node that has least to load.
        Payload comes to the node of the number that wrote it, or to the one that has least to load. Indexes stay as
        they were, see `TransferQueueClient.load_checkpoint`.

        Everything is verified and brought into memory beside what is there, on all nodes, before any of them switches;
        after an error until then, all rows are as they were. Then each node switches in one commit, all of them within
        moments of each other. A node that is lost between these commits leaves some nodes with loaded rows and others
        with what they had: the error says which, and the load can be made again. Stop producers first.

        Args:
            allow_pickle: as on one machine; but each node takes pickles only if its own configuration says
                ``allow_pickle=True``, since other nodes' files are not its own.

        Raises:
            as `TransferQueueClient.load_checkpoint`. FileNotFoundError: a node does not see that checkpoint at `dir`.
            DataLostError, NodeUnreachableError: a node was lost, or its agent started again, meanwhile.
        """
        self._open()
        check_libraries()
        nodes = self.link.alive(fresh=True)
        with ClusterPlan(resolved(dir), nodes, self.link.ordinal, self.link.directory.homes()) as plan:
            self._place(plan, nodes)
            with CheckpointLeader(self.link, nodes) as leader:
                new_names = leader.each("begin_load", plan.names_of)
                shared = {
                    "directory": str(plan.directory),
                    "checksum": plan.files.checksum,
                    "old_names": plan.old_names().reshape(-1),
                    "new_names": np.concatenate([new_names[ordinal] for ordinal in nodes]),
                    "allow_pickle": self._may_unpickle(allow_pickle),
                }
                leader.each("bring", lambda ordinal: {**shared, **plan.share_of(ordinal)})
                _check_switched(leader.outcomes("switch", {"sessions": list(plan.loaded.sessions)}))
            return plan.loaded.user_metadata

    def _all_homes(self) -> list[int]:
        """Ordinals of the nodes that are here."""
        nodes = self.link.alive(fresh=True)
        for partition, home in self.link.directory.homes().items():
            if home not in nodes:
                raise DataLostError(
                    f"the home of partition {partition!r}, node {home}, is lost, and with it what was known of its "
                    "rows: a checkpoint would lack them. clear_partition gives it up",
                    partition_id=partition,
                    node=str(home),
                )
        return nodes

    def _writers(self, leader: CheckpointLeader, names: Any) -> dict[int, Any]:
        """Which node writes the payload under which names: the one that gave them out, of lost nodes any that has a
        copy."""
        ordinals = ordinals_of(names)
        writers = {ordinal: names[ordinals == ordinal] for ordinal in leader.ordinals}
        orphans = names[~np.isin(ordinals, leader.ordinals)]
        for ordinal in leader.ordinals:
            if not len(orphans):
                break
            there = self.link.call(ordinal, "payload.alive", {"names": orphans}, until_s=self.link.until(None))
            writers[ordinal] = np.sort(np.concatenate([writers[ordinal], orphans[there]]))
            orphans = orphans[~there]
        if len(orphans):
            leader.each("refuse_lost", lambda _: {"names": orphans})
            raise DataLostError(f"{len(orphans)} rows of payload are lost with their nodes")
        return writers

    def _place(self, plan: ClusterPlan, nodes: list[int]) -> None:
        """The homes of partitions, as planned; who was faster meanwhile stays it."""
        for partition, (home, wanted) in plan.wanted_homes().items():
            if home is None:
                plan.set_home(partition, self.link.place(partition, wanted))
            elif home not in nodes:
                self.link.take_over(partition, wanted)
        self.link.directory.spend(plan.highest_ordinal)

    def _refuse_half(self, /, *_args: Any, **_kwargs: Any) -> NoReturn:
        """Not of a session of several nodes, whose rows are in no one index."""
        raise NotImplementedError(
            f"session {self.session!r} spans several nodes, and what is known of its rows is not saved apart from "
            "them: use save_checkpoint and load_checkpoint"
        )

    save_controller_checkpoint: Any = _refuse_half
    load_controller_checkpoint: Any = _refuse_half
    async_save_controller_checkpoint: Any = asynchronous(_refuse_half)
    async_load_controller_checkpoint: Any = async_save_controller_checkpoint
    async_save_checkpoint: Any = asynchronous(save_checkpoint)
    async_load_checkpoint: Any = asynchronous(load_checkpoint)


def _check_switched(errors: dict[int, BaseException | None]) -> None:
    failed = [ordinal for ordinal, error in errors.items() if error is not None]
    if not failed:
        return
    error = errors[failed[0]]
    assert error is not None  # narrowing
    done = [ordinal for ordinal in errors if ordinal not in failed]
    if not done or not isinstance(error, TransferQueueError):
        raise error
    raise type(error)(
        f"the load is half done: nodes {done} have the loaded rows, nodes {failed} may have what they had; load again. "
        f"Node {failed[0]}: {error.message}",
        **error.details,
    ) from error
