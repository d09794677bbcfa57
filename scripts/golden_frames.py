"""Write tests/golden/frames.json: one frame of every message, as bytes that other implementations can be tested with.

Usage: python scripts/golden_frames.py [--check]
"""

import argparse
import json
from pathlib import Path

from kvledger.epochs import EpochState
from kvledger.kinds import Form, Kind
from kvledger.layout import GroupSpec, KernelABI, Layout
from kvledger.verdict import Code, Cut, Exactness, Layer
from kvledger.wire import replies, requests
from kvledger.wire.framing import REPLY_MAX, encode_frame
from kvledger.wire.quotas import QuotaInfo
from kvledger.wire.replies import Reply
from kvledger.wire.requests import Request
from kvledger.wire.tenants import TenantInfo

TARGET = Path(__file__).resolve().parent.parent / "tests/golden/frames.json"

HASHES = bytes(range(64))
RESIDUE = bytes(range(100, 132))
RUN = replies.HandleRun(0, 0, 0, 256, 256, 2, 7, 4096, 8192, 8192, 2**32 + 5)
STATE = replies.HandleRun(1, 0, 515, 0, 0, 1, 8, 0, 0, 4096, 2**32 + 6)
OFFER = replies.Offer(515, 3, RESIDUE, Exactness.EXACT, 0, [STATE])
CUT = Cut(515, 600, Layer.STATE, "swa", Kind.SWA_WINDOW, Code.WINDOW_MISSING, "no state at 600")
VICTIM = replies.DeviceVictim(HASHES[32:], -1, b"", 0, 0, 0, 4096, 8192, bytes(range(8)))
AT = requests.Boundary(HASHES, 3, RESIDUE)


def layout() -> Layout:
    """Return a layout with one group of rows and one snapshot."""
    rows = GroupSpec(
        name="full",
        kind=Kind.COMPRESSED_KV,
        form=Form.ROWS,
        layers=(1, 3),
        rows_per_page=16,
        row_bytes=256,
        page_bytes=4096,
    )
    state = GroupSpec(name="swa", kind=Kind.SWA_WINDOW, form=Form.SNAPSHOT, layers=(0, 2), page_bytes=4096, window=128)
    abi = {"full": KernelABI(name="torch.contiguous", layout="NHD"), "swa": KernelABI(name="torch.contiguous")}
    return Layout(model="example", weights_digest="sha256:00", abi=abi, block_tokens=256, groups=(rows, state))


REQUESTS: tuple[Request, ...] = (
    requests.Hello((1, 1), bytes(range(16)), leader=True, name="engine 0", incarnation=4),
    requests.Register(layout()),
    requests.Ring(1 << 26),
    requests.Acquire(1, 600, HASHES, leave=1, minimum=128, align=1, restore=True, replay=False, approx=False),
    requests.Settle(9, 1),
    requests.Renew(9),
    requests.Release(9),
    requests.Fingerprints(9),
    requests.Arenas([7, 8]),
    requests.Reserve(1, AT, first_block=1, boundary=True, all_pages=False),
    requests.Put(12, [requests.PutRange(Kind.COMPRESSED_KV, 0, 0, 65536, 8192)]),
    requests.Join(12, 1),
    requests.Commit(12, ticket=1),
    requests.Abort(12),
    requests.Evict(Kind.SWA_WINDOW, 1, AT, group="swa", block=-1),
    requests.EvictMany(Kind.SWA_WINDOW, bytes(4), HASHES[:32], 515, memory=True, disk=True, dry_run=True, after=7),
    requests.Quotas(),
    requests.Tenants(),
    requests.SetQuota(Kind.SWA_WINDOW, 64 << 20),
    requests.SetScrub(paused=True, now=True),
    requests.Offload(1, AT, drop_memory=True),
    requests.Restore(1, AT, wait_ms=0),
    requests.Warm(bytes(4), bytes(32), 1 << 30),
    requests.Describe(1, AT),
    requests.RegisterPool(1, "cuda:0", bytes(range(16)), 2**46, 1 << 30, [4096, 512], rank=0, pool=0),
    requests.DropPool(14),
    requests.AskPages(14, AT, first_block=1, boundary=True, all_pages=False),
    requests.ReportFilled(13, bytes(range(16)), 515),
    requests.GivePagesUp(13),
    requests.FreePages(Kind.SWA_WINDOW, 14, AT, "swa", whole=True),
    requests.RegisterTopology([requests.TopologyPart(9, 0, [])]),
    requests.OpenRecapture(31),
    requests.ChangeTopology(31, [requests.TopologyPart(9, 1, [0])], [], whole=True),
    requests.CloseRecapture(31),
    requests.DropTopology(31),
    requests.Topologies(),
    requests.Epochs(),
    requests.SetEpoch("example", "sha256:00", EpochState.RETIRED, share=20, kernel="flash", kernel_number=2),
    requests.Status(),
)

