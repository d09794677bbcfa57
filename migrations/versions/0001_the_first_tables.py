"""The first tables.

Written out and never changed, whatever becomes of the row classes: each table with its columns (``int``, ``text`` or
``bool``, optional ones with a question mark), its primary key and its further indexes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TYPES = {"int": sa.BigInteger, "text": sa.Text, "bool": sa.Boolean}
TABLES = (
    (
        "source",
        "log_id text, seq int",
        "log_id",
        "",
    ),
    (
        "watermark",
        "seq int, chain text, time_ms int",
        "seq",
        "",
    ),
    (
        "gap",
        "seq int, first_seq int",
        "seq",
        "",
    ),
    (
        "event",
        "seq int, time_ms int, actor text, name text, fields text?",
        "seq",
        "name, time_ms",
    ),
    (
        "engine",
        "engine int, seq int, engine_id text, tenant text, uid int, pid int, name text",
        "engine",
        "seq",
    ),
    (
        "engine_end",
        "engine int, seq int, reason text",
        "engine",
        "seq",
    ),
    (
        "layout",
        "layout int, seq int, tenant text, epoch int, model text, weights text, digest text, block_tokens int",
        "layout",
        "seq",
    ),
    (
        "layout_group",
        "layout int, number int, seq int, name text, kind text, form text, shards int",
        "layout number",
        "seq",
    ),
    (
        "node",
        "node int, seq int, parent int, depth int, hash text",
        "node",
        "seq, parent, hash",
    ),
    (
        "cell",
        "cell int, seq int, layout int, node int, position int, residue int",
        "cell",
        "seq, node",
    ),
    (
        "object",
        "cell int, slot int, seq int, number int, shard int, kind text, first_token int, end_token int, bytes int",
        "cell slot",
        "seq",
    ),
    (
        "object_event",
        "seq int, number int, cell int, slot int, what text, state text?, unit int?, fingerprint text?, detail text",
        "seq number",
        "cell slot",
    ),
    (
        "unit",
        "unit int, seq int, engine int, layout int, node int, first_block int, position int, boundary bool",
        "unit",
        "seq",
    ),
    (
        "unit_event",
        "unit int, seq int, what text, detail text",
        "unit",
        "seq",
    ),
    (
        "lookup",
        (
            "seq int, lease int, engine int, layout int, node int, tokens int, hash_tokens int, "
            "recoverable_tokens int, ready_tokens int, usable_tokens int, offered_tokens int, wish text"
        ),
        "seq",
        "lease",
    ),
    (
        "offer",
        "seq int, number int, node int, cell int, position int, residue int, replay int, ready bool, approx bool",
        "seq number",
        "node, cell",
    ),
    (
        "cut",
        "seq int, number int, layer int, code text, start_token int, end_token int, group_name text, detail text",
        "seq number",
        "",
    ),
    (
        "delivery",
        "seq int, offer int, number int, shard int, first_token int, end_token int",
        "seq offer number shard first_token",
        "",
    ),
    (
        "lease_event",
        "seq int, lease int, what text, offer int?, reason text",
        "seq lease",
        "lease",
    ),
    (
        "eviction",
        "seq int, place text, reason text, objects int",
        "seq",
        "",
    ),
    (
        "prefix_event",
        "seq int, number int, cell int, what text, detail text",
        "seq number",
        "cell",
    ),
)


def upgrade() -> None:
    """Make the tables."""
    for name, columns, key, indexes in TABLES:
        op.create_table(name, *map(_column, columns.split(", ")), sa.PrimaryKeyConstraint(*key.split()))
        for index in filter(None, indexes.split(", ")):
            op.create_index(f"{name}_{'_'.join(index.split())}", name, index.split())


def _column(words: str) -> sa.Column:
    name, kind = words.split()
    return sa.Column(name, TYPES[kind.rstrip("?")](), autoincrement=False, nullable=kind.endswith("?"))


def downgrade() -> None:
    """Drop the tables."""
    for name, *_ in reversed(TABLES):
        op.drop_table(name)
