"""What the pages say about installation, done by a reader: each line in an environment that has nothing yet.

pip and its index are what whoever runs the tests has. The tutorial's own installation is tried in `test_tutorial.py`.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
import urllib.request
import venv
from pathlib import Path

import pytest

from docs.pages import ROOT, blocks, shell_line
from docs.terminal import Terminal, require_index
from docs.test_pages import DATA, END, SOCKET, program, served
from kvledger import Cache
from kvledger.testing import Daemon
from kvledgerd.exits import Exit
from support.postgres import postgres_url
from support.tiny import store, tiny_layout

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
README = "README.md"


@pytest.fixture
def terminal(tmp_path):
    """A terminal in which an environment is active that holds pip alone."""
    require_index()
    venv.create(tmp_path / "env", with_pip=True)
    with Terminal(tmp_path, tmp_path / "env/bin") as opened:
        yield opened


@pytest.fixture(scope="module")
def daemon():
    """A daemon of this environment, for readers who install what asks one."""
    with Daemon(memory="64MiB") as running:
        with Cache.open(running.socket, name="reader") as cache:
            store(cache, cache.register(tiny_layout()), 1)
        yield running


def there(terminal) -> set[str]:
    """Return the packages of an environment."""
    return {one["name"].lower() for one in json.loads(terminal.type("pip list --format=json"))}


def of_extras() -> set[str]:
    """Return the packages that only an extra brings."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return {re.match(r"[\w-]+", one)[0].lower() for lines in extras.values() for one in lines}


def test_the_client_alone_is_all_that_an_engine_needs(terminal, daemon, tmp_path):
    """It brings the packages that stand behind the line and none of an extra, and runs the README's own example."""
    line = shell_line(README, "pip install . ")
    terminal.type(line)
    told = re.search(r"# the client alone: (.*)", line)[1].split(", ")
    assert set(told) <= there(terminal)
    assert there(terminal).isdisjoint(of_extras())
    example = tmp_path / "example.py"
    example.write_text(program(README)[0].replace(SOCKET, str(daemon.socket)), encoding="utf-8")
    (printed,) = [block.text for block in blocks(README) if block.is_printed]
    assert terminal.type(f"python {example}") == f"{printed}{END}\n"
    terminal.type("kvledger status", code=Exit.CONFIG)
    assert "pip install 'kvledger[daemon]'" in terminal.errors()


def test_daemon_and_adapter_come_with_their_extras(terminal, tmp_path):
    """The next line of the README starts a daemon, and the adapter can be imported."""
    torch = pytest.importorskip("torch")
    if torch.version.cuda is not None:
        pytest.skip("the torch of this environment is the one with CUDA, whose libraries are many packages")
    # It is there first, as the page advises; outside of the environment, where pip never removes anything
    lent, (site,) = tmp_path / "lent", (tmp_path / "env/lib").glob("python*/site-packages")
    lent.mkdir()
    (site / "lent.pth").write_text(f"{lent}\n", encoding="utf-8")
    for name in ("torch", "torchgen", "functorch", f"torch-{torch.__version__}.dist-info"):
        (lent / name).symlink_to(Path(torch.__file__).parents[1] / name)
    said = terminal.type(shell_line(README, "pip install '.[daemon,transformers]'"))
    assert re.search(r"Requirement already satisfied: torch\S* in", said)
    with served(shlex.split(shell_line(README, "kvledger serve --data")), tmp_path / "env/bin/kvledger"):
        terminal.type("python -c 'from kvledger.adapters.transformers import TransformersCache'")


def test_a_page_comes_with_its_extra(terminal, daemon):
    """What docs/page.md types serves a page."""
    terminal.type(shell_line("docs/page.md", "pip install '.[daemon,page]'"))
    line = shell_line("docs/page.md", "kvledger page --http 127.0.0.1:9465")
    line = line.replace(":9465", ":0").replace(DATA, str(daemon.data_dir)).replace(SOCKET, str(daemon.socket))
    terminal.type(f"{line} > ~/said & served=$!")
    terminal.type("until grep -q 'page at' ~/said; do kill -0 $served && sleep 0.1 || break; done")
    with urllib.request.urlopen(terminal.type("cat ~/said").split()[-1], timeout=60) as reply:
        assert "incarnation 1" in reply.read().decode()
    terminal.type("kill $served && wait $served")


def test_an_audit_database_comes_with_its_extra(terminal, daemon, tmp_path):
    """A server's database is filled, and Alembic brings a file up to the newest revision, as docs/audit.md types it."""
    terminal.type(shell_line("docs/audit.md", "pip install '.[daemon,audit]'"))
    migrate = shell_line("docs/audit.md", "alembic").replace(f"{DATA}/audit.db", str(tmp_path / "audit.db"))
    assert terminal.type(migrate.replace("upgrade head", "current")) == ""
    terminal.type(migrate)
    assert "(head)" in terminal.type(migrate.replace("upgrade head", "current"))
    with postgres_url() as url:
        assert "event" in terminal.type(f"kvledger audit project --data {daemon.data_dir} --db '{url}'")


def test_what_make_installs_runs_and_is_gone_behind_make_uninstall(tmp_path):
    """Staged in DESTDIR, moved to PREFIX like a package, it serves there, and uninstalling leaves settings alone."""
    require_index()
    stage, prefix, etc = tmp_path / "stage", tmp_path / "prefix", tmp_path / "etc"
    where = f"PREFIX={prefix} SYSCONFDIR={etc}"
    with Terminal(tmp_path) as terminal:
        terminal.type(f"{shell_line('docs/operations.md', 'make install ').partition('#')[0]} {where} DESTDIR={stage}")
        assert not prefix.exists()
        for one in (prefix, etc):
            shutil.move(f"{stage}{one}", one)
        assert [path for path in stage.rglob("*") if path.is_file()] == []
        unit = (prefix / "lib/systemd/system/kvledger.service").read_text(encoding="utf-8")
        started = re.search(r"^ExecStart=(.*)", unit, re.MULTILINE)[1].split()
        assert started[0] == str(prefix / "bin/kvledger")
        with served(started, started[0]):
            pass
        terminal.type(f"{shell_line('docs/operations.md', 'make uninstall')} {where}")
    assert [path for path in prefix.rglob("*") if path.is_file()] == []
    assert [path.name for path in etc.rglob("*") if path.is_file()] == ["kvledger.toml"]
