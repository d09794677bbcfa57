"""Make the pictures of docs/page.md anew: the demo's models, real engine processes, and what was damaged on purpose.

    .venv/bin/python scripts/page_screenshots.py

It needs what the demo needs, and a Chromium (`KVLEDGER_CHROMIUM` names one that is not found by itself); it takes a
minute on two cores. Every number in a picture was measured or counted in that run.
"""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from kvledger import Cache  # noqa: E402  as above
from kvledger.testing import Daemon  # noqa: E402  as above
from kvledgerd.demo.damage import Victim, damages, try_damage  # noqa: E402  as above
from kvledgerd.demo.engine_process import EngineProcess  # noqa: E402  as above
from kvledgerd.demo.messages import Compute, Serve  # noqa: E402  as above
from kvledgerd.demo.models import NAMES  # noqa: E402  as above
from kvledgerd.demo.prompts import Prompt, cuts_of, tokens_of  # noqa: E402  as above
from support.browser import Tab, browser, chromium  # noqa: E402  found by the line above
from support.page import Site, page_of  # noqa: E402  as above

PICTURES = ROOT / "docs" / "images"
MOST_BYTES = 200 << 10
WIDTH = 1200
SETTINGS = {"arena_bytes": "4MiB", "disk_bytes": "64MiB", "disk_segment_bytes": "4MiB", "audit_follow": True}


def main() -> int:
    """Let engines work, and look at it; returns the exit status."""
    program = chromium()
    if program is None:
        sys.stderr.write("there is no Chromium here; KVLEDGER_CHROMIUM names one\n")
        return 1
    PICTURES.mkdir(exist_ok=True)
    with Daemon(memory="64MiB", settings=SETTINGS) as daemon, page_of(daemon) as site:
        work(daemon)
        wait_until_told(daemon, site)
        with browser(program) as tab:
            look(tab, site)
    return 0


def work(daemon: Daemon) -> None:
    """Have three engines serve the demo's models: cold, warm, from disk, and over damage."""
    names = tuple(NAMES)
    with EngineProcess("prefill-0", daemon.socket, names, daemon.directory) as first:
        layouts = first.layouts()
        print("prefill-0 serves cold")
        for model in names:
            for prompt in (Prompt.MAIN, Prompt.PASSAGE):
                first.ask(Serve(model, prompt))
        with EngineProcess("decode-1", daemon.socket, names, daemon.directory) as second:
            second.layouts()
            print("decode-1 serves warm, over damage, and from disk")
            for model in names:
                for prompt in (Prompt.MAIN, Prompt.CONTINUED):
                    second.ask(Serve(model, prompt))
            with Cache.open(daemon.socket, name="operator") as cache:
                for model in names:
                    cold = second.ask(Compute(model, Prompt.PASSAGE, cuts_of(Prompt.PASSAGE)))
                    layout = cache.register(layouts[model])
                    victim = Victim(model, second, cache, layout, daemon.data_dir, cold)
                    for damage in damages(layout.layout.groups):
                        try_damage(victim, damage)
                    for boundary in cuts_of(Prompt.MAIN):
                        cache.offload(layout, tokens_of(Prompt.MAIN), boundary=boundary)


def wait_until_told(daemon: Daemon, site: Site) -> None:
    """Wait until the tables hold all that was done."""
    with Cache.open(daemon.socket, name="operator") as cache:
        seq = cache.status().seq
    while int(re.search(r"tables as of event ([0-9,]+)", site.get("/engines").body)[1].replace(",", "")) < seq:
        time.sleep(0.2)


def look(tab: Tab, site: Site) -> None:
    """Take the pictures that the page of documentation shows."""
    take(tab, site, "now", "/", 1080)
    take(tab, site, "verdicts", "/verdicts?misses=1", 900, dark=True)
    refused = "[...document.querySelectorAll('.stream tbody tr')].find(row => row.innerText.includes('bytes'))"
    to = tab.run(f"{refused}?.querySelector('td a').getAttribute('href')")
    take(tab, site, "verdict", to, 760)
    tab.go(f"{site.url}/tree")
    tab.run("document.querySelectorAll('button.open').forEach(button => button.click())")
    tab.until("document.querySelectorAll('.branches .branches').length")
    shoot(tab, "tree", 560)
    take(tab, site, "object", eventful(tab, site), 900)


def eventful(tab: Tab, site: Site) -> str:
    """Return where the window lives to which most has happened, of those at the boundary that was damaged."""
    lives = {}
    hrefs = "map(one => one.getAttribute('href'))"
    damaged = f"[...document.querySelectorAll('.boundaries a')].filter(a => a.text === '{cuts_of(Prompt.PASSAGE)[0]}')"
    # A branch has room for a few of its boundaries, its own page for all
    tab.go(site.url + tab.run(f"{damaged}[0].closest('ul').closest('li').querySelector('.hash').getAttribute('href')"))
    for prefix in tab.run(f"{damaged}.{hrefs}"):
        tab.go(site.url + prefix)
        for thing in tab.run(f"[...document.querySelectorAll('tr:has(.k-swa) a')].{hrefs}"):
            lives[thing] = site.get(thing).body.count("<tr>")
    return max(lives, key=lives.__getitem__)


def take(tab: Tab, site: Site, name: str, path: str, height: int, *, dark: bool = False) -> None:
    """Open a page and take its picture."""
    tab.go(site.url + path)
    shoot(tab, name, height, dark=dark)


def shoot(tab: Tab, name: str, height: int, *, dark: bool = False) -> None:
    """Take the picture of the page that is open."""
    file = PICTURES / f"page-{name}.png"
    tab.picture(file, WIDTH, height, dark=dark)
    print(f"{file.relative_to(ROOT)}: {file.stat().st_size >> 10} KiB")
    assert file.stat().st_size < MOST_BYTES, f"{file} is too large to be kept; make it lower"


if __name__ == "__main__":
    sys.exit(main())
