"""Views held over the end of what they came from: of the client, the session, a thread, the interpreter. Nobody
crashes, what is printed is what the program itself prints, and nothing stays in shared memory."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection

import pytest
import torch

import transferqueue as tq
from tests.race import deeds
from tests.race.paused import Call
from tests.support.endings import End, run_to_the_end
from tests.support.sessions import Forked, embedded, in_child, left_behind, wait_for, wait_until_gone
from tests.support.versioned_rows import rows, versions_of
from transferqueue.storage.cleaning import remove_dead_sessions
from transferqueue.storage.names import new_session_name

pytestmark = pytest.mark.timeout(120)
EIGHT = list(range(8))
ONE = [(number, 1) for number in EIGHT]

# -- the end of the interpreter ----------------------------------------------------------------------------------------

START = """
import asyncio, atexit, contextvars, faulthandler, gc, os, signal, sys, threading, time, weakref
from concurrent.futures import ThreadPoolExecutor
import torch
from tensordict import TensorDict
import transferqueue as tq
session = tq.init(**{"storage.size": "32MiB"})
print(session.name, flush=True)
data = TensorDict({"x": torch.arange(80_000).reshape(8, -1), "y": torch.ones(8, 20_000)}, [8])
meta = tq.put(data, partition_id="p")
def get(mode="cow"): return tq.get_data(meta, mode=mode)["x"]
def right(view): return bool(view[7, -1] == 79_999)
"""

ENDS = {
    "module globals": "views = [get(), get('shared'), get('copy')]; sys.kept = get(); torch.kept = get()",
    "atexit handlers that read views": (
        "view = get()\n"
        "atexit.register(lambda: print(right(view), flush=True))\n"
        "late = get('shared')\n"
        "atexit.register(lambda v=late: print(right(v), flush=True))"
    ),
    "atexit handlers of before the first import of the session": (
        # Runs after the session was left: what is held stays readable, calls say that the session is closed.
        "view = get()\n"
        "def after():\n"
        "    print(right(view), flush=True)\n"
        "    try: session.client.get_data(meta)\n"
        "    except tq.ClosedError: print('closed', flush=True)\n"
        "atexit.unregister(sys.modules['transferqueue.session']._at_exit)\n"
        "atexit.register(after)\n"
        "atexit.register(sys.modules['transferqueue.session']._at_exit)"
    ),
    # By numpy: before Python 3.14 a daemon thread that is in a kernel of torch when the interpreter ends makes torch
    # abort, whatever the memory is; with torch.ones(80_000).sum() it does, too.
    "daemon threads that read what they hold": (
        "def read(mode):\n"
        "    array = get(mode).numpy()\n"
        "    while True: array.sum()\n"
        "for mode in ('cow', 'shared', 'copy'): threading.Thread(target=read, args=(mode,), daemon=True).start()\n"
        "time.sleep(0.05)"
    ),
    "daemon threads amid calls": (
        "def call():\n"
        "    while True:\n"
        "        try: held = get(); made = tq.put(data, partition_id='q'); tq.clear_samples(made)\n"
        "        except tq.ClosedError: break\n"
        "for _ in range(3): threading.Thread(target=call, daemon=True).start()\n"
        "time.sleep(0.05)"
    ),
    "daemon threads that allocate": (
        "def call():\n"
        "    while True:\n"
        "        try:\n"
        "            made = tq.alloc({'z': ((40_000,), torch.int64)}, partition_id='z', batch_size=1)\n"
        "            kept = made.data['z'].numpy(); made.commit(); kept[:] = 1; del kept; tq.clear_partition('z')\n"
        "        except tq.ClosedError: break\n"
        "for _ in range(2): threading.Thread(target=call, daemon=True).start()\n"
        "time.sleep(0.05)"
    ),
    # They never let go of the view: torch aborts when a daemon thread frees a tensor at the end of the interpreter.
    "daemon threads that wait": (
        "def wait():\n"
        "    view = get()\n"
        "    try: tq.get_meta('x', 1, 'nothing', task_name='t', timeout=None)\n"
        "    except tq.ClosedError: time.sleep(60)\n"
        "for _ in range(2): threading.Thread(target=wait, daemon=True).start()\n"
        "time.sleep(0.05)"
    ),
    # While one makes its ClosedError, which takes Python code, another takes the interpreter lock from it, and the
    # interpreter ends.
    "daemon threads that are told of the end": (
        "sys.setswitchinterval(1e-6)\n"
        "def wait():\n"
        "    try: tq.get_meta('x', 1, 'nothing', task_name='t', timeout=None)\n"
        "    except tq.ClosedError: pass\n"
        "for _ in range(16): threading.Thread(target=wait, daemon=True).start()\n"
        "time.sleep(0.05)"
    ),
    "an error whose frames hold views": (
        "def fail(view): raise RuntimeError('of the program')\nfail(get())"  # status 1, its own trace
    ),
    "an error that is kept": (
        "def fail(view): raise RuntimeError('kept')\ntry: fail(get())\nexcept RuntimeError as error: kept = error"
    ),
    "a chain of errors in a cycle": (
        "def fail(view):\n"
        "    try: raise ValueError('inner')\n"
        "    except ValueError as inner: raise RuntimeError('outer') from inner\n"
        "try: fail(get())\n"
        "except RuntimeError as error: error.itself = error; kept = error"
    ),
    "weak references with callbacks": (
        "view, other = get(), get()\n"
        "gone = weakref.ref(view, lambda _: print('view', flush=True))\n"
        "finalizer = weakref.finalize(other, print, 'finalized', flush=True)\n"
        "del view"
    ),
    "finalizers that call the client": (
        "class Nosy:\n"
        "    def __init__(self): self.view, self.itself = get(), self\n"
        "    def __del__(self):\n"
        "        try: tq.get_client().get_data(meta)\n"
        "        except tq.ClosedError: print('closed', flush=True)\n"
        "nosy = [Nosy() for _ in range(3)]\n"
        "del nosy[0]\n"
        "late = [Nosy()]\n"
        "leave = sys.modules['transferqueue.session']._at_exit\n"
        "atexit.unregister(leave)\n"
        "atexit.register(lambda: (late.clear(), gc.collect()))\n"  # when the session was left
        "atexit.register(leave)\n"
        "atexit.register(lambda: (nosy.clear(), gc.collect(), print('first', flush=True)))"  # while it is there still
    ),
    "os._exit": "view = get(); os._exit(7)",
    "sys.exit with views and threads": (
        "def hold(event):\n"
        "    view = get(); event.wait(); assert right(view)\n"
        "event = threading.Event()\n"
        "threading.Thread(target=hold, args=(event,)).start()\n"
        "threading.Timer(0.05, event.set).start()\n"
        "view = get(); sys.exit(5)"
    ),
    "sys.exit from threads": (
        "def leave(): view = get(); sys.exit(3)\n"
        "threads = [threading.Thread(target=leave) for _ in range(4)]\n"
        "for thread in threads: thread.start()\n"
        "for thread in threads: thread.join()"
    ),
    "thread locals": (
        "local = threading.local(); local.view = get()\n"
        "def hold(): local.view = get(); time.sleep(100)\n"
        "threading.Thread(target=hold, daemon=True).start()\n"
        "def end(): local.view = get()\n"
        "ended = threading.Thread(target=end); ended.start(); ended.join()\n"
        "time.sleep(0.02)"
    ),
    "context variables and generators": (
        "variable = contextvars.ContextVar('v'); variable.set(get()); context = contextvars.copy_context()\n"
        "def generate():\n"
        "    view = get()\n"
        "    try: yield view.sum()\n"
        "    finally: view = None\n"
        "generator = generate(); next(generator)"
    ),
    "tasks that never end": (
        "async def hold():\n"
        "    view = (await tq.async_get_data(meta))['x']\n"
        "    await asyncio.sleep(0); kept.append(view); return view\n"
        "kept = []\n"
        "async def main(): return await asyncio.gather(*[hold() for _ in range(3)])\n"
        "loop = asyncio.new_event_loop(); result = loop.run_until_complete(main()); loop.close()"
    ),
    "a pool of threads": ("pool = ThreadPoolExecutor(3)\nfutures = [pool.submit(get) for _ in range(20)]"),
    "autograd graphs": (
        "weight = torch.nn.Parameter(torch.ones(8, 10_000, dtype=torch.float64))\n"
        "loss = (weight * get()).sum(); hooked = (weight * get()); hooked.register_hook(lambda g, v=get(): None)"
    ),
    "numpy and memoryview aliases": (
        "import numpy as np\n"
        "array = get().numpy(); memory = memoryview(get().numpy()); other = np.from_dlpack(get())\n"
        "atexit.register(lambda: print(int(array[7, -1]) == 79_999, flush=True))"
    ),
    "closed before": "view = get(); session.close(); atexit.register(lambda: print(right(view), flush=True))",
    "forked and both end": (
        "view = get()\nchild = os.fork()\nassert right(view)\nif child: assert os.waitpid(child, 0)[1] == 0"
    ),
    "forked and the child outlives": (
        "view = get()\n"
        "ours, theirs = os.pipe()\n"
        "if os.fork() == 0:\n"
        "    os.close(theirs); os.read(ours, 1); assert right(view)\n"  # the parent is gone when its end closes
        "else: del view"
    ),
    "a signal whose handler raises": (
        "view = get()\n"
        "signal.signal(signal.SIGALRM, lambda *_: sys.exit(6)); signal.setitimer(signal.ITIMER_REAL, 0.05)\n"
        "while True: get()"
    ),
    "a collector that runs at the very end": (
        "gc.disable()\nclass Node: pass\nfor _ in range(50):\n    node = Node(); node.itself, node.view = node, get()"
    ),
}
STATUS = {"an error whose frames hold views": 1, "os._exit": 7, "sys.exit with views and threads": 5}
STATUS |= {"a signal whose handler raises": 6}
PRINTS = {
    "atexit handlers that read views": ["True", "True"],
    "atexit handlers of before the first import of the session": ["True", "closed"],
    "weak references with callbacks": ["view", "finalized"],
    "finalizers that call the client": ["first", "closed"],
    "numpy and memoryview aliases": ["True"],
    "closed before": ["True"],
}


# Without threads, processes or a status of their own: for every day all of them in one program, each in a namespace of
# its own, which lives to the end.
CALM = [
    "module globals",
    "atexit handlers that read views",
    "an error that is kept",
    "a chain of errors in a cycle",
    "weak references with callbacks",
    "context variables and generators",
    "tasks that never end",
    "a pool of threads",
    "autograd graphs",
    "numpy and memoryview aliases",
    "a collector that runs at the very end",
]
TOGETHER = (
    "spaces = []\n"
    f"for program in {[ENDS[name] for name in CALM]!r}:\n"
    "    spaces.append(dict(globals())); exec(program, spaces[-1])\n"
)
ENDS["many at once"] = TOGETHER
PRINTS["many at once"] = sorted(line for name in CALM for line in PRINTS.get(name, ()))


def run(names: list[str]) -> dict[str, End]:
    return run_to_the_end({name: START + ENDS[name] for name in names})


def check(name: str, end: End) -> None:
    session, *printed = end.output.splitlines()
    assert end.status == STATUS.get(name, 0), end.errors
    assert (sorted(printed) if name == "many at once" else printed) == PRINTS.get(name, [])
    if end.status == 1:
        assert end.errors.count("Traceback") == 1
        assert end.errors.endswith("RuntimeError: of the program\n")
    else:
        assert end.errors == ""
    if name == "forked and the child outlives":
        wait_for(lambda: left_behind(session) == [], what="the end of the child")
    if name == "os._exit":
        remove_dead_sessions()  # as the next session of this user does
        wait_until_gone(session)
    assert left_behind(session) == []


# The others, and those of the calm ones by themselves, take a second each: in the soak.
EVERY_DAY = [
    "many at once",
    "atexit handlers of before the first import of the session",
    "daemon threads that read what they hold",
    "daemon threads amid calls",
    "daemon threads that wait",
    "an error whose frames hold views",
    "finalizers that call the client",
    "sys.exit with views and threads",
    "forked and the child outlives",
]


@pytest.fixture(scope="module")
def ends() -> dict[str, End]:
    return run(EVERY_DAY)


@pytest.mark.parametrize("name", EVERY_DAY)
def test_the_end_of_an_interpreter_with_views(ends: dict[str, End], name: str) -> None:
    check(name, ends[name])


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_ends_again_and_again() -> None:
    """Each by itself, 20 times: what a daemon thread is in the middle of differs from one to the next."""
    for _ in range(20):
        for name, end in run(list(ENDS)).items():
            check(name, end)


# -- the end of client, session and threads ----------------------------------------------------------------------------


def held_views(client: tq.TransferQueueClient) -> tuple[tq.BatchMeta, list[object]]:
    meta = client.put(rows(EIGHT, 1), partition_id="p")
    return meta, [client.get_data(meta, mode=mode) for mode in ("cow", "shared", "copy")]


def test_views_outlive_the_client_and_the_session() -> None:
    """Both closed by this process; the session's own end removes its files."""
    with embedded() as session:
        _, views = held_views(session.client)
        written = views[0]["x"].clone()  # type: ignore[index]
        tq.close()
        for view in views:
            assert versions_of(view) == ONE  # type: ignore[arg-type]
        views[0]["x"].fill_(-1)  # type: ignore[index]
    assert left_behind(session.name) == []
    assert versions_of(views[1]) == ONE  # type: ignore[arg-type]
    assert torch.equal(views[2]["x"], written)  # type: ignore[index]
    assert views[0]["x"].unique().tolist() == [-1]  # type: ignore[index]
    with embedded(session.name) as again:  # the same name and owner numbers: the old views touch nothing of it
        meta, _ = held_views(again.client)
        views.clear()
        assert deeds.read(again.client, meta) == ONE


