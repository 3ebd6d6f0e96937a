"""Reads the text files that a statement or command names."""

from __future__ import annotations

from rw_sql.errors import FILE_UNREADABLE, SqlError
from rw_sql.object_stores import client_errors, local_location
from rw_sql.syntax.lexing.invisible import BYTE_ORDER_MARK

# Longer byte-order marks come first, because the mark of UTF-32 begins with the mark of UTF-16.
_OTHER_MARKS = (
    (b"\xff\xfe\x00\x00", "UTF-32"),
    (b"\x00\x00\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)


def read_text_file(path: str) -> str:
    """Reads the UTF-8 text of a file at a path or URI. A byte-order mark is removed. Raises SqlError
    FILE_UNREADABLE."""
    import fsspec

    try:
        files, plain = fsspec.core.url_to_fs(local_location(path), use_listings_cache=False)
        with client_errors():
            read = bytes(files.cat_file(plain))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise SqlError(FILE_UNREADABLE, f"cannot read file {path!r}: {reason.lower()}") from error
    return decode_text(read, f"file {path!r}").removeprefix(BYTE_ORDER_MARK)


def decode_text(read: bytes, name: str) -> str:
    """Decodes UTF-8 text. A byte-order mark and all line breaks are kept. ``name`` is the name of the text's origin,
    for error messages.

    Raises SqlError FILE_UNREADABLE if the bytes are not UTF-8, or contain the character NUL, which is not allowed in
    statements.
    """
    for mark, encoding in _OTHER_MARKS:
        if read.startswith(mark):
            raise SqlError(
                FILE_UNREADABLE,
                f"cannot read {name}: it is not UTF-8 text: it begins with the byte-order mark of {encoding}",
                hint=f"convert it: iconv -f {encoding} -t UTF-8 a_file > another_file",
            )
    try:
        text = read.decode("utf-8")
    except UnicodeDecodeError as error:
        raise _refusal(read, error.start, name, "it is not UTF-8 text") from error
    if "\0" in text:
        raise _refusal(read, read.index(b"\0"), name, "it is not text, or it is UTF-16")
    return text


def _refusal(read: bytes, at: int, name: str, what: str) -> SqlError:
    line, start = read.count(b"\n", 0, at) + 1, read.rfind(b"\n", 0, at) + 1
    place = f"byte {at + 1} (line {line}, byte {at - start + 1} of it)"
    return SqlError(
        FILE_UNREADABLE, f"cannot read {name}: {what}, {place} is 0x{read[at]:02X}", hint="save the file as UTF-8"
    )
