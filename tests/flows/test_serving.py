"""What is served ends with the one who serves, whatever it does about it."""

import subprocess
import sys

import psutil

from flows import serving

RUN = "import time; time.sleep(100)"
# A worker that hears of no end, and a run of it in a session of its own.
DEAF = f"""
import signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = subprocess.Popen([sys.executable, "-c", {RUN!r}], start_new_session=True)
print(run.pid, flush=True)
time.sleep(100)
"""

# A worker that hears of no end either, but looks after its parent, and a run of it.
WATCHFUL = f"""
import signal, subprocess, sys
from flows.child_process import end_after
signal.signal(signal.SIGTERM, signal.SIG_IGN)
run = subprocess.Popen([sys.executable, "-c", {RUN!r}], start_new_session=True)
print(run.pid, flush=True)
end_after(int(sys.argv[1]))
"""
SERVING = f"""
import os, subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-c", {WATCHFUL!r}, str(os.getpid())])
print(worker.pid, flush=True)
time.sleep(100)
"""


def have_ended(processes):
    _, alive = psutil.wait_procs(processes, timeout=20)
    return all(process.status() == psutil.STATUS_ZOMBIE for process in alive)


def test_a_worker_that_does_not_end_is_killed_and_its_runs_with_it(monkeypatch):
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(serving, "LAST_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True) as worker:
        run = psutil.Process(int(worker.stdout.readline()))
        serving._stop_with_runs(worker)
        assert worker.returncode < 0
        assert have_ended([run])


def test_a_worker_ends_itself_and_its_runs_when_the_one_who_serves_was_killed():
    with subprocess.Popen([sys.executable, "-c", SERVING], stdout=subprocess.PIPE) as serving_process:
        worker, run = (psutil.Process(int(serving_process.stdout.readline())) for _ in range(2))
        serving_process.kill()
        assert have_ended([worker, run])
