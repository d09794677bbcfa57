"""A snapshot is published only when it was read back: whoever begins with it may have no other beginning."""

import msgspec

from kvledgerd.core.apply import DigestMismatchError
from kvledgerd.core.config import CAPLESS
from kvledgerd.core.state import State
from kvledgerd.snapshots.decode import decode_state
from kvledgerd.snapshots.encode import encode_state

__all__ = ["proven"]


def proven(state: State) -> tuple[bytes, int]:
    """Return the image of a state and the state's digest, once the image was seen to make the same state.

    Raises:
        DigestMismatchError: The image can not be read, or makes another state.
    """
    body, digest = encode_state(state), state.digest()
    try:
        found = decode_state(body, CAPLESS).digest()
    except (msgspec.MsgspecError, KeyError, ValueError) as error:
        raise DigestMismatchError(
            f"a snapshot of this state can not be read: {type(error).__name__} {error}"
        ) from error
    if found != digest:
        raise DigestMismatchError(f"a snapshot makes {found:016x} of the state {digest:016x}")
    return body, digest
