"""Compares incarnations of splits. For an object in Google Cloud Storage, computes the ETag in its incarnation from the
object's generation. A change of only the object's metadata leaves the incarnation the same.

The ETag of an object in Google Cloud Storage is a Protobuf message in base64. Field 1 is the object's generation, which
identifies its content. Field 2 is its metageneration, which counts the changes of its metadata. The incarnation of such
an object consists of its size, a hyphen and the ETag that the object has if its metadata have never changed
(:func:`gcs_tag`). A stored position may also contain an ETag with another metageneration. This module imports no other
module of the package, because Spark's workers receive this module by value.
"""

from __future__ import annotations

import base64
import binascii
import re

_GENERATION, _METAGENERATION = 0x08, 0x10
"""The Protobuf tags of the two fields in an ETag. Both fields are varints."""

_SIZE_AND_ETAG = re.compile(r"([0-9]+-)([A-Za-z0-9+/]+={0,2})")


def gcs_tag(generation: int) -> str:
    """The ETag of an object of this generation whose metadata has not changed since the generation was created."""
    return base64.b64encode(bytes((_GENERATION, *_varint(generation), _METAGENERATION, 1))).decode()


def is_same_incarnation(first: str, second: str) -> bool:
    """True if two incarnations are equal, or if they differ only in the metageneration of an object in Google Cloud
    Storage."""
    return first == second or _without_metageneration(first) == _without_metageneration(second)


def _without_metageneration(incarnation: str) -> str:
    """If an incarnation contains an ETag of Google Cloud Storage, replaces it with the result of :func:`gcs_tag` for
    its generation. Returns an incarnation without such an ETag unchanged."""
    found = _SIZE_AND_ETAG.fullmatch(incarnation)
    generation = None if found is None else _generation_of(found[2])
    return incarnation if found is None or generation is None else f"{found[1]}{gcs_tag(generation)}"


def _generation_of(etag: str) -> int | None:
    """The generation in an ETag; None if the text is not an ETag of Google Cloud Storage."""
    try:
        message = base64.b64decode(etag, validate=True)
    except binascii.Error:
        return None
    if not message or message[0] != _GENERATION:
        return None
    generation, end = _read_varint(message, 1)
    if generation is None or end >= len(message) or message[end] != _METAGENERATION:
        return None
    metageneration, end = _read_varint(message, end + 1)
    return generation if metageneration is not None and end == len(message) else None


def _varint(number: int) -> bytes:
    made = bytearray()
    while number > 0x7F:
        made.append(number & 0x7F | 0x80)
        number >>= 7
    made.append(number)
    return bytes(made)


def _read_varint(message: bytes, start: int) -> tuple[int | None, int]:
    """Decodes a varint. Returns the number, and the position after the varint. The number is None if the message
    ends inside the varint."""
    number = 0
    for at in range(start, len(message)):
        number |= (message[at] & 0x7F) << 7 * (at - start)
        if message[at] < 0x80:
            return number, at + 1
    return None, len(message)
