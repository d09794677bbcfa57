"""The page over real HTTP, beside a real daemon: what is on it, who is answered, and how it ends."""

from __future__ import annotations

import re
import socket
from http.client import HTTPException
from urllib.parse import quote

import pytest

from kvledger import Cache
from kvledger.kinds import Kind
from kvledger.testing import Daemon
from kvledgerd.page.handler import POLICY
from kvledgerd.web.server import CONNECTIONS
from support.browser import browser, chromium
from support.descriptors import open_files
from support.page import Site, free_port, page_of
from support.tiny import check, prompt, store, tiny_layout

EVIL = "<script>alert(1)</script>"


@pytest.fixture(scope="module")
def port():
    """Where the page is served."""
    return free_port()


@pytest.fixture(scope="module")
def daemon(port):
    """A daemon with a hit, a miss for each of two layers, objects on disk, and an engine with a hostile name."""
    with Daemon(memory="64MiB", settings={"http": f"127.0.0.1:{port}"}) as running:
        with Cache.open(running.socket, name="vllm-0") as cache, Cache.open(running.socket, name=EVIL) as other:
            layout, same = cache.register(tiny_layout()), other.register(tiny_layout())
            foreign = other.register(tiny_layout(EVIL, "w2"))
            for seed in (1, 2):
                store(cache, layout, seed)
            check(cache, layout, 1)
            check(other, same, 1)
            store(cache, layout, 1, tokens=90)
            cache.offload(layout, prompt(1), boundary=50)
            cache.evict(layout, prompt(2), kind=Kind.UNCOMPRESSED_TAIL, boundary=50, group="tail", block=-1)
            with other.acquire(same, [*prompt(2), 9]) as hit:
                assert not hit
            with other.acquire(foreign, [*prompt(1), 9]) as hit:
                assert not hit
        yield running


@pytest.fixture(scope="module")
def site(daemon, port):
    """The page that this daemon has started, once its tables hold all of it."""
    served = Site(port)
    served.when("/verdicts", "stored by other weights")
    return served


def link(page, beginning: str) -> str:
    """Return the first link of a page to somewhere."""
    return next(to for to in page.links if re.fullmatch(rf"{beginning}/[\d.]+", to))


def test_the_first_page_tells_what_is_full_and_what_fell(site):
    """Memory by kind and disk are bars, and below stand the latest verdicts in words."""
    page = site.get("/").page
    bars = [one["aria-label"] for one in page.all("svg") if one.get("class", "").startswith("bar")]
    assert len(bars) == len(Kind)
    assert all("64 MiB" in bar for bar in bars[:-1])
    assert bars[-1].endswith("GiB")
    assert "2 stored by other weights, or another model configuration" in page.text
    assert "3 the tail or recurrent state at this boundary is missing TAIL tail" in page.text
    assert "incarnation 1" in page.text


def test_links_lead_from_a_verdict_to_the_engine_that_stored(site):
    """Verdict, lease, object, prefix, block and engine are each one click further."""
    hit = next(one for one in _verdicts(site) if "were offered under lease" in one.text)
    lease = site.get(link(hit, "/leases")).page
    assert "Read under it and who had stored it" in lease.text
    assert site.get(link(lease, "/verdicts")).page.text == hit.text
    thing = site.get(link(lease, "/objects")).page
    assert "reserved unit" in thing.text
    assert "Who read it" in thing.text
    prefix = site.get(link(thing, "/prefixes")).page
    block = site.get(link(prefix, "/tree")).page
    assert "Objects of this block" in block.text
    engine = site.get(link(thing, "/engines")).page
    assert "Its verdicts" in engine.text


def _verdicts(site):
    stream = site.get("/verdicts").page
    return [site.get(to).page for to in stream.links if re.fullmatch(r"/verdicts/\d+", to)]


def test_the_tree_shows_what_is_kept(site):
    """Each prompt is a branch of three blocks with its boundary; what is on disk too or has gone is told."""
    page = site.get("/tree").page
    assert page.text.count("3 blocks, to token 48") == 2
    assert "KV 4 4 on disk TAIL 1 1 on disk 50 KV TAIL tiny" in page.text
    assert "KV 4 50 KV TAIL tiny, 1 of 2 kept" in page.text
    assert "The tree ends here" in site.get(link(page, "/tree")).page.text


