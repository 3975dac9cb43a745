"""Arrays of features: ``.npy`` files of frames × features, such as cepstra of sound or values of sensors."""

from pathlib import Path

import numpy as np

from sightline.data.augment import stretch
from sightline.data.disk import array_of, mapped
from sightline.data.series_tables import VECTORS
from sightline.inputs.series import BadSeries, SeriesInput

MOST_FRAMES = 10_000_000


class VectorsInput(SeriesInput):
    """Files of arrays, T × D. Each is kept in 16 bits, and at other speeds its frames are interpolated."""

    kind = "vectors"
    noun = "arrays"
    source_name = "frames"
    column = "features"
    files = VECTORS
    example = '"features.npy"'

    def frame_seconds(self) -> float:
        return self.config.frame_seconds

    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        frames = file if isinstance(file, np.ndarray) else _read(file)
        if frames.ndim != 2 or frames.dtype.kind not in "fiu" or not 0 < frames.shape[1] < 1 << 16:
            raise BadSeries(f"found an array of {frames.dtype} and shape {frames.shape}, expected frames × features")
        if len(frames) > MOST_FRAMES:
            raise BadSeries(f"too long: found {len(frames):,} frames, expected at most {MOST_FRAMES:,}")
        values = np.asarray(frames, np.float32)
        if not np.isfinite(values).all() or np.abs(values).max(initial=0) > np.finfo(np.float16).max:
            raise BadSeries("found numbers that are not finite or above 65,504, expected smaller ones")
        return (values if speed == 1 else stretch(values, speed)).astype(np.float16)


def _read(file: Path | bytes) -> np.ndarray:
    try:
        return array_of(file) if isinstance(file, bytes) else mapped(file)
    except FileNotFoundError:
        raise BadSeries("there is no such file") from None
    except (OSError, ValueError, EOFError) as error:
        raise BadSeries(f"it is no array (.npy): {error}") from None
