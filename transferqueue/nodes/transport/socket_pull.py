"""One pull over plain TCP: its parts, each a stream, received straight into the room that was reserved."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from transferqueue.nodes.connection import UNAVAILABLE, AttemptError
from transferqueue.nodes.envelopes import read_answer
from transferqueue.nodes.place import NodePlace
from transferqueue.nodes.transport.channel import Channel
from transferqueue.nodes.transport.payload_server import request_to_stream
from transferqueue.nodes.transport.protocol import Destination, PayloadRequest
from transferqueue.nodes.transport.received import announced, receive_message


class SocketPull:
    """The first part is the caller's, who stays able to take a Ctrl-C, each further one a thread's.

    Args:
        source, what, into: of the pull.
        tickets: of its parts.
        attempts: (attempt, whether the pull has ended) -> calls `attempt` with a channel until it goes well.

    Attributes:
        nbytes, messages, streams: of `PullReport`.
    """

    def __init__(
        self,
        source: NodePlace,
        what: PayloadRequest,
        into: Destination,
        tickets: Sequence[bytes],
        attempts: Callable[[Callable[[Channel], None], threading.Event], None],
    ) -> None:
        self._source = source
        self._what = what
        self._into = into
        self._tickets = tickets
        self._attempts = attempts
        self._guard = threading.Lock()
        self._error: BaseException | None = None
        self._ended = threading.Event()
        self._channels: dict[int, Channel] = {}
        self.nbytes = self.messages = self.streams = 0

    def run(self) -> None:
        """Until everything is written. When it returns or raises nothing is written any more."""
        threads = {
            part: threading.Thread(target=self._thread, args=(part,), name="tq-pull", daemon=True)
            for part in range(1, len(self._tickets))
        }
        for thread in threads.values():
            thread.start()
        try:
            self._part(0)
            for thread in threads.values():
                thread.join()
        except BaseException as error:
            self._fail(error)
        finally:
            # Nothing writes to the destination once this returned, whatever it raises. A thread that has no connection
            # yet need not be waited for: it looks at `_ended` before it has one.
            self._ended.set()
            with self._guard:
                busy = dict(self._channels)
            for channel in busy.values():
                channel.cancel()
            for part in busy:
                if part in threads:
                    threads[part].join()
        if self._error is not None:
            raise self._error

    def _thread(self, part: int) -> None:
        try:
            self._part(part)
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """The first one counts; the other parts end."""
        with self._guard:
            if self._error is None:
                self._error = error
            self._ended.set()
            for channel in self._channels.values():
                channel.cancel()

    def _part(self, part: int) -> None:
        def attempt(channel: Channel) -> None:
            with self._guard:
                if self._ended.is_set():
                    raise AttemptError(UNAVAILABLE, "given up")
                self._channels[part] = channel
                self.streams += 1
            try:
                nbytes, messages = self._stream(channel, part)
            finally:
                with self._guard:
                    del self._channels[part]
            with self._guard:
                self.nbytes += nbytes
                self.messages += messages

        self._attempts(attempt, self._ended)

    def _stream(self, channel: Channel, part: int) -> tuple[int, int]:
        """(bytes, messages) of one stream, from its beginning. AttemptError; what the source raised."""
        channel.send(request_to_stream(self._tickets[part]))
        header, _ = channel.receive()
        expected = announced(self._source, read_answer(header)[1], self._into)
        written = count = 0
        while True:
            header, nbytes = channel.receive()
            parts = read_answer(header)[1]
            if parts is None and not nbytes:
                break
            written += receive_message(self._source, self._what, self._into, parts, nbytes, channel.receive_into)
            count += 1
        if written != expected:
            raise AttemptError(UNAVAILABLE, f"the stream ended after {written} of {expected} bytes")
        return written, count