def test_search_finds_by_hash_number_and_name(site):
    """The first digits of a hash, a number and a part of a name lead to what they name; a pattern is no pattern."""
    digest = next(one["title"] for one in site.get("/tree").page.all("a") if one.get("class") == "hash")
    assert link(site.get(f"/search?q={digest[:10].upper()}").page, "/tree")
    assert link(site.get("/search?q=1.0").page, "/objects") == "/objects/1.0"
    assert link(site.get("/search?q=vllm").page, "/engines")
    assert "model tiny layout 1" in site.get("/search?q=tin").page.text
    for nothing in ("%", "", "zzzz", "9" * 30, "1.99", "\u0661"):
        assert "Nothing found" in site.get(f"/search?q={quote(nothing)}").page.text


def test_no_page_holds_what_an_engine_would_have_run(site):
    """Every page that can be reached is well formed and holds nothing but the elements of its template."""
    seen, queue = set(), ["/"]
    while queue and len(seen) < 60:
        path = queue.pop(0)
        page = site.get(path).page
        assert page.faults() == [], path
        seen.add(path)
        queue += [to for to in page.links if to.startswith("/") and to not in {*seen, *queue}]
    assert {re.sub(r"\d.*", "", path) for path in seen} >= {"/", "/engines", "/engines/", "/tree", "/objects/"}


def test_every_answer_bears_the_policy(site):
    """Pages, files, refusals and errors alike forbid scripts of others, frames and sniffing."""
    for reply in (site.get("/"), site.get("/static/page.js"), site.get("/nowhere"), site.get("/", method="BREW")):
        assert POLICY.items() <= reply.headers.items()
    assert "'unsafe" not in POLICY["Content-Security-Policy"]


def test_only_this_machine_is_answered_and_only_to_read(site):
    """A foreign Host header is refused with 421, a method that writes with 405, and HEAD has headers alone."""
    for host in ("evil.example", "127.0.0.1.evil.example:80", ""):
        assert site.get("/", Host=host).status == 421
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        refused = site.get("/", method=method)
        assert (refused.status, refused.headers["Allow"]) == (405, "GET, HEAD")
    head = site.get("/verdicts", method="HEAD")
    assert (head.status, head.body) == (200, "")
    assert int(head.headers["Content-Length"]) > 0


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere",
        "/verdicts/1",
        "/objects/99.9",
        "/leases/5",
        "/tree/999",
        "/prefixes/999",
        "/engines/999",
        "/verdicts/" + "9" * 30,
        "/static/../page/site.py",
        "/static/%2e%2e/words.py",
        "/%3Cscript%3Ealert(1)%3C/script%3E",
        "//evil.example/",
        "/%00",
    ],
)
def test_what_is_not_there_is_a_page_too(site, path):
    """An address that leads nowhere is answered with 404 and a page that says so."""
    reply = site.get(path)
    assert reply.status == 404
    assert reply.page.faults() == []
    assert "Not found" in reply.page.text


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\xff\xfe\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
        b"GET //[ HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /search?q=%ff%fe%00" + b"&a=1" * 40 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 70_000 + b"\r\n\r\n",
    ],
)
def test_nonsense_is_refused(site, request_bytes):
    """What no browser sends is refused or dropped, and the next one is answered."""
    with socket.create_connection(("127.0.0.1", site.port), 10) as client:
        try:
            client.sendall(request_bytes)
            client.shutdown(socket.SHUT_WR)
            said = b"".join(iter(lambda: client.recv(1 << 16), b""))
        except ConnectionError:
            said = b""
    assert b" 200 " not in said.partition(b"\r\n")[0]
    assert site.get("/").status == 200


def test_what_has_not_changed_is_not_sent_again(site):
    """A browser that has a page already is told so by its tag."""
    first = site.get("/static/page.css")
    again = site.get("/static/page.css", If_None_Match=first.headers["ETag"])
    assert (again.status, again.body) == (304, "")


def is_answered(site) -> bool:
    """Tell whether there is a place for one more connection."""
    try:
        site.get("/")
    except (ConnectionError, HTTPException):
        return False
    return True


def test_silent_browsers_are_bounded(site):
    """With all places taken by connections that say nothing, one more is closed, and the page is back when they go."""
    silent = []
    try:
        # Connections are taken in their order, but who was answered before may have kept its place for a moment.
        while len(silent) < CONNECTIONS or is_answered(site):
            assert len(silent) < CONNECTIONS + 8, "nobody is turned away"
            silent.append(socket.create_connection(("127.0.0.1", site.port), 10))
    finally:
        for one in silent:
            one.close()
    assert site.when("/", "Latest verdicts")


