"""Images that were made to do harm: small files that take long to decode, need much memory, or break a decoder."""

import io
import struct
import zlib

import numpy as np
from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF")


def good(kind="PNG", size=(24, 32), mode="RGB", **options):
    pixels = np.random.default_rng(0).integers(0, 255, (*size, 3), dtype=np.uint8)
    held = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(held, kind, **options)
    return held.getvalue()


def segment(marker, content):
    return bytes((0xFF, marker)) + struct.pack(">H", len(content) + 2) + content


def jpeg(width, height, scans, marker=0xC2):
    """A progressive JPEG with many scans that say nothing: each is a pass over all of its coefficients."""
    quantised = segment(0xDB, bytes([0] + [1] * 64))
    frame = segment(marker, struct.pack(">BHHB", 8, height, width, 1) + bytes([1, 0x11, 0]))
    # One code of one bit for each table: the difference 0 and, for AC, the end of a band.
    codes = segment(0xC4, bytes([0x00, 1, *bytes(15), 0])) + segment(0xC4, bytes([0x10, 1, *bytes(15), 0]))
    blocks = -(-width // 8) * -(-height // 8)
    first = segment(0xDA, bytes([1, 1, 0, 0, 0, 0x01])) + bytes(-(-blocks // 8))
    runs = segment(0xC4, bytes([0x10, 1, *bytes(15), 0xE0]))  # EOBRUN of up to 32,767 blocks in 15 bits
    band = b"\x3f\xff\x00" * -(-blocks // 16_383)
    other = segment(0xDA, bytes([1, 1, 0, 1, 63, 0x00])) + band
    return b"\xff\xd8" + quantised + frame + codes + first + runs + other * (scans - 1) + b"\xff\xd9"


def chunk(kind, content=b""):
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png(width, height, *before, pixels=None, after=(), colour=2, depth=8, interlaced=0):
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))
    channels = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[colour]
    if pixels is None:
        row = b"\0" * (1 + -(-width * channels * depth // 8))
        deflate = zlib.compressobj(9)
        body = b"".join(deflate.compress(row) for _ in range(height)) + deflate.flush()
        pixels = [chunk(b"IDAT", body)]
    return b"\x89PNG\r\n\x1a\n" + head + b"".join([*before, *pixels, *after]) + chunk(b"IEND")


def ztxt(megabytes):
    return chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(megabytes << 20), 9))


def gif(width, height, *before, frames=1):
    head = b"GIF89a" + struct.pack("<HHBBB", width, height, 0x80, 0, 0) + bytes(6)
    frame = b"," + struct.pack("<HHHHB", 0, 0, width, height, 0) + b"\x02\x02\x4c\x01\x00"
    return head + b"".join(before) + frame * frames + b";"


def comment(blocks, size=255):
    return b"!\xfe" + (bytes([size]) + b"a" * size) * blocks + b"\0"


def tiff(entries, data=b"", big=False, after=0):
    """Entries are (tag, type, count, value); data follows at 4,096."""
    if big:
        head = b"II" + struct.pack("<HHHQ", 43, 8, 0, 16) + struct.pack("<Q", len(entries))
        body = b"".join(struct.pack("<HHQQ", *one) for one in entries) + struct.pack("<Q", after)
    else:
        head = b"II" + struct.pack("<HI", 42, 8) + struct.pack("<H", len(entries))
        body = b"".join(struct.pack("<HHII", *one) for one in entries) + struct.pack("<I", after)
    return (head + body).ljust(4096, b"\0") + data


def plain_tiff(width, height, data, compression=1, rows=None, *more):
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 8),
        (259, 3, 1, compression),
        (262, 3, 1, 1),
        (273, 4, 1, 4096),
        (277, 3, 1, 1),
        (278, 4, 1, rows or height),
        (279, 4, 1, len(data)),
        *more,
    ]
    return tiff(sorted(entries), data)


