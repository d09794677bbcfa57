"""Boundaries of blocks alone: units are found by their last block, and groups tell how far back a resume needs them.

Of layouts that were told before nothing says how far; who wants it has the database made anew.
"""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index and the column."""
    op.create_index("unit_node", "unit", ["node"])
    op.add_column("layout_group", sa.Column("reach", sa.BigInteger, nullable=True))


def downgrade() -> None:
    """Take both away."""
    op.drop_column("layout_group", "reach")
    op.drop_index("unit_node", "unit")