@pytest.mark.slow
def test_a_daemon_serves_its_page_and_takes_it_along(tmp_path):
    """With `http` the page comes and goes with the daemon, also by a kill; one of its own tells of the past then."""
    site = Site(free_port())
    settings = {"http": f"127.0.0.1:{site.port}"}
    with Daemon(memory="64MiB", settings=settings, directory=tmp_path / "d") as running:
        with Cache.open(running.socket, name="vllm-0") as cache:
            check(cache, cache.register(tiny_layout()), 1)
        site.when("/", "incarnation 1")
        running.kill()
        running.wait_ready()
        with page_of(running) as own:
            site.when("/", "incarnation 2")
            running.stop()
            assert "vllm-0" in own.when("/", "No daemon answers").text
        with pytest.raises(ConnectionRefusedError):
            site.get("/")


def test_a_unix_socket_is_for_its_group(daemon, site, tmp_socket_dir):
    """At a Unix socket the page has mode 0660; it keeps no file of the data open, and takes its socket away."""
    path = tmp_socket_dir / "page"
    with page_of(daemon, "--http", str(path)) as served:
        assert path.stat().st_mode & 0o777 == 0o660
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /engines HTTP/1.0\r\nHost: localhost\r\n\r\n")
            assert client.recv(64).startswith(b"HTTP/1.0 200")
        assert not [file for _, file in open_files(served.process.pid) if file.startswith(f"{daemon.data_dir}/")]
    assert not path.exists()


@pytest.fixture(scope="module")
def tab():
    """A tab of a real browser; skipped where there is none."""
    program = chromium()
    if program is None:
        pytest.skip("there is no Chromium on this machine; KVLEDGER_CHROMIUM names one")
    with browser(program) as opened:
        yield opened


def test_a_browser_shows_every_page_without_complaint(tab, site):
    """Styles and script are let in by the policy, and of what an engine is called nothing runs."""
    for path in ("/", "/verdicts", "/verdicts?misses=1", "/tree", "/engines", "/objects/1.0", "/search?q=script"):
        tab.go(site.url + path)
        assert tab.run("getComputedStyle(document.querySelector('header')).display") == "flex"
        assert tab.run("[...document.scripts].map(one => new URL(one.src).pathname).join()") == "/static/page.js"
        assert tab.run("document.documentElement.scrollWidth <= innerWidth"), f"{path} is wider than its window"
    assert EVIL in tab.run("document.body.innerText") or EVIL in site.get("/engines").page.text
    assert tab.said == []


def test_a_browser_shows_verdicts_as_they_fall(tab, site, daemon):
    """A verdict comes into the open page by itself, and while the page is paused none does."""
    tab.go(f"{site.url}/verdicts")
    newest = "Number(document.querySelector('.stream tbody a').textContent)"
    before = tab.run(newest)
    with Cache.open(daemon.socket, name="late") as cache:
        check(cache, cache.register(tiny_layout()), 1)
    tab.until(f"{newest} > {before}")
    asked = "renewed = 0; renew = async () => { renewed += 1; }; goOn(); renewed"
    assert tab.run(asked) == 1
    tab.run("document.getElementById('pause').click()")
    assert tab.run("document.getElementById('pause').textContent") == "Go on"
    assert tab.run(asked) == 0
    assert tab.said == []


def test_a_page_that_is_not_answered_says_so(tab, site):
    """While nobody renews what is open, a line says that it is old, and goes when it is renewed."""
    tab.go(f"{site.url}/")
    shown = "document.getElementById('stale').checkVisibility()"
    assert tab.run(shown) is False
    tab.run("usual = renew; renew = async () => { throw new Error('gone'); }; goOn()")
    assert tab.run(shown) is True
    tab.run("renew = usual; goOn()")
    assert tab.run(shown) is False
    assert tab.said == []


def test_a_branch_opens_in_place(tab, site):
    """The button before a branch shows what lies behind it, and hides it again, and says which to a screen reader."""
    tab.go(f"{site.url}/tree")
    assert tab.run("document.querySelectorAll('button.open:not([hidden])').length") == 1
    tab.run("document.querySelector('button.open').click()")
    text = tab.until("document.querySelector('.branches .branches')?.innerText")
    assert "2 blocks, to token 80" in text
    assert tab.run("document.querySelector('button.open').ariaExpanded") == "true"
    tab.run("document.querySelector('button.open').click()")
    assert tab.run("document.querySelector('.branches .branches').checkVisibility()") is False
    assert tab.said == []
