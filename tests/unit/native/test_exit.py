"""The end of the interpreter with views, reservations and stores alive: quiet, and nothing stays leased."""

from __future__ import annotations

import pytest

from tests.unit.native import native_session as ns
from transferqueue._native import Store

HOLD = """
import atexit
class Exporter:
    def __init__(self, capsule): self.capsule = capsule
    def __dlpack__(self, **_): return self.capsule
    def __dlpack_device__(self): return (1, 0)
def array(capsule): return np.from_dlpack(Exporter(capsule))  # saves most of these processes the import of torch
indexes = ns.put(store, 'p', dict(a=np.arange(8 * 4096).reshape(8, 4096))).indexes
def view(): return array(store.resolve('p', indexes=indexes).view(0, 0, 8 * 4096 * 8))
def allocation():
    reservation = store.reserve(1 << 20, 1.0)
    reservation.map_for_producer()
    return reservation, array(reservation.producer_tensor(0, 1 << 20))
class Node: pass
assert view().view(np.int64)[-1] == 8 * 4096 - 1
"""

ENDINGS = {
    "globals": "held = view(), allocation(), store.reserve(64, 1.0), store.resolve('p', indexes=indexes)",
    "torch": "array = ns.as_tensor; import torch; torch.held = view(), allocation()",
    "cycle": "node = Node(); node.me = node; node.held = view(), allocation(); del node",
    "closed_store": "held = view(), allocation(); store.close()",
    "module_of_another": "sys.held = view(), allocation(), store; np.held = view()",
    "atexit": "held = [view()]; atexit.register(held.clear); atexit.register(store.close)",
    "default_argument": "def keep(_=view(), __=allocation()): pass\nbuiltins = __builtins__; builtins.kept = keep",
    "capsule": "resolved = store.resolve('p', indexes=indexes); held = resolved.view(0, 0, 4096)",
    "sleeping_thread": (
        "held = view()\n"
        "def sleep():\n"
        "    while True: store.wait_word('p', store.wake_word('p'), 0.1)\n"
        "threading.Thread(target=sleep, daemon=True).start(); time.sleep(0.05)"
    ),
    "waiting_for_room": (
        "held = view()\n"
        "ns.put(store, 'p', dict(a=np.ones((1, store.stats()['free_bytes'] // 2), np.uint8)))\n"
        "threading.Thread(target=store.reserve, args=(30 << 20, None), daemon=True).start(); time.sleep(0.05)"
    ),
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_interpreter_exit(session: ns.NativeSession, store: Store, ending: str) -> None:
    status, output, errors = ns.run(session, HOLD + ENDINGS[ending] + "\nprint('end', flush=True)")
    assert (status, output, errors) == (0, "end\n", "")
    store.reap()
    assert session.lease_files() == [f"{store.owner}.lease"]
    assert ns.stat(store, "pending_bytes") == 0
    assert ns.stat(store, "leased_bytes") == 0
    store.clear_partition("p")
    store.reclaim()
    assert ns.stat(store, "free_bytes") == ns.stat(store, "total_bytes")
