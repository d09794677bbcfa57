"""User code that must type-check under mypy strict: what the public names promise, seen from outside."""

from collections.abc import Iterator

from kvledger import (
    AsyncCache,
    AsyncHit,
    AttachedHit,
    Cache,
    Cut,
    DevicePool,
    DeviceUnit,
    Exactness,
    Form,
    GroupSpec,
    Handle,
    Hit,
    KernelABI,
    Kind,
    KVLedgerError,
    Layout,
    LeaseLost,
    RegisteredLayout,
    Topology,
    Unit,
    UnitShard,
    UnitSlot,
)


def make_layout() -> Layout:
    """Declare a model."""
    rows = GroupSpec(
        name="full",
        kind=Kind.COMPRESSED_KV,
        form=Form.ROWS,
        layers=(0, 1),
        rows_per_page=16,
        row_bytes=256,
        page_bytes=4096,
    )
    return Layout(model="mine", abi={"full": KernelABI(name="mine")}, block_tokens=256, groups=(rows,))


def read(cache: Cache, layout: RegisteredLayout, tokens: list[int]) -> bytes:
    """Resume from what is stored."""
    hit: Hit
    with cache.acquire(layout, tokens, extra={"lora": b"digest", "salt": "user"}, align=64, wait=0) as hit:
        if not hit:
            reason: str = hit.why
            raise LeaseLost(reason)
        position: int = hit.tokens
        exactness: Exactness = hit.exactness
        wanted: tuple[int, ...] = hit.wanted
        cuts: tuple[Cut, ...] = hit.cuts
        handles: Iterator[Handle] = iter(hit)
        buffers: list[memoryview] = [handle.buffer for handle in handles]
        rows: list[Handle] = hit["full"]
        hit.check()
    return b"".join(buffers) + bytes((position, len(exactness.value), len(wanted), len(cuts), len(rows)))


def capture(cache: Cache, layout: RegisteredLayout, tokens: list[int]) -> int:
    """Capture a graph, and capture it anew."""
    topology: Topology
    with cache.acquire(layout, tokens, restore=False) as hit:
        topology = cache.register_topology(hit, groups=["full"])
        with topology.recapture() as window:
            window.add(hit)
            window.replace(hit)
    rows: list[Handle] = topology["full"]
    topology.check()
    topology.drop()
    return topology.objects + topology.bytes + topology.lost + len(rows) + len(cache.topologies())


def on_device(cache: Cache, layout: RegisteredLayout, tokens: list[int]) -> int:
    """Keep what was computed on the device."""
    pool: DevicePool = cache.device_pool("cuda:0", 1 << 30, layout, address=1 << 40, pages={"full": 512})
    unit: DeviceUnit
    with pool.ask(tokens, boundary=len(tokens)) as unit:
        addresses: list[int] = [slot.address for slot in unit.missing]
        saved: list[int] = [one.offset for one in unit.victims]
        unit.filled([0] * len(addresses), settled=len(tokens))
    with cache.acquire(layout, tokens) as hit:
        places = [handle.device for handle in hit]
    found: list[int] = [place.fp64 for place in places if place is not None]
    freed: int = pool.free(tokens, kind=Kind.COMPRESSED_KV, settled=16, whole=True).dropped
    pool.drop()
    return pool.number + len(saved) + sum(found) + freed


def pass_on(scheduler: Cache, rank: Cache, layout: RegisteredLayout, tokens: list[int]) -> list[bytes]:
    """Read and write in another process of the engine."""
    with scheduler.reserve(layout, tokens, boundary=len(tokens)) as unit:
        tickets: dict[int, bytes] = unit.tickets()
    part: UnitShard
    for ticket in tickets.values():
        with rank.join(ticket) as part:
            slots: list[UnitSlot] = part.objects
            part.put(slots[0], b"")
        number: int = part.rank
    attached: AttachedHit
    with scheduler.acquire(layout, tokens) as hit, rank.attach(hit.export()) as attached:
        return [bytes(handle.buffer) for handle in attached.of_rank(number)]


def write(cache: Cache, layout: RegisteredLayout, tokens: list[int]) -> int:
    """Store what was computed."""
    unit: Unit
    with cache.reserve(layout, tokens, boundary=len(tokens), start=256) as unit:
        slots: list[UnitSlot] = unit.objects
        for slot in slots:
            if not slot.present:
                with unit.staging(slot) as view:
                    view[:] = bytes(slot.length)
        unit["full"].buffer[:] = b""
        unit["full", 0].buffer[:] = b""
    with cache.reserve(layout, tokens) as unit:
        unit.put(unit.objects[0], memoryview(b"x"))
        commit: int = unit.commit().commit_id
    return commit


def manage(path: str) -> dict[str, int]:
    """Open, register, evict, offload, restore and look."""
    try:
        with Cache.open(path, engine=bytes(16), leader=True, name="engine 0", staging_bytes=1 << 20) as cache:
            layout = cache.register(make_layout())
            block: int = layout.geometry.block_tokens
            digest: bytes = layout.digest
            dropped: int = cache.evict(layout, [1], boundary=0, kind=Kind.COMPRESSED_KV, group="full").dropped
            stored: int = cache.offload(layout, [1], boundary=1).objects
            cache.restore(layout, [1], boundary=1)
            known: int = len(cache.describe(layout, [1]).objects)
            return {**cache.status().counters, "mine": dropped + stored + known + block + len(digest)}
    except KVLedgerError as error:
        where: str = error.field + error.remedy
        return {where: 0}


async def both(path: str, tokens: list[int]) -> int:
    """Do the same without blocking."""
    async with await AsyncCache.open(path) as cache:
        layout = await cache.register(make_layout())
        hit: AsyncHit
        async with await cache.acquire(layout, tokens) as hit:
            found: int = hit.tokens
        async with await cache.reserve(layout, tokens, boundary=found) as unit:
            await unit.put(unit.objects[0], b"x")
            async with unit.staging(unit.objects[1]) as view:
                view[:] = b"x"
        status = await cache.status()
        return status.seq