def tiles(width, height, side=16):
    """A TIFF of very many small tiles that all lie in the same place."""
    count = -(-width // side) * -(-height // side)
    pixels = bytes(side * side)
    entries = [
        (256, 4, 1, width),
        (257, 4, 1, height),
        (258, 3, 1, 8),
        (259, 3, 1, 1),
        (262, 3, 1, 1),
        (277, 3, 1, 1),
        (322, 4, 1, side),
        (323, 4, 1, side),
        (324, 4, count, 4096 + len(pixels)),
        (325, 4, count, 4096 + len(pixels) + 4 * count),
    ]
    offsets = struct.pack("<I", 4096) * count
    return tiff(entries, pixels + offsets + struct.pack("<I", len(pixels)) * count)


def webp(*chunks):
    body = b"WEBP" + b"".join(
        kind + struct.pack("<I", len(some)) + some + b"\0" * (len(some) % 2) for kind, some in chunks
    )
    return b"RIFF" + struct.pack("<I", len(body)) + body


def animated(kind, frames, size=(64, 64)):
    held = io.BytesIO()
    first = Image.new("RGB", size)
    rest = [Image.new("RGB", size, (number % 256, 0, 0)) for number in range(1, frames)]
    first.save(held, kind, save_all=True, append_images=rest)
    return held.getvalue()


def bmp(width, height, data=b"", bits=24, compression=0):
    head = struct.pack("<IiiHHIIiiII", 40, width, height, 1, bits, compression, len(data), 0, 0, 256 * (bits == 8), 0)
    palette = bytes(1024) if bits == 8 else b""
    return b"BM" + struct.pack("<IHHI", 54 + len(palette) + len(data), 0, 0, 54 + len(palette)) + head + palette + data


def bombs():
    """By name. Each is a file of at most a few megabytes."""
    wide = struct.pack(">IIBBBBB", 7000, 7000, 8, 2, 0, 0, 0)
    empty_text = chunk(b"tEXt", b"k\0")
    long_text = chunk(b"iTXt", b"k\0\1\0\0\0" + zlib.compress(bytes(200 << 20), 9))
    profile = chunk(b"iCCP", b"k\0\0" + zlib.compress(bytes(100 << 20), 9))
    deflated = zlib.compress(bytes(200 << 20), 9)
    thin = [chunk(b"IDAT", bytes([one])) for one in zlib.compress(np.random.default_rng(0).bytes(300_300), 0)]
    exif = b"Exif\0\0II*\0\x08\0\0\0" + b"\xff\xff" + b"\x0f\x01\x02\0\xff\xff\xff\x7f\0\0\0\0" * 5400
    palette = chunk(b"PLTE", bytes(768))
    return {
        "JPEG of 1,500 scans": jpeg(4000, 3000, 1500),
        "JPEG of 200 scans": jpeg(6000, 6000, 200),
        "JPEG of 60 scans of 49 million pixels": jpeg(7000, 7000, 60),
        "JPEG of 65,500 x 65,500": jpeg(65500, 65500, 2)[:200_000],
        "JPEG of 7,000 x 7,000 cut": jpeg(7000, 7000, 1)[:2000],
        "JPEG of height 0": jpeg(64, 0, 1),
        "JPEG of 100,000 restarts": good("JPEG")[:-2] + b"\xff\xd0" * 100_000,
        "JPEG of 500,000 comments": b"\xff\xd8" + segment(0xFE, b"") * 500_000 + good("JPEG")[2:],
        "JPEG of 60 large comments": b"\xff\xd8" + segment(0xFE, b"a" * 65_000) * 60 + good("JPEG")[2:],
        "JPEG of 200 profiles": b"\xff\xd8"
        + segment(0xE2, b"ICC_PROFILE\0" + bytes([1, 255]) + bytes(60000)) * 60
        + good("JPEG")[2:],
        "JPEG with broken Exif": b"\xff\xd8" + segment(0xE1, exif[:65_000]) + good("JPEG")[2:],
        "JPEG with a wrong MPF": b"\xff\xd8" + segment(0xE2, b"MPF\0" + exif[6:60_000]) + good("JPEG")[2:],
        "JPEG of 10,000 tables": b"\xff\xd8" + segment(0xDB, bytes([0] + [1] * 64)) * 10_000 + good("JPEG")[2:],
        "JPEG without an end": good("JPEG")[:-2] + b"\xff" * 1_000_000,
        "JPEG, lossless frame": jpeg(64, 64, 2, marker=0xC3),
        "PNG of 500 MB of text": png(8, 8, *[ztxt(60)] * 8),
        "PNG of 60 texts of 1 MB": png(8, 8, *[ztxt(1)] * 63),
        "PNG of 200 MB in iTXt": png(8, 8, long_text),
        "PNG of a profile of 100 MB": png(8, 8, profile),
        "PNG of 200,000 empty texts": png(8, 8, empty_text * 200_000),
        "PNG of 200,000 empty texts at the end": png(8, 8, after=[empty_text * 200_000]),
        "PNG of 200 MB in IDAT": png(8, 8, pixels=[chunk(b"IDAT", deflated)]),
        "PNG of 300,000 IDAT of one byte": png(316, 316, pixels=thin),
        "PNG of 200,000 empty IDAT": png(8, 8, pixels=[chunk(b"IDAT") * 200_000]),
        "PNG of 49 million pixels": png(7000, 7000),
        "PNG of 49 million pixels with alpha": png(7000, 7000, colour=6),
        "PNG of 49 million pixels of 16 bits": png(7000, 7000, colour=0, depth=16),
        "PNG of 49 million interlaced pixels": png(7000, 7000, colour=6, interlaced=1),
        "PNG of 200 million pixels": png(14000, 14000, colour=0, depth=1),
        "PNG of 2^31 x 2^31": b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", struct.pack(">IIBBBBB", 2**31 - 1, 2**31 - 1, 8, 2, 0, 0, 0)),
        "PNG of two headers": png(8, 8, chunk(b"IHDR", wide)),
        "PNG, animated, 60,000 frames": png(
            8, 8, chunk(b"acTL", struct.pack(">II", 60_000, 0)), after=[chunk(b"fcTL", bytes(26)) * 60_000]
        ),
        "PNG of a palette and 49 million pixels": png(7000, 7000, palette, chunk(b"tRNS", bytes(256)), colour=3),
        "PNG of one row of 40 million": png(40_000_000, 1, colour=0),
        "PNG of one column of 40 million": png(1, 4_000_000, colour=0),
        "GIF of 65,535 x 65,535": gif(65_535, 65_535),
        "GIF of 49 million pixels": gif(7000, 7000),
        "GIF of a comment of 16 MB": gif(8, 8, comment(64_000)),
        "GIF of 200,000 comments": gif(8, 8, comment(1, 1) * 200_000),
        "GIF of 500,000 empty comments": gif(8, 8, b"!\xfe\0" * 500_000),
        "GIF of a million unknown blocks": gif(8, 8, b"!\x99\0" * 1_000_000),
        "GIF of 200,000 frames": gif(8, 8, frames=200_000),
        "GIF of endless codes": gif(7000, 7000)[:-6] + b"\x08" + (b"\xff" + b"\x80" * 255) * 10_000,
        "GIF of a frame beyond": gif(8, 8).replace(
            struct.pack("<HHHHB", 0, 0, 8, 8, 0), struct.pack("<HHHHB", 60_000, 60_000, 60_000, 60_000, 0)
        ),
        "TIFF of 200 MB deflated": plain_tiff(14_000, 14_000, deflated, 8),
        "TIFF of 49 million deflated": plain_tiff(7000, 7000, zlib.compress(bytes(49_000_000), 9), 8),
        "TIFF of 12 million tiles": tiles(7000, 7000, 16),
        "TIFF of a million tiles of a pixel": tiles(1000, 1000, 1),
        "TIFF of 65,535 tags": tiff([(1000 + n, 2, 2**31, 4096) for n in range(300)]) + bytes(1000),
        "TIFF of endless directories": tiff([(256, 4, 1, 8)], after=8),
        "TIFF of 2^32 strips": plain_tiff(7000, 7000, b"", 1, 1, (700, 1, 2**32 - 1, 4096)),
        "TIFF of rows beyond its end": plain_tiff(7000, 7000, bytes(100)),
        "TIFF, LZW of nothing": plain_tiff(7000, 7000, b"\x80" * 1000, 5),
        "TIFF, PackBits of zeros": plain_tiff(7000, 7000, b"\x81\0" * 383_000, 32773),
        "TIFF, old JPEG": plain_tiff(7000, 7000, jpeg(7000, 7000, 2), 6),
        "TIFF, JPEG of 1,500 scans": plain_tiff(4000, 3000, jpeg(4000, 3000, 1500), 7),
        "TIFF, CCITT of zeros": plain_tiff(7000, 7000, bytes(1000), 4),
        "BigTIFF of 2^60 tags": b"II" + struct.pack("<HHHQ", 43, 8, 0, 16) + struct.pack("<Q", 2**60) + bytes(100),
        "TIFF of a Photoshop block of 1 GB": plain_tiff(8, 8, bytes(64), 1, None, (34377, 1, 2**30, 4096)),
        "WebP of 16,383 x 16,383": webp((b"VP8X", b"\x02\0\0\0" + b"\xfe\x3f\0" * 2)),
        "WebP, animated, 500 frames": animated("WEBP", 500),
        "WebP, a canvas of 268 million": webp(
            (b"VP8X", b"\x02\0\0\0" + b"\xfe\x3f\0" * 2), (b"ANIM", bytes(6)), (b"ANMF", bytes(16) + good("WEBP")[12:])
        ),
        "WebP of 200,000 unknown chunks": webp(
            (b"VP8X", b"\0\0\0\0" + b"\x1f\0\0\x17\0\0"), *[(b"XXXX", b"")] * 200_000
        ),
        "WebP of 49 million pixels": good_of_one_colour("WEBP", 7000),
        "BMP of 2^31 x 2^31": bmp(2**31 - 1, 2**31 - 1),
        "BMP of 49 million pixels, run-length": bmp(7000, 7000, b"\xff\0" * 192_500, 8, 1),
        "BMP that jumps": bmp(7000, 7000, b"\0\2\xff\xff" * 100_000, 8, 1),
        "BMP of 49 million pixels, cut": bmp(7000, -7000, bytes(10)),
        "GIF, animated, 500 frames": animated("GIF", 500),
        "TIFF, 300 pages": animated("TIFF", 300, (16, 16)),
        "PNG in a JPEG's name": b"\xff\xd8\xff" + png(8, 8)[3:],
        "zeros": bytes(1_000_000),
        "nothing": b"",
        "a ZIP": b"PK\x03\x04" + bytes(100),
        "SVG": b"<svg xmlns='http://www.w3.org/2000/svg'><image href='file:///etc/passwd'/></svg>",
        "PostScript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n(%pipe%id) (w) file\n",
        "PPM of 10^9 x 10^9": b"P6 1000000000 1000000000 255\n" + bytes(100),
        "HEIF": b"\0\0\0\x18ftypheic" + bytes(100),
    }


def good_of_one_colour(kind, side):
    held = io.BytesIO()
    Image.new("RGB", (side, side), "red").save(held, kind, **({"quality": 1, "method": 0} if kind == "WEBP" else {}))
    return held.getvalue()
