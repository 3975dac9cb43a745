"""The parts of an image file, counted before it is decoded: a few bytes can ask for hours of work.

Each pass of a progressive JPEG goes over all of its pixels, and readers take time for every segment, chunk and tile.
"""

import re
import struct

MOST_SCANS = 100  # of a JPEG; encoders write ten
MOST_PASSED = 1_000_000_000  # pixels times scans
MOST_SEGMENTS = 5_000  # of a JPEG
MOST_TILES = 65_536  # of a TIFF
CHUNK = 1_024  # bytes that a chunk of a PNG or WebP file has at least, on average, beyond the first thousand chunks
_MARKER = re.compile(rb"\xff([^\x00\xff\xd0-\xd7])")  # of a JPEG: not a stuffed byte, nor a restart


def too_many_parts(content: bytes) -> str | None:
    """What is wrong with the number of parts of a file, or None."""
    if content[:2] == b"\xff\xd8":
        return _jpeg(content)
    if content[:8] == b"\x89PNG\r\n\x1a\n":
        return _chunks(content, 8, ">I4x", 12)
    if content[:4] == b"RIFF":
        return _chunks(content, 12, "<4xI", 8)
    return None


def _jpeg(content: bytes) -> str | None:
    scans = segments = pixels = 0
    place = 2
    while (marker := _MARKER.search(content, place)) is not None:
        kind, place = marker[1][0], marker.end()
        segments += 1
        if kind == 0xD9 or len(content) < place + 7:  # the end: what follows is another file
            break
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):  # the start of a frame
            height, width = struct.unpack_from(">HH", content, place + 3)
            pixels = max(pixels, height * width)
        scans += kind == 0xDA
        if scans > MOST_SCANS or segments > MOST_SEGMENTS:
            return f"it has too many parts: more than {MOST_SCANS} scans or {MOST_SEGMENTS:,} segments"
        if scans > 1 and scans * pixels > MOST_PASSED:
            return f"it takes too long: {scans} scans of {pixels:,} pixels; expected at most {MOST_PASSED:,} together"
        if kind not in (0x01, 0xD8):
            place += max(2, int.from_bytes(content[place : place + 2], "big"))
    return None


def _chunks(content: bytes, place: int, head: str, around: int) -> str | None:
    most = 1_000 + len(content) // CHUNK
    for _ in range(most):
        if place + 8 > len(content):
            return None
        (size,) = struct.unpack_from(head, content, place)
        place += size + around
    return f"it has too many parts: more than {most:,} chunks in {len(content):,} bytes"
