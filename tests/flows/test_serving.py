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


def test_a_worker_that_does_not_end_is_killed_and_its_runs_with_it(monkeypatch):
    monkeypatch.setattr(serving, "STOP_SECONDS", 0.2)
    monkeypatch.setattr(serving, "LAST_SECONDS", 0.2)
    with subprocess.Popen([sys.executable, "-c", DEAF], stdout=subprocess.PIPE, start_new_session=True) as worker:
        run = psutil.Process(int(worker.stdout.readline()))
        serving._stop_with_runs(worker)
        assert worker.returncode < 0
        _, alive = psutil.wait_procs([run], timeout=10)
        assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)
