"""Several commands at a time on one GPU: while one of them compiles, others train.

    python benchmarks/together.py JOBS.txt --out FOLDER --at-once 4 --seconds 560 --mps

A line of JOBS.txt is ``NAME: COMMAND``, in the order of their value; ``{out}`` in a command is FOLDER/NAME, or that of
another name with ``{out:NAME}``. What a command prints is in FOLDER/NAME.log. Commands that are still running when the
time is over are ended, and the rest is not begun: what they have written by then stays. ``--mps`` lets processes share
the GPU at the same instant (NVIDIA's MPS, if the machine has it), instead of one after another. The last line says how
each command ended. Needs the standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

POLL = 0.2  # seconds between two looks
Jobs = dict[str, str]


def read_jobs(path: Path, out: Path) -> Jobs:
    """Commands by name."""
    found: Jobs = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        name, colon, command = (part.strip() for part in line.partition(":"))
        if not re.fullmatch(r"[\w.-]+", name) or not colon or not command or name in found:
            print(f"{path}, line {number}: a line is NAME: COMMAND, each name once; got {line!r}", file=sys.stderr)
            sys.exit(2)
        folder = re.sub(r"\{out:([\w.-]+)\}", lambda match: str(out / match[1]), command)
        found[name] = folder.replace("{out}", str(out / name))
    return found


def run(jobs: Jobs, out: Path, at_once: int, seconds: float) -> dict[str, str]:
    """How each command ended: done, failed, cut off, not begun."""
    began, running, ends = time.monotonic(), dict[str, subprocess.Popen[bytes]](), dict.fromkeys(jobs, "not begun")
    waiting = list(jobs)
    while waiting or running:
        for name, process in list(running.items()):
            if process.poll() is not None:
                ends[name] = "done" if process.returncode == 0 else f"failed ({process.returncode})"
                print(f"{time.monotonic() - began:7.1f} s   {name}: {ends[name]}", flush=True)
                del running[name]
        if time.monotonic() - began > seconds:
            break
        while waiting and len(running) < at_once:
            name = waiting.pop(0)
            running[name] = start(jobs[name], out / f"{name}.log")
            print(f"{time.monotonic() - began:7.1f} s   {name}: begun", flush=True)
        time.sleep(POLL)
    for name, process in running.items():
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        ends[name] = "cut off"
    return ends


def start(command: str, log: Path) -> subprocess.Popen[bytes]:
    """``python`` is the one that runs this."""
    command = re.sub(r"(^|&& )python (?=\S)", lambda match: f"{match[1]}{shlex.quote(sys.executable)} ", command)
    with log.open("wb") as file:
        how = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
        return subprocess.Popen(command, shell=True, start_new_session=True, **how)  # type: ignore[call-overload,no-any-return]


def share(out: Path) -> bool:
    """Starts MPS for the processes to come; whether it runs."""
    if shutil.which("nvidia-cuda-mps-control") is None:
        return False
    for name in ("pipe", "log"):
        folder = out / f"mps-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        os.environ[f"CUDA_MPS_{name.upper()}_DIRECTORY"] = str(folder.resolve())
    return subprocess.run(["nvidia-cuda-mps-control", "-d"], check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--mps", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    jobs = read_jobs(given.jobs, given.out)
    if given.mps:
        print(f"MPS {'runs' if share(given.out) else 'is not there'}", flush=True)
    ends = run(jobs, given.out, given.at_once, given.seconds)
    if given.mps and shutil.which("nvidia-cuda-mps-control"):
        subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", check=False)
    print("; ".join(f"{name}: {how}" for name, how in ends.items()))
    sys.exit(any(how != "done" for how in ends.values()))


if __name__ == "__main__":
    main()
