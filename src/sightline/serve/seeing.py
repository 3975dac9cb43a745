"""Images that are sent to the server: out of base64, decoded one at a time, in bounded memory."""

import asyncio
import binascii
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from sightline.data.images import MOST_PIXELS, BadImage, ImageLimits
from sightline.errors import UserError
from sightline.serve.asking import Received
from sightline.serve.limits import Limits
from sightline.serve.problems import RefusedError, busy
from sightline.tasks.run import Run


class Eyes:
    """Decodes what was sent in a thread of its own: one image at a time, whoever leaves in between."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.taken = ImageLimits(min(limits.pixels, MOST_PIXELS), limits.image_bytes)
        self.held = 0  # bytes of images that wait for the model
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sightline-images")

    def stop(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)

    @asynccontextmanager
    async def seen(self, run: Run, images: Sequence[str], where: str, *, shown: bool) -> AsyncIterator[list[Received]]:
        """Images in base64 as a run reads them, held as long as the block; ``where`` they stood in the request."""
        loop = asyncio.get_running_loop()
        found: list[Received] = []
        size = 0
        try:
            for number, image in enumerate(images):
                place = f"{where}[{number}]" if len(images) > 1 or where.endswith("s") else where
                one = await loop.run_in_executor(self._thread, self._see, run, image, place, shown)
                size += one.size
                self.held += one.size
                found.append(one)
                if self.held > self.limits.held:
                    raise busy("there are too many images at once; try again in a moment")
            yield found
        finally:
            self.held -= size

    def _see(self, run: Run, image: str, where: str, shown: bool) -> Received:
        try:
            content = binascii.a2b_base64(image, strict_mode=True)
        except (binascii.Error, ValueError):
            hint = "; leave out what stands before the comma" if image.startswith("data:") else ""
            raise RefusedError(422, f"{where} is not base64{hint}") from None
        try:
            return Received(*run.input.receive(content, self.taken, shown))
        except UserError as error:
            raise RefusedError(422, f"{where} cannot be used: {error}") from None
        except BadImage as error:
            too_large = "too large" in str(error)
            raise RefusedError(413 if too_large else 422, f"{where} cannot be used: {error}") from None
