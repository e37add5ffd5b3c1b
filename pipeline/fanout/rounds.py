"""One stage on the workers: batches sent out as places come free, collected as they end, sent again where it helps.

A batch is sized to take about half a second, so that small partitions cost little each and large ones go one by one.
"""

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any

from distributed import Client, Future, KilledWorker

from pipeline.errors import ClusterError, InvalidInputError, StageError, StoreError, described
from pipeline.fanout import worker
from pipeline.fanout.faults import TRIES, is_passing
from pipeline.stages.stage import MIB, Work

BATCH_SECONDS = 0.5
LARGEST_BATCH = 256
# Batches under way for each thread of the workers: one on its way to the disk, one that it computes, the next.
BATCHES_PER_THREAD = 3
POLL_SECONDS = 0.2


def batch_size(seconds_each: float | None, n_waiting: int, n_threads: int) -> int:
    """How many partitions to send together: as many as take BATCH_SECONDS, one while that is not known, and towards the
    end fewer, so that no thread is left with much when the others have nothing more."""
    if seconds_each is None:
        return 1
    affordable = int(BATCH_SECONDS / max(seconds_each, 1e-6))
    share = -(-n_waiting // (BATCHES_PER_THREAD * max(1, n_threads)))
    return max(1, min(affordable, share, LARGEST_BATCH))


class Fanout:
    """Computes the partitions of stages on the workers of a client; give it to `run_stage`."""

    def __init__(
        self, client: Client, wait_seconds: float, peaks: Mapping[str, int], notice: Callable[[str], None]
    ) -> None:
        self.client, self.notice = client, notice
        self._wait_seconds, self._peaks = wait_seconds, peaks
        self._workers: dict[str, int] = {}
        self._memory = 0
        self._looked = self._seen = time.monotonic()

    def __call__(self, work: Work, partitions: Sequence[int], computed: Callable[[int], None]) -> None:
        packed = worker.packed(work)
        try:
            Round(self, work.stage.name, packed, partitions, computed).run()
        finally:
            self._release(packed)

    def n_threads(self) -> int:
        """Threads of all workers, asked for once a second; an error if there have been none for too long."""
        now = time.monotonic()
        if not self._workers or now - self._looked > 1:
            self._look(now)
        return sum(self._workers.values())

    def short_of_memory(self, stage: str, partition: int, what: str) -> StageError:
        """A partition that did not fit, and what to do about it."""
        needed = f"; the stage is predicted to need {self._peaks[stage] / MIB:,.0f} MiB" if stage in self._peaks else ""
        limit = f"workers have {self._memory / MIB:,.0f} MiB each{needed}; " if self._memory else ""
        remedy = "raise cluster.memory_mib, start fewer workers or threads, or lower partition_mib"
        return StageError(stage, partition, f"{what}, most likely for lack of memory: {limit}{remedy}.")

    def _look(self, now: float) -> None:
        # Not scheduler_info(), which may answer from a cache without workers.
        scheduler: Any = self.client.scheduler
        infos = self.asked(partial(self.client.sync, scheduler.identity, n_workers=-1))["workers"]
        workers = {address: int(info["nthreads"]) for address, info in infos.items()}
        self._memory = min((info["memory_limit"] or 0 for info in infos.values()), default=self._memory)
        lost = set(self._workers) - set(workers)
        if lost:
            self.notice(f"lost {len(lost)} of {len(self._workers)} workers; what they had under way is computed again")
        self._workers, self._looked = workers, now
        if workers:
            self._seen = now
        elif now - self._seen > self._wait_seconds:
            raise ClusterError(
                f"no workers are left at {self._address} for {self._wait_seconds:g} s; what is complete is kept: start "
                "workers and run the same command again."
            )

    def asked(self, question: Callable[[], Any]) -> Any:
        """The scheduler's answer; whatever goes wrong with asking is a lost connection."""
        try:
            return question()
        except Exception as error:
            raise self.lost_scheduler(error) from error

    def lost_scheduler(self, error: object = "") -> ClusterError:
        return ClusterError(
            f"the connection to the Dask scheduler at {self._address} was lost{f' ({error})' if str(error) else ''}; "
            "what is complete is kept: run the same command again."
        )

    @property
    def _address(self) -> str:
        return str(self.client.scheduler.address) if self.client.scheduler else "its address"

    def _release(self, packed: bytes) -> None:
        """Have the workers let go of the stage; not waiting, for one that hangs would hang this too."""

        async def tell() -> None:
            with suppress(Exception):  # the next stage, or the end of the worker, has the same effect
                await self.client.run(worker.release, packed, wait=False, asynchronous=True)

        if self.client.status == "running" and self.client.loop is not None:
            self.client.loop.add_callback(tell)


class Pace:
    """How long a partition takes a thread, told from when batches end."""

    def __init__(self) -> None:
        self.seconds_each: float | None = None
        self._start = time.monotonic()
        self._first_end: float | None = None
        self._n_since = 0

    def ended(self, n_partitions: int, n_threads: int) -> None:
        """A batch of so many partitions is done. The first also had to wait for the stage to be loaded."""
        now = time.monotonic()
        if self._first_end is None:
            self._first_end, self.seconds_each = now, (now - self._start) / n_partitions
        else:
            self._n_since += n_partitions
            self.seconds_each = (now - self._first_end) * n_threads / self._n_since


class Round:
    """The partitions of one stage, from the first batch to the last."""

    def __init__(
        self, fanout: Fanout, stage: str, packed: bytes, partitions: Sequence[int], computed: Callable[[int], None]
    ) -> None:
        self._fanout, self._computed = fanout, computed
        self._stage, self._packed = stage, packed
        # Unlike any other's: Dask answers a key that it knows with what it has.
        self._token = uuid.uuid4().hex[:8]
        self._waiting = deque(partitions)
        self._suspects: deque[int] = deque()
        self._flying: dict[Future[None], list[int]] = {}
        self._ended: SimpleQueue[Future[None]] = SimpleQueue()
        self._tries: Counter[int] = Counter()
        self._n_sent, self._convicting = 0, False
        self._pace = Pace()

    def run(self) -> None:
        """Until every partition is committed. On any failure or interruption, what is under way is taken back."""
        try:
            while self._waiting or self._flying or self._suspects:
                self._send()
                self._collect()
        except BaseException:
            self._take_back()
            raise

    def _take_back(self) -> None:
        if self._flying and self._fanout.client.status == "running":
            with suppress(Exception):  # the scheduler may be gone; what led here is what to tell of
                self._fanout.client.cancel(list(self._flying), force=True)

    def _send(self) -> None:
        n_threads = self._fanout.n_threads()
        while self._waiting and len(self._flying) < BATCHES_PER_THREAD * n_threads:
            size = batch_size(self._pace.seconds_each, len(self._waiting), n_threads)
            self._submit([self._waiting.popleft() for _ in range(min(size, len(self._waiting)))])
        if self._suspects and not self._flying and not self._waiting:
            self._convicting = True
            self._submit([self._suspects.popleft()])

    def _submit(self, batch: list[int]) -> None:
        self._n_sent += 1
        key = f"{self._stage}-{self._token}-{self._n_sent}"
        submit = partial(self._fanout.client.submit, worker.run_batch, self._packed, batch, key=key, pure=False)
        self._await(self._fanout.asked(submit), batch)

    def _await(self, future: "Future[None]", batch: list[int]) -> None:
        self._flying[future] = batch
        future.add_done_callback(self._ended.put)

    def _collect(self) -> None:
        """Take in what has ended, waiting a moment for it."""
        try:
            future = self._ended.get(timeout=POLL_SECONDS)
        except Empty:
            self._fanout.n_threads()
            return
        batch = self._flying.pop(future)
        if future.status == "finished":
            self._pace.ended(len(batch), self._fanout.n_threads())
            for partition in batch:
                self._computed(partition)
        elif future.status == "error":
            self._failed(batch, future.exception())
        elif future.status in ("pending", "lost"):
            self._await(future, batch)  # its worker died with the answer; Dask computes it again
        else:
            raise self._fanout.lost_scheduler()

    def _failed(self, batch: list[int], failure: BaseException) -> None:
        """Partitions before the one that failed are committed, and found so when the batch is sent again."""
        if isinstance(failure, KilledWorker):
            self._killed(batch)
            return
        if not isinstance(failure, StageError | InvalidInputError | StoreError):
            failure = StageError(self._stage, batch[0], failure)
        culprit = failure.partition if isinstance(failure, StageError) else batch[0]
        self._tries[culprit] += 1
        if not is_passing(failure) or self._tries[culprit] >= TRIES:
            if isinstance(failure, StageError) and isinstance(failure.cause, MemoryError):
                raise self._fanout.short_of_memory(self._stage, culprit, "does not fit into memory") from failure
            raise failure
        self._fanout.notice(f"{described(failure)}; trying it again")
        self._waiting.extend(batch)

    def _killed(self, batch: list[int]) -> None:
        """Dask has given up on a batch whose workers died again and again: each of its partitions is tried again when
        nothing else is under way, and the one that does the same then is named."""
        if self._convicting:
            raise self._fanout.short_of_memory(self._stage, batch[0], "ended every worker that tried it")
        self._suspects.extend(batch)
