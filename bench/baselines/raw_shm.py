"""The floor: fields of W in one named shared-memory object, offsets agreed in advance, no index and no guarantee.

put: one numpy copy per field into a mapping that is warm. get: numpy views of a mapping that is kept; the string column
is left out (it has no raw form), and the jagged field is its values and offsets.
"""

from __future__ import annotations

import sys
import time
from multiprocessing import shared_memory

import numpy as np
import torch

from bench.consumer import Consumer
from bench.timing import Measured, MemcpyUnit
from bench.workload import payload_nbytes, touch_pages, workload_w


def _buffers(rows: int, seed: int) -> dict[str, np.ndarray]:
    batch = workload_w(rows, seed, strings=False)
    found: dict[str, np.ndarray] = {}
    for name in batch.keys():
        value = batch.get(name)
        if value.is_nested:
            found[f"{name}.values"], found[f"{name}.offsets"] = value.values().numpy(), value.offsets().numpy()
        else:
            found[name] = value.numpy()
    return found


class Reader:
    def __init__(self, name: str, places: dict[str, tuple[int, tuple[int, ...], str]]) -> None:
        self._memory = shared_memory.SharedMemory(name)
        self._places = places

    def get(self) -> float:
        began = time.perf_counter()
        self._views = {
            name: torch.frombuffer(
                self._memory.buf, dtype=getattr(torch, kind), count=int(np.prod(shape)), offset=offset
            ).view(shape)
            for name, (offset, shape, kind) in self._places.items()
        }
        return time.perf_counter() - began

    def touch(self) -> float:
        began = time.perf_counter()
        touch_pages(self._views)
        return time.perf_counter() - began

    def check(self, rows: int, seed: int) -> int:
        for name, expected in _buffers(rows, seed).items():
            if not np.array_equal(self._views[name].numpy(), expected):
                raise ValueError(f"field {name} differs")
        return rows

    def close(self) -> None:
        self._views = {}
        try:
            self._memory.close()
        except BufferError:  # torch holds the buffer until it is collected; the process ends here
            return


def put_get(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w", rows, rounds)


def put_get_big(rows: int, rounds: int) -> Measured:
    return _put_get("put_get_w_big", rows * 8, max(rounds // 2, 3))


def _put_get(claim: str, rows: int, rounds: int) -> Measured:
    buffers = _buffers(rows, 0)
    places, offset = {}, 0
    for name, value in buffers.items():
        places[name] = (offset, value.shape, str(value.dtype))
        offset += (value.nbytes + 4095) // 4096 * 4096
    memory = shared_memory.SharedMemory(create=True, size=offset)
    measured = Measured(claim, "raw shm", payload_nbytes(workload_w(rows, 0, strings=False)))
    unit, touches = MemcpyUnit(measured.nbytes), []
    reader = Consumer(Reader, memory.name, places)
    targets = {
        name: np.frombuffer(memory.buf, dtype=kind, count=int(np.prod(shape)), offset=start).reshape(shape)
        for name, (start, shape, kind) in places.items()
    }
    try:
        for round_index in range(rounds + 1):
            began = time.perf_counter()
            for name, value in buffers.items():
                np.copyto(targets[name], value)
            put_s = time.perf_counter() - began
            get_s = reader.call("get")
            touch_s = reader.call("touch")
            if round_index:  # the first round warms pages and page tables
                measured.put_s.append(put_s)
                measured.get_s.append(get_s)
                measured.memcpy_s.append(unit.seconds())
                touches.append(touch_s)
        measured.add_touches(touches)
        measured.checked_rows = reader.call("check", rows, 0)
    finally:
        reader.close()
        targets.clear()
        memory.close()
        memory.unlink()
    return measured


if __name__ == "__main__":
    from bench.report import main

    sys.exit(main({"put_get": put_get, "put_get_big": put_get_big}))
