"""A prompt as the wire speaks of it: chain hashes of its blocks, and boundaries with their residues."""

from collections.abc import Sequence

from kvledger.errors import CallerError
from kvledger.hashing import HASH_BYTES, ChainHasher, ExtraKeys, token_bytes
from kvledger.wire.requests import Boundary

__all__ = ["Prompt"]

_TOKEN_BYTES = 4


class Prompt:
    """Tokens of one prompt, hashed under one tenant's root.

    Args:
        tokens: Token ids, each in [0, 2**32).
        block_tokens: Tokens of a block.
        root_key: The tenant's secret, 32 bytes.
        extra: Extra keys that hold for the whole prompt.

    Raises:
        CallerError: Something is no token id.
    """

    __slots__ = ("_hasher", "_packed", "block_tokens", "hashes", "tokens")

    def __init__(self, tokens: Sequence[int], block_tokens: int, root_key: bytes, extra: ExtraKeys | None) -> None:
        self._packed = token_bytes(tokens)
        self._hasher = ChainHasher(root_key, block_tokens, extra)
        self.block_tokens = block_tokens
        self.tokens = len(self._packed) // _TOKEN_BYTES
        self.hashes = self._hasher.blocks(self._packed)

    def boundary(self, position: int) -> Boundary:
        """Return the boundary at a position (tokens).

        Raises:
            CallerError: The position lies outside the prompt.
        """
        if not 0 <= position <= self.tokens:
            remedy = "name a position within the tokens that are passed"
            raise CallerError(
                f"{position} lies outside a prompt of {self.tokens} tokens", field="boundary", remedy=remedy
            )
        blocks, residue = divmod(position, self.block_tokens)
        digest = self._residue_hash(position, residue) if residue else b""
        return Boundary(self.hashes[: blocks * HASH_BYTES], residue, digest)

    def matches(self, position: int, residue: int, residue_hash: bytes) -> bool:
        """Tell whether an offer's boundary is one of this very prompt; without residue the blocks have said so."""
        if position > self.tokens or position % self.block_tokens != residue:
            return False
        return not residue or self._residue_hash(position, residue) == residue_hash

    def _residue_hash(self, position: int, residue: int) -> bytes:
        blocks = position // self.block_tokens
        parent = self.hashes[(blocks - 1) * HASH_BYTES : blocks * HASH_BYTES] if blocks else self._hasher.root()
        start = (position - residue) * _TOKEN_BYTES
        return self._hasher.residue(parent, self._packed[start : position * _TOKEN_BYTES])