REPLIES: tuple[Reply, ...] = (
    replies.Failed("layout", "two groups have one name", "groups", "give each group a name of its own"),
    replies.Welcome(1, 5, bytes(16), bytes(range(32)), "default", 1 << 20, 1 << 30),
    replies.Registered(1, bytes(range(32))),
    replies.Acquired(9, [OFFER], [RUN], 512, 512, [256, 512], [512, 515], [599, 600], [CUT], 0),
    replies.Warming(7, 3, 65536, 2, 9),
    replies.Pending(3, 16, 40, 65536, 163840),
    replies.FingerprintList(bytes(range(48))),
    replies.ArenaList([7, 8]),
    replies.Reserved(12, b"\x05"),
    replies.Joined(12, 3),
    replies.Waiting(2),
    replies.Committed(77, 2, duplicates=1, differing=0),
    replies.Evicted(3, 1),
    replies.EvictedMany(3, 20480, 8192, 1, 2, 4, 4103),
    replies.QuotaList(
        [QuotaInfo(Kind.SWA_WINDOW, 64 << 20, fixed=True, held_bytes=128 << 20, live_bytes=65536, missed_tokens=512)]
    ),
    replies.TenantList([TenantInfo("team-a", 3, 7, 2, 400, 128 << 20, 1 << 30, 8 << 20, 8 << 30)]),
    replies.Offloaded(3, 20480, 1),
    replies.Restored(3, 20480),
    replies.Described([replies.ObjectInfo(21, 0, 0, 0, 0, 0, "COMMITTED", 8192, bytes(range(16)), 77, 1)], 0),
    replies.PoolRegistered(14, 2),
    replies.PagesGiven(13, b"\x04", [4096, 8192], [VICTIM], 0),
    replies.NotResident([replies.ObjectInfo(21, 0, 0, 0, 0, 0, "ON_DISK", 8192, bytes(range(16)), 77, 1)], 2),
    replies.TopologyRegistered(replies.TopologyReport(31, 3, 20480)),
    replies.TopologyReport(31, 3, 20480, lost=1, recapturing=True),
    replies.TopologyList([replies.TopologyReport(31, 3, 20480)]),
    replies.EpochList(
        [replies.EpochInfo("example", "sha256:00", EpochState.CANARY, 20, 1, 8192, 20480, ["flash 2"], 0)]
    ),
    replies.EpochSet(EpochState.CANARY, "sha256:01", 3),
    replies.StatusReport(5, 1234, "00c0ffee00c0ffee", {"leases": 1}),
    replies.Done(),
)


def frames() -> list[dict[str, str]]:
    """Return all golden frames: direction, name of the message, and the whole frame in hexadecimal."""
    messages: list[tuple[str, Request | Reply]] = [("request", message) for message in REQUESTS]
    messages += [("reply", message) for message in REPLIES]
    return [
        {
            "direction": direction,
            "message": str(message.__struct_config__.tag),
            "frame": encode_frame(3, message, REPLY_MAX).hex(),
        }
        for direction, message in messages
    ]


def text() -> str:
    """Return the file's text."""
    return json.dumps(frames(), indent=1) + "\n"


def main() -> int:
    """Write or check; return the exit status."""
    parser = argparse.ArgumentParser(description="write the golden frames")
    parser.add_argument("--check", action="store_true", help="write nothing, fail if something would change")
    if parser.parse_args().check:
        return TARGET.read_text() != text()
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(text())
    print(f"wrote {TARGET.name}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
