"""``python -m kvledgerd.gpu``: every check that needs a GPU, in under three minutes; ``make gpu`` runs it.

It prints a table of the kernels, a line each on a model that was resumed on the device, on a captured graph and on the
daemon's tensor worker, and ends with one JSON object. Exit codes: 0 if all is well, 1 if something differs, 75
(`Exit.UNAVAILABLE`) if there is no GPU that torch and Triton can use; then nothing is claimed.
"""

import datetime as dt
import sys
from typing import Any

import msgspec

from kvledgerd.exits import Exit

__all__ = ["main"]


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _why_none() -> str:
    """Return why there is no GPU to check on, empty if there is one."""
    try:
        import torch  # noqa: PLC0415 - a daemon without torch may be asked as well
    except ImportError:
        return "torch is not installed: install kvledger[gpu]"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no GPU"
    from kvledger_kernels.runtime import triton  # noqa: PLC0415 - as above

    return "" if triton is not None else "Triton is not installed: install kvledger[gpu]"


def _machine(device: str) -> dict[str, str]:
    import torch  # noqa: PLC0415 - known to be there by now
    import triton  # noqa: PLC0415 - as above

    today = dt.datetime.now(tz=dt.UTC).date().isoformat()
    versions = {"torch": torch.__version__, "triton": triton.__version__, "cuda": str(torch.version.cuda)}
    return {"card": torch.cuda.get_device_name(device), **versions, "date": today}


def _checked(device: str, size: int | None = None) -> dict[str, Any]:
    from kvledger.testing import Daemon  # noqa: PLC0415 - what needs torch is loaded once a GPU was found
    from kvledgerd.gpu.graphs import check_graph  # noqa: PLC0415 - as above
    from kvledgerd.gpu.kernels import BYTES, check_kernels  # noqa: PLC0415 - as above
    from kvledgerd.gpu.resume import check_resume  # noqa: PLC0415 - as above
    from kvledgerd.gpu.worker import check_worker  # noqa: PLC0415 - as above

    kernels = []
    for line in check_kernels(device, size or BYTES):
        _say(f"  {line}")
        kernels.append(line)
    with Daemon(memory="256MiB", settings={"tensor_device": device}) as daemon:
        resume, graph, worker = check_resume(daemon, device), check_graph(daemon, device), check_worker(daemon)
    _say(f"  {resume}\n  {graph}\n  {worker}")
    ok = all(line.equal for line in kernels) and resume.good and graph.equal and graph.captured
    lines = {line.name: line._asdict() for line in kernels}
    report = {"kernels": lines, "resume": resume._asdict(), "graph": graph._asdict(), "worker": worker._asdict()}
    return {"ok": ok and worker.equal and worker.on_gpu, **report}


def main() -> int:
    """Check what needs a GPU; return the exit code."""
    why = _why_none()
    if why:
        sys.stderr.write(f"no GPU to check on: {why}. Nothing was checked.\n")
        _say(msgspec.json.encode({"gpu": None, "why": why}).decode())
        return Exit.UNAVAILABLE
    device = "cuda:0"
    machine = _machine(device)
    _say(", ".join(f"{name} {value}" for name, value in machine.items()))
    report = {"gpu": machine, **_checked(device)}
    _say(msgspec.json.encode(report).decode())
    return 0 if report["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
