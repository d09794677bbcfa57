"""Chain hashes: which tokens, behind which extra keys, a block or a residue stands for.

``h(i) = BLAKE3_keyed(root, tag | h(i-1) | extra keys of block i | tokens of block i as u32 little-endian)``, all 256
bits kept, since nothing ever re-checks tokens. The root key is the tenant's secret, so equal prompts of two tenants
share no key. Layout is not part of the hash: below one chain node the daemon compares what is stored with what is
asked, field by field.

Extra keys are framed as (source, value) pairs with their lengths, so that no two different sets collide and a missing
key differs from an empty one. Sources in use: ``lora``, ``multimodal`` (value: content digest with its offset),
``salt``.
"""

import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from sys import byteorder

from blake3 import blake3

from kvledger.errors import CallerError

__all__ = ["HASH_BYTES", "ChainHasher", "ExtraKeys", "token_bytes"]

HASH_BYTES = 32
_BLOCK, _RESIDUE, _ROOT = b"B", b"R", b"0"
_TOKENS_MAX = 2**32
_EXTRA_REMEDY = "pass text or bytes by source, for example {'lora': digest}"

ExtraKeys = Mapping[str, str | bytes]


def token_bytes(tokens: Sequence[int] | Iterable[int]) -> bytes:
    """Return tokens as u32 little-endian.

    Args:
        tokens: Token ids, each in [0, 2**32); a list, an array, or a one-dimensional integer tensor or ndarray.

    Raises:
        CallerError: a token is negative, too large or no integer, or there are several sequences.
    """
    plain = tokens.tolist() if hasattr(tokens, "tolist") else tokens
    try:
        packed = array("I", list(plain) if isinstance(plain, bytes | bytearray) else plain)  # not as raw memory
    except (OverflowError, TypeError) as error:
        remedy = f"pass one sequence of token ids, one-dimensional, whole numbers in [0, {_TOKENS_MAX})"
        raise CallerError(f"not token ids: {error}", field="tokens", remedy=remedy) from error
    if byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


class ChainHasher:
    """Hashes prompts of one (tenant, extra keys, block size).

    Args:
        root_key: The tenant's secret from hello, 32 bytes.
        block_tokens: Tokens of a block.
        extra: Extra keys that hold for the whole prompt.
    """

    def __init__(self, root_key: bytes, block_tokens: int, extra: ExtraKeys | None = None) -> None:
        self.block_tokens = block_tokens
        self._key = root_key
        self._extra = _frame_extra(extra or {})

    def root(self) -> bytes:
        """Return the hash that stands before the first block, 32 bytes."""
        return self._digest(_ROOT, b"", b"")

    def blocks(self, packed: bytes) -> bytes:
        """Return the hashes of all whole blocks, 32 bytes each, joined.

        Args:
            packed: Tokens as `token_bytes` gives them.
        """
        step, parent, out = 4 * self.block_tokens, self.root(), []
        for start in range(0, len(packed) - step + 1, step):
            parent = self._digest(_BLOCK, parent, packed[start : start + step])
            out.append(parent)
        return b"".join(out)

    def residue(self, parent: bytes, packed: bytes) -> bytes:
        """Return the hash of the tokens after a block.

        Args:
            parent: Hash of that block, or `root()`.
            packed: The residue's tokens, fewer than a block, as `token_bytes` gives them.
        """
        return self._digest(_RESIDUE, parent, packed)

    def _digest(self, tag: bytes, parent: bytes, tokens: bytes) -> bytes:
        return blake3(tag + parent + self._extra + tokens, key=self._key).digest()


def _frame_extra(extra: ExtraKeys) -> bytes:
    parts = [struct.pack("<I", len(extra))]
    for source, value in sorted(_checked(extra).items()):
        kind, raw = (b"s", _encoded(value)) if isinstance(value, str) else (b"b", bytes(value))
        name = _encoded(source)
        parts.append(struct.pack("<II", len(name), len(raw)) + kind + name + raw)
    return b"".join(parts)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise CallerError(f"{text!r} is no whole text: {error}", field="extra", remedy=_EXTRA_REMEDY) from error


def _checked(extra: ExtraKeys) -> ExtraKeys:
    # A number would be read as that many zero bytes, and prompts that differ in it would share what is stored
    if not isinstance(extra, Mapping):
        raise CallerError(f"a {type(extra).__name__} is no mapping", field="extra", remedy=_EXTRA_REMEDY)
    for source, value in extra.items():
        if not isinstance(source, str) or not isinstance(value, str | bytes | bytearray | memoryview):
            wrong = f"{source!r} is a {type(value).__name__}"
            raise CallerError(wrong, field="extra", remedy=_EXTRA_REMEDY)
    return extra
