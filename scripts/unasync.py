"""Write the synchronous client from the asynchronous one, or with --check see that it was written.

The two differ in names and in the absence of `await`, nothing else, so the twin is a list of substitutions and no
program that understands Python. A substitution that is never used is an error: it would hide a renamed class.

Usage: python scripts/unasync.py [--check]
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from difflib import unified_diff
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "client/kvledger/_async"
TARGET = ROOT / "client/kvledger/_sync"
HEADER = "# Generated from kvledger/_async/{} by scripts/unasync.py; change it there.\n"

# In a folder of its own the text has no package around it, so the sorter has to be told which names are ours.
KNOWN = 'lint.isort.known-first-party=["kvledger"]'

SUBSTITUTIONS = (
    (r"async def ", "def "),
    (r"async with\b", "with"),
    (r"await ", ""),
    (r"kvledger\._async", "kvledger._sync"),
    (r"  # noqa: ASYNC109 - .*", ""),
    (r"AsyncIterator", "Iterator"),
    (r"Awaitable, ", ""),
    (r"Awaitable\[(\w+)\]", r"\1"),
    (
        r"\bAsync(Cache|DevicePool|DeviceUnit|Filling|Hit|Link|Lookup|Recapture|Session|Standing|Topology|Transfer|Turn|Unit|UnitShard)\b",
        r"\1",
    ),
    (r"\basync_(attach|background|dial|join|readable|shielded|sleep|writable)\b", r"\1"),
    (r"__aenter__", "__enter__"),
    (r"__aexit__", "__exit__"),
    (r"asynccontextmanager", "contextmanager"),
    (r"Iterator, Iterator", "Iterator"),
    (r"contextmanager, contextmanager", "contextmanager"),
    (
        r"The asynchronous client, and the source from which scripts/unasync.py writes the synchronous one.",
        "The synchronous client, written by scripts/unasync.py from the asynchronous one.",
    ),
)


def twin(name: str, text: str, used: Counter[str]) -> str:
    """Return the synchronous text of one file, not yet formatted, counting the substitutions that were used."""
    for pattern, replacement in SUBSTITUTIONS:
        text, count = re.subn(pattern, replacement, text)
        used[pattern] += count
    return HEADER.format(name) + text


def formatted(texts: dict[str, str]) -> dict[str, str]:
    """Return texts as ruff sorts and formats them, since lines without `await` break elsewhere."""
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            Path(folder, name).write_text(text)
        for step in (["check", "--select", "I", "--fix", "--config", KNOWN], ["format"]):
            command = [sys.executable, "-m", "ruff", *step, "--quiet", "--config", str(ROOT / "pyproject.toml"), folder]
            subprocess.run(command, check=True, cwd=ROOT)
        return {name: Path(folder, name).read_text() for name in texts}


def twins() -> dict[Path, str]:
    """Return all files of the synchronous client with their text.

    Raises:
        SystemExit: A substitution was never used.
    """
    used: Counter[str] = Counter()
    texts = {path.name: twin(path.name, path.read_text(), used) for path in sorted(SOURCE.glob("*.py"))}
    unused = [pattern for pattern, _ in SUBSTITUTIONS if not used[pattern]]
    if unused:
        raise SystemExit(f"substitutions that were never used: {unused}; remove or repair them")
    return {TARGET / name: text for name, text in formatted(texts).items()}


def differences(found: dict[Path, str]) -> list[str]:
    """Return what differs between the files on disk and what they should be, as lines of a diff."""
    lines = [f"{path.name}: not generated, remove it" for path in sorted(TARGET.glob("*.py")) if path not in found]
    for path, text in found.items():
        old = path.read_text() if path.exists() else ""
        lines += unified_diff(old.splitlines(), text.splitlines(), str(path.name), "generated", lineterm="")
    return lines


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description="write the synchronous client from the asynchronous one")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    found = twins()
    if parser.parse_args().check:
        lines = differences(found)
        print("\n".join(lines) or f"{len(found)} twins are up to date")
        return bool(lines)
    TARGET.mkdir(exist_ok=True)
    for path, text in found.items():
        path.write_text(text)
    print(f"wrote {len(found)} files")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
