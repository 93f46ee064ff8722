"""The wire format of protocol buffers (protobuf.dev/programming-guides/encoding), enough of it to
read logs.

TensorBoard's and W&B's own readers bring a web server each; what is read here is a few fields.
"""

import struct
from collections.abc import Iterator

Value = int | bytes


def parse_fields(message: bytes) -> Iterator[tuple[int, Value]]:
    """Number and value of each field: a varint or a group of 4 or 8 bytes as an unsigned integer,
    else its bytes.

    Raises:
        ValueError: the message is damaged.
    """
    at = 0
    while at < len(message):
        tag, at = _read_varint(message, at)
        wire = tag & 7
        if wire == 0:
            value, at = _read_varint(message, at)
            yield tag >> 3, value
            continue
        if wire == 2:
            length, at = _read_varint(message, at)
        elif wire in {1, 5}:
            length = 8 if wire == 1 else 4
        else:
            raise ValueError(f"no wire type {wire}")
        if at + length > len(message):
            raise ValueError("a field ends behind its message")
        part = message[at : at + length]
        yield tag >> 3, part if wire == 2 else int.from_bytes(part, "little")
        at += length


def parse_children(message: bytes, number: int) -> Iterator[bytes]:
    """The fields of that number that hold bytes."""
    return (
        value for one, value in parse_fields(message) if one == number and isinstance(value, bytes)
    )


def to_signed(value: int) -> int:
    """A varint as int64."""
    return value - (1 << 64) if value >> 63 else value


def to_float(bits: int, code: str) -> float:
    """The bits of a number of struct's code `f` or `d`.

    Raises:
        ValueError: there are more.
    """
    if bits >> 8 * struct.calcsize(code):
        raise ValueError("more bits than the number has")
    return float(struct.unpack(f"<{code}", bits.to_bytes(struct.calcsize(code), "little"))[0])


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ValueError("a number without an end")
