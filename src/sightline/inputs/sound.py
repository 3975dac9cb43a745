"""Sound: files of any rate, as log-mel features of short frames."""

from pathlib import Path

import numpy as np
import torch

from sightline.data.augment import change_speed
from sightline.data.decoding import Decoding
from sightline.data.sound import ENDINGS, BadSound, read_sound, wav_bytes
from sightline.inputs.base import Shown
from sightline.inputs.files import FileItem, file_of
from sightline.inputs.series import BadSeries, SeriesInput
from sightline.nn.mel import LogMelConfig, log_mel
from sightline.picture import Picture
from sightline.recording import Recording


class SoundInput(SeriesInput):
    """Recordings. A program may give samples instead: one number each, at the rate of the configuration."""

    kind = "sound"
    noun = "recordings"
    column = "audio"
    endings = ENDINGS

    @property
    def mel(self) -> LogMelConfig:
        return self.config.sound

    def frame_seconds(self) -> float:
        return self.mel.hop

    def samples_of(self, file: Path | bytes | np.ndarray) -> np.ndarray:
        """The samples of a file, at the rate of the configuration."""
        if isinstance(file, np.ndarray):
            if file.ndim != 1 or file.dtype.kind != "f" or not np.isfinite(file).all():
                raise BadSeries(f"found an array of {file.dtype} and shape {file.shape}, expected samples from -1 to 1")
            return file.astype(np.float32)
        try:
            return read_sound(file, self.mel.rate)
        except BadSound as error:
            raise BadSeries(str(error)) from None

    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        samples = self.samples_of(file)
        if speed != 1:
            samples = change_speed(samples, speed)
        with torch.inference_mode():
            return log_mel(torch.from_numpy(samples), self.mel).half().numpy()

    def shown(self, x: FileItem) -> Shown:
        samples = self.samples_of(file_of(x))
        frames = self.frames_of(samples)
        seconds, name = len(samples) / self.mel.rate, Path(self.label(x)).name
        return {"input": name, "recording": Recording.of(frames, seconds, wav_bytes(samples, self.mel.rate), name)}

    def receive(self, content: bytes, decoding: Decoding, shown: bool) -> tuple[np.ndarray, int, Picture | None]:
        samples = decoding.sound(content, self.mel.rate)
        return samples, samples.nbytes, None
