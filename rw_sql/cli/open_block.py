"""The error for statements that end inside a BEGIN UNSAFE block."""

from __future__ import annotations

from rw_sql.errors import BLOCK_LEFT_OPEN, SqlError


def open_block(script: str | None) -> SqlError:
    """The error for a script that ends inside a block. The block is never committed."""
    return SqlError(
        BLOCK_LEFT_OPEN,
        f"{script or 'the script'} ends inside a BEGIN UNSAFE block: no statement of the block took effect",
        hint="end the script with COMMIT;",
    )
