"""Signals in the manner of Morse to text: an input and a model of one's own, and the sequences of Sightline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from sightline.attention import AdditiveConfig, AttentionConfig, ComposedConfig
from sightline.config import Config
from sightline.models.writer import Writer
from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
from sightline.outputs.sequence import SequenceOutput
from sightline.records import Axis, Frames
from sightline.tasks.configs.base import TaskConfig
from sightline.tasks.task import BadValueError, Column
from sightline.text.tokeniser import TokeniserConfig
from sightline_extras.vectors import Batch, Vectors, VectorsInput, read_vectors

CODE = {"a": ".-", "d": "-..", "e": ".", "i": "..", "m": "--", "n": "-.", "o": "---", "s": "...", "t": "-"}
SECONDS = 0.05  # of a frame


def signal(text: str) -> Vectors:
    """The frames of a text: a tone is one or three frames long, silence stands between tones, letters and words."""
    frames = list[list[float]]()
    for letter in text:
        for tone in CODE.get(letter, ""):
            frames += [[1.0, 0.5]] * (1 if tone == "." else 3) + [[0.0, 0.5]]
        frames += [[0.0, 0.1]] * (2 if letter in CODE else 4)
    return frames


class FramesInput(VectorsInput):
    """A list of frames."""

    kind = "frames"
    noun = "signals"
    columns = (Column("frames", "a list of frames"),)
    source_name = "signal"

    def read(self, cells: Mapping[str, Any]) -> Vectors:
        return read_vectors(cells, "frames")

    def axis(self, x: Vectors, part: Any) -> Axis:
        return Frames(len(x), SECONDS)


class SpelledOutput(SequenceOutput):
    """What a signal spells."""

    compared = ("chrf", "exact")

    def read(self, cells: Mapping[str, Any], x: Vectors) -> str:
        text = cells.get("text")
        if not isinstance(text, str) or not text.strip():
            raise BadValueError(f"no text: found {text!r}, expected what the signal spells")
        return text


@dataclass(frozen=True)
class ListenerConfig(Config):
    """A recurrent network that hears the signal in both directions, and a decoder that attends to it."""

    size: int = 16
    attention: AttentionConfig = field(default_factory=lambda: ComposedConfig(AdditiveConfig(hidden_size=16)))
    family: ClassVar[str] = "frames_to_text"
    kind: ClassVar[str] = "listener"


class Listener(Writer):
    """Frames in, tokens out."""

    def __init__(self, config: ListenerConfig, width: int, words: int) -> None:
        super().__init__(words, config.size)
        self.encoder = nn.GRU(width, config.size, batch_first=True, bidirectional=True)
        shape = DecoderShape(config.size, 2 * config.size, config.size, attention=config.attention, looks="before")
        self.decoder = RecurrentAttentionDecoder(shape)
        self.start = nn.Linear(2 * config.size, config.size)
        self.add_output(config.size, tied=False)

    def begin(self, source: Batch) -> DecoderState:
        lengths = source.mask.sum(1).cpu()
        packed = pack_padded_sequence(source.vectors, lengths, batch_first=True, enforce_sorted=False)
        heard, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        mean = heard.sum(1) / lengths.to(heard.device).unsqueeze(1)
        return self.decoder.begin(torch.tanh(self.start(mean)).unsqueeze(0), heard, source.mask)

    def decode(self, words: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
        return self.decoder(self.target_embedding(words), state)


@dataclass(frozen=True)
class MorseConfig(TaskConfig):
    """``max_length`` bounds the tokens of a text."""

    model: ListenerConfig = field(default_factory=ListenerConfig)
    tokeniser: TokeniserConfig = field(default_factory=lambda: TokeniserConfig(method="characters", vocab_size=64))
    metric: Literal["exact", "chrf"] = "exact"
    smoothing: float = 0.0
    max_length: int = 32
    batch_tokens: int = 4096
    counts: ClassVar[tuple[str, ...]] = ("batch_tokens", "max_length")

    def build(self, input: Any, output: Any) -> Listener:
        return Listener(self.model, input.width, output.tokeniser.words)
