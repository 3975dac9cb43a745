"""The recording of an explanation: its sound as a small file, its spectrogram, or the frames of a clip. Plain data."""

from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_BYTES = 4 << 20  # of the sound: two minutes of 16 kHz
MOST_SHOWN = 1 << 22  # numbers of a spectrogram or of frames


@dataclass(frozen=True, eq=False)
class Recording:
    """What a model heard or watched.

    ``values`` are bytes: frames × bands of a spectrogram (the lowest band first), or frames × height × width of a clip;
    0 is the least. ``seconds`` is how long all of it is (0: unknown), ``step`` the time from one of the frames to the
    next (0: they fill all of it evenly). ``wav`` is the sound, mono, if there is any.
    """

    values: np.ndarray
    seconds: float
    wav: bytes | None = None
    name: str = ""
    step: float = 0.0

    def __post_init__(self) -> None:
        values = self.values
        if values.dtype != np.uint8 or values.ndim not in (2, 3) or not 0 < values.size <= MOST_SHOWN:
            raise ValueError(f"frames are bytes, frames × bands or frames × height × width; found {values.shape}")
        if not (0 <= self.seconds < 1e6 and 0 <= self.step < 1e6):
            raise ValueError(f"seconds is {self.seconds} and step {self.step}; they must be at least 0")
        if self.wav is not None and (len(self.wav) > MOST_BYTES or not self.wav.startswith(b"RIFF")):
            raise ValueError(f"the sound is no WAV file of at most {MOST_BYTES:,} bytes")

    @classmethod
    def of(
        cls, frames: np.ndarray, seconds: float, wav: bytes | None = None, name: str = "", step: float = 0.0
    ) -> "Recording":
        """Of features, or of images: features are scaled so that 1 % of them are the darkest, 1 % the lightest."""
        every = -(-frames.size // MOST_SHOWN)
        frames = frames[::every]
        if frames.dtype != np.uint8:
            values = frames.astype(np.float32)
            low, high = np.quantile(values, (0.01, 0.99)) if values.size else (0.0, 1.0)
            frames = (np.clip((values - low) / max(high - low, 1e-6), 0, 1) * 255).astype(np.uint8)
        kept = wav if wav is None or len(wav) <= MOST_BYTES else None
        return cls(np.ascontiguousarray(frames), seconds, kept, name, every * step)

    @property
    def frame_seconds(self) -> float:
        """From one frame to the next; 0 where times are unknown."""
        return self.step or self.seconds / len(self.values)

    def to_json(self) -> dict[str, object]:
        data = {"shape": list(self.values.shape), "values": b64encode(self.values.tobytes()).decode()}
        sound = None if self.wav is None else b64encode(self.wav).decode()
        return {**data, "seconds": self.seconds, "wav": sound, "name": self.name, "step": self.step}

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> "Recording":
        fields: Any = data
        values = np.frombuffer(b64decode(fields["values"], validate=True), np.uint8).reshape(fields["shape"])
        wav = None if fields.get("wav") is None else b64decode(fields["wav"], validate=True)
        return cls(values, fields["seconds"], wav, fields.get("name", ""), fields.get("step", 0.0))
