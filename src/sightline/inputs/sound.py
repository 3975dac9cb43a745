"""Sound: files of any rate, as log-mel features of short frames."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import torch

from sightline.data.decoding import Decoding
from sightline.data.resampling import change_speed
from sightline.data.series_tables import SOUNDS
from sightline.data.sound import BadSound, quality, read_header, read_sound, sound_blocks, wav_bytes
from sightline.data.sound import windows as quiet_windows
from sightline.inputs.base import Shown
from sightline.inputs.files import FileItem, file_of
from sightline.inputs.series import BadSeries, SeriesInput
from sightline.nn.mel import LogMelConfig, log_mel, stream_log_mel
from sightline.nn.series import SeriesShape
from sightline.picture import Picture
from sightline.recording import Recording
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.loading import SavedRun
from sightline.tasks.prepare import Setting

HEADERS = 200  # files whose rate is looked at
BLOCK = 10.0  # seconds that are read at once
LOUDNESS = 4096  # frames whose loudness is measured at once
NAMED = 5  # doubtful files that are named


class SoundInput(SeriesInput):
    """Recordings. A program may give samples instead: one number each, at the rate of the configuration."""

    kind = "sound"
    noun = "recordings"
    column = "audio"
    at_once = 8  # an hour of frames is some thirty megabytes
    files = SOUNDS

    def __init__(self, config: TaskConfig, shape: SeriesShape | None = None, rate: int | None = None) -> None:
        super().__init__(config, shape)
        self.rate = rate or config.sound.rate
        self.doubtful: dict[str, list[str]] = {}  # files of the training data by what is wrong with them

    @property
    def mel(self) -> LogMelConfig:
        """The features at the rate of the data: a lower rate has no frequencies above half of it."""
        sound: LogMelConfig = self.config.sound
        if self.rate == sound.rate:
            return sound
        highest = None if sound.highest is None else min(sound.highest, self.rate / 2)
        return replace(sound, rate=self.rate, highest=highest, lowest=min(sound.lowest, self.rate / 8))

    def read_files(self, files: Sequence[Path | np.ndarray], setting: Setting) -> Mapping[int, str]:
        """At the lowest rate that some of the files have, or at that of the configuration if it is lower."""
        earlier = None if setting.start is None else setting.start.run.input
        rates = [self.config.sound.rate]
        for file in cast("Sequence[Path]", files[:HEADERS]):
            with suppress(BadSound):
                rates.append(read_header(file).rate)
        self.rate = min(rates) if earlier is None else earlier.rate
        self.doubtful = {}
        return super().read_files(files, setting)

    def examine(self, file: Path | np.ndarray) -> None:
        """Note what is wrong with a recording that can be used all the same."""
        try:
            for fault in quality(self.samples_of(file)).faults(1.0, 0.0, 2.0):  # its length is checked by its frames
                self.doubtful.setdefault(fault, []).append(cast("Path", file).name)
        except BadSeries:
            pass

    def notes(self) -> list[str]:
        lines = super().notes()
        if self.rate < self.config.sound.rate and self.per_second:
            lines.append(f"recordings are read at {self.rate:,} Hz, the lowest rate of these files")
        for fault, names in self.doubtful.items():
            shown = ", ".join(names[:NAMED]) + (", …" if len(names) > NAMED else "")
            lines.append(f"{len(names):,} recordings are {fault} (kept): {shown}")
        return lines

    def frame_seconds(self) -> float:
        return self.mel.hop

    def samples_of(self, file: Path | bytes | np.ndarray) -> np.ndarray:
        """The samples of a file, at the rate of the configuration."""
        if isinstance(file, np.ndarray):
            if file.ndim != 1 or file.dtype.kind != "f" or not len(file):
                raise BadSeries(f"found an array of {file.dtype} and shape {file.shape}, expected samples from -1 to 1")
            if not np.isfinite(file).all():
                raise BadSeries("found samples that are no finite numbers, expected samples from -1 to 1")
            return file.astype(np.float32)
        try:
            return read_sound(file, self.mel.rate)
        except BadSound as error:
            raise BadSeries(str(error)) from None

    def frames_of(self, file: Path | bytes | np.ndarray, speed: float = 1.0) -> np.ndarray:
        if speed != 1:
            samples = change_speed(self.samples_of(file), speed)
            with torch.inference_mode():
                return log_mel(torch.from_numpy(samples), self.mel).half().numpy()
        try:  # in blocks: an hour of samples is never in memory
            blocks = [self.samples_of(file)] if isinstance(file, np.ndarray) else sound_blocks(file, self.rate, BLOCK)
            return np.concatenate([some.astype(np.float16) for some in stream_log_mel(blocks, self.mel)])
        except BadSound as error:
            raise BadSeries(str(error)) from None

    def windows(self, frames: np.ndarray) -> list[tuple[int, int]]:
        """Cut where it is quietest."""
        if len(frames) <= self.config.max_frames:
            return [(0, len(frames))]
        some = range(0, len(frames), LOUDNESS)  # an hour at once would take a hundred megabytes
        parts = [np.exp(frames[start : start + LOUDNESS].astype(np.float32)).mean(axis=1) for start in some]
        loudness = np.concatenate(parts)
        return quiet_windows(loudness, self.mel.hop, self.config.max_frames * self.mel.hop)

    def shown(self, x: FileItem) -> Shown:
        samples = self.samples_of(file_of(x))
        frames = self.frames_of(samples)
        first, end = self.windows(frames)[0]  # what is explained
        frames, samples = frames[first:end], samples[: end * self.mel.hop_samples + self.mel.window_samples]
        seconds, name = len(samples) / self.mel.rate, Path(self.label(x)).name
        wav = wav_bytes(samples, self.mel.rate)
        return {"input": name, "recording": Recording.of(frames, seconds, wav, name, self.mel.hop)}

    def save(self, folder: Path) -> tuple[dict[str, object], list[str]]:
        about, names = super().save(folder)
        return {**about, "rate": self.rate}, names

    @classmethod
    def load(cls, saved: SavedRun, config: TaskConfig) -> "SoundInput":
        with saved.reading():
            rate = saved.about["rate"]
            if type(rate) is not int or not 1000 <= rate <= config.sound.rate:
                raise ValueError(f"rate is {rate!r}")
            if saved.about["frame_seconds"] != config.sound.hop:
                raise ValueError(f"frame_seconds is {saved.about['frame_seconds']}, and the hop {config.sound.hop}")
        return cls(config, super().load(saved, config).shape, rate)

    def receive(self, content: bytes, decoding: Decoding, shown: bool) -> tuple[np.ndarray, int, Picture | None]:
        samples = decoding.sound(content, self.mel.rate)
        return samples, samples.nbytes, None
