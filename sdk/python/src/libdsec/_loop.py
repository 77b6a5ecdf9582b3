"""The event loop behind the synchronous interface: one thread per process, started at first use,
closed at exit.

Callers on any thread hand a coroutine over and sleep until it is done. A forked child starts with
none and makes its own; its parent's connections were dropped in _transport.py.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from .errors import RequestCancelledError

T = TypeVar("T")
_EXIT_SECONDS = 3.0


class _Call(Generic[T]):
    """One coroutine, made on the loop: where it is made, it is also begun, whatever interrupts the
    caller.

    It waits on a bare lock; a concurrent.futures.Future takes half as long again per call.
    """

    __slots__ = ("_task", "_work", "done")

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._work = work
        self._task: asyncio.Task[T] | None = None
        self.done = threading.Lock()  # held until it is
        self.done.acquire()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._finish)

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        assert self._task is not None
        try:
            return self._task.result()
        except asyncio.CancelledError:
            raise RequestCancelledError("the event loop was closed") from None

    def _finish(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: after a KeyboardInterrupt nobody asks for it
        self.done.release()


class LoopThread:
    """Runs coroutines for other threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._abandoned: list[object] = []
        self._exiting = False

    def run(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of the coroutine that `work` makes. An exception in the caller, such as
        KeyboardInterrupt, cancels it.
        """
        if threading.current_thread() is self._thread:
            raise RuntimeError("the synchronous interface was called from its own event loop")
        # From a destructor: no thread can be started any more, waiting would hang.
        if self._exiting:
            raise RuntimeError("the interpreter is exiting")
        loop = self._running_loop()
        call = _Call(work)
        try:
            loop.call_soon_threadsafe(call.start)
            call.done.acquire()
        except BaseException:
            loop.call_soon_threadsafe(call.cancel)
            raise
        return call.result()

    def close(self) -> None:
        """Closes what is open on the loop and ends the thread, bounded. `run` starts it anew."""
        with self._lock:
            loop, thread = self._loop, self._thread
            self._loop = self._thread = None
        if loop is None or thread is None:
            return
        loop.call_soon_threadsafe(loop.stop)
        thread.join(_EXIT_SECONDS)

    def close_at_exit(self) -> None:
        self._exiting = True
        self.close()

    def forget_after_fork(self) -> None:
        # Kept and never touched: closing the copy would take the parent's descriptors out of the
        # shared epoll.
        self._abandoned.append((self._loop, self._thread))
        self._lock = threading.Lock()
        self._loop = self._thread = None

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        loop = self._loop
        if loop is not None:
            return loop
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=_serve, args=(self._loop,), name="libdsec", daemon=True
                )
                self._thread.start()
            return self._loop


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
        while tasks := asyncio.all_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.run_until_complete(loop.shutdown_asyncgens())  # closes the clients
    finally:
        loop.close()


loop_thread = LoopThread()
os.register_at_fork(after_in_child=loop_thread.forget_after_fork)
atexit.register(loop_thread.close_at_exit)
