"""What `test_images` and other tests share."""

import io

from PIL import Image


def encoded(pixels, kind="PNG", mode=None, **options):
    image = Image.fromarray(pixels)
    file = io.BytesIO()
    (image if mode is None else image.convert(mode)).save(file, kind, **options)
    return file.getvalue()
