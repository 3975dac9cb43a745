"""Clips: images in time, such as those of lips, out of folders of images, stacked images, arrays or videos."""

from pathlib import Path

import numpy as np

from sightline.data.frames import BadFrames, frame_rate, read_frames
from sightline.data.series_tables import CLIPS
from sightline.inputs.series import BadSeries, SeriesInput


class ClipInput(SeriesInput):
    """Clips of grey frames, which are kept as bytes. At other speeds frames are left out or shown twice."""

    kind = "frames"
    noun = "clips"
    source_name = "clip"
    column = "frames"
    files = CLIPS
    reads_folders = True
    example = '"clip.mp4"'

    def frame_seconds(self) -> float:
        return self.config.frame_seconds

    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        if isinstance(file, bytes):
            raise BadSeries("expected a file, a folder of images, or an array")
        config = self.config
        shape = None if config.height is None or config.width is None else (config.height, config.width)
        try:
            frames = file if isinstance(file, np.ndarray) else read_frames(file, shape, stacked=config.stacked)
            rate = None if isinstance(file, np.ndarray) else frame_rate(file)
        except BadFrames as error:
            raise BadSeries(str(error)) from None
        if frames.ndim != 3 or frames.dtype != np.uint8:
            raise BadSeries(f"found an array of {frames.dtype} and shape {frames.shape}, expected bytes, T × H × W")
        if rate:  # as many frames a second as the configuration has
            speed *= rate * config.frame_seconds
        if speed == 1:
            return np.asarray(frames)
        count = max(1, round(len(frames) / speed))
        places = np.minimum((np.arange(count) + 0.5) * speed, len(frames) - 1).astype(np.int64)
        return np.asarray(frames)[places]
