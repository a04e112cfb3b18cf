"""What stood where a file of JSON was expected, in the words of an error."""

from __future__ import annotations


def found_instead(error: Exception) -> str:
    """For "expected ..., found": why a file could not be read as JSON.

    Args:
        error: What reading, decoding or parsing it raised.
    """
    if isinstance(error, OSError):
        return f"no file that can be read ({error.strerror or error})"
    return "something that is not JSON"