def test_views_outlive_a_session_that_somebody_else_ends() -> None:
    name = new_session_name()

    def creator(test: Connection) -> None:
        session = tq.init(session=name, **{"storage.size": "64MiB"})
        test.send(held_views(session.client)[0])
        test.recv()
        session.close()
        test.send("closed")
        test.recv()

    forked = Forked(creator)
    meta = forked.hear()
    session = tq.attach(name)
    try:
        views = [session.client.get_data(meta, mode=mode) for mode in ("cow", "shared")]
        forked.say()
        assert forked.hear() == "closed"
        assert [versions_of(view) for view in views] == [ONE, ONE]
        with pytest.raises(tq.SessionNotFoundError):
            session.client.get_data(meta)
        views[0]["x"].fill_(-1)
        # Of a session that is over: a child may read on, and what it drops concerns nobody.
        assert in_child(lambda: versions_of(views[1]) == ONE or os._exit(3)) == 0
    finally:
        forked.say()
        forked.join()
        tq.close()
    assert left_behind(name) == []
    assert versions_of(views[1]) == ONE
    assert views[0]["x"].unique().tolist() == [-1]


@pytest.mark.parametrize("first", ["parent", "child"])
def test_a_fork_whose_sides_close_in_either_order(first: str) -> None:
    with embedded() as session:
        client = session.client
        meta, views = held_views(client)

        def child(test: Connection) -> None:
            test.send("born")
            if first == "parent":
                test.recv()
            assert versions_of(views[1]) == ONE  # type: ignore[arg-type]
            tq.close()
            assert versions_of(views[0]) == ONE  # type: ignore[arg-type]
            views.clear()

        forked = Forked(child)
        assert forked.hear() == "born"
        if first == "child":
            assert forked.join() == 0
            assert deeds.read(client, meta) == ONE
        assert versions_of(views[0]) == ONE  # type: ignore[arg-type]
        tq.close()  # by the creator: the session is over
        views.clear()
        if first == "parent":
            forked.say()
            assert forked.join() == 0


def test_views_outlive_the_threads_that_read_them() -> None:
    with embedded() as session:
        client = session.client
        meta, views = held_views(client)
        views += [Call(client.get_data, meta, mode=mode).result() for mode in ("cow", "shared") for _ in range(4)]
        client.clear_samples(meta)
        deeds.fill_all_room(client, 0xEE)
        assert all(Call(versions_of, view).result() == ONE for view in views)
        assert sum(lease.views for lease in session.leases("p")) == len(views) - 1  # the copy holds nothing
        views.clear()
        wait_for(lambda: session.leases("p") == [], what="the end of the leases")
