"""Numbers of things in messages, told as people say them."""

__all__ = ["counted"]


def counted(number: int, noun: str, nouns: str = "") -> str:
    """Return how many there are of something: 1 object, 1,200 objects.

    Args:
        number: How many.
        noun: What one of them is called.
        nouns: What several are called, if that is not `noun` with an s.
    """
    return f"{number:,} {noun if number == 1 else nouns or f'{noun}s'}"
