"""How fast Listen, Attend and Spell trains and writes, beside the same model in plain PyTorch; memory of an hour.

    python benchmarks/speech_speed.py [--rounds 20] [--threads 2] [--write]

Both have the sizes of the preset tiny, LSTMs that put neighbours together, location-aware attention, CTC in the loss
and the same optimiser, and take turns on the same made frames (13 numbers, 100 a second). The plain model uses
`nn.LSTM` on packed sequences, `nn.LSTMCell` and attention in a loop, as a user would write it. Both write greedily, by
the decoder alone, as many tokens. Memory is that of the log-mel features of an hour of sound, and of transcribing it.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from report import extra_memory, interleaved, machine, median_ratio, write_section
from sightline.decoding.search import Rules, greedy
from sightline.models.listen_attend_spell import ListenAttendSpell, ListenAttendSpellConfig
from sightline.nn.series import SeriesBatch, SeriesFrontConfig, SeriesShape
from sightline.training.loop import TrainingConfig
from sightline.training.steps import make_optimiser
from sightline.vocabulary import END, START

FEATURES, WORDS, SIZE, DECODER, EMBEDDING, HIDDEN = 13, 31, 192, 256, 64, 128
ROWS, LONGEST, LETTERS, WRITTEN = 20, 400, 24, 40


class Plain(nn.Module):
    """The same model as one would write it."""

    def __init__(self) -> None:
        super().__init__()
        sizes = [2 * FEATURES, 4 * SIZE, 2 * SIZE]
        self.layers = nn.ModuleList(nn.LSTM(n, SIZE, batch_first=True, bidirectional=True) for n in sizes)
        self.ctc = nn.Linear(2 * SIZE, WORDS)
        self.embedding = nn.Embedding(WORDS, EMBEDDING)
        self.start = nn.Linear(2 * SIZE, DECODER)
        self.cell = nn.LSTMCell(EMBEDDING + 2 * SIZE, DECODER)
        self.query, self.key = nn.Linear(DECODER, HIDDEN), nn.Linear(2 * SIZE, HIDDEN)
        self.location = nn.Conv1d(1, 10, 31, padding=15, bias=False)
        self.located, self.score = nn.Linear(10, HIDDEN, bias=False), nn.Linear(HIDDEN, 1, bias=False)
        self.write, self.output = nn.Linear(DECODER + 2 * SIZE, DECODER), nn.Linear(DECODER, WORDS)
        self.dropout = nn.Dropout(0.3)

    def encode(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        for number, layer in enumerate(self.layers):
            if number < 2:
                x = F.pad(x, (0, 0, 0, x.shape[1] % 2)).reshape(len(x), -1, 2 * x.shape[2])
                lengths = (lengths + 1) // 2
            packed = pack_padded_sequence(
                self.dropout(x) if number else x, lengths, batch_first=True, enforce_sorted=False
            )
            x = pad_packed_sequence(layer(packed)[0], batch_first=True)[0]
        return self.dropout(x), lengths

    def begin(self, states: Tensor, lengths: Tensor) -> list[Any]:
        mask = torch.arange(states.shape[1]) < lengths.unsqueeze(-1)
        summary = torch.cat([states[torch.arange(len(states)), lengths - 1, :SIZE], states[:, 0, SIZE:]], dim=-1)
        hidden = torch.tanh(self.start(summary))
        return [states, self.key(states), mask, hidden, torch.zeros_like(hidden), states.new_zeros(states.shape[:2])]

    def step(self, word: Tensor, state: list[Any]) -> Tensor:
        states, keys, mask, hidden, memory, last = state
        located = self.located(self.location(last.unsqueeze(1)).transpose(1, 2))
        scores = self.score(torch.tanh(self.query(hidden).unsqueeze(1) + keys + located)).squeeze(-1)
        weights = torch.softmax(scores.masked_fill(~mask, -torch.inf), dim=-1)
        context = (weights.unsqueeze(1) @ states).squeeze(1)
        hidden, memory = self.cell(torch.cat([word, context], dim=-1), (hidden, memory))
        state[3:] = hidden, memory, weights
        return torch.tanh(self.write(torch.cat([hidden, context], dim=-1)))

    def loss(self, x: Tensor, lengths: Tensor, target: Tensor) -> Tensor:
        states, lengths = self.encode(x, lengths)
        state, words = self.begin(states, lengths), self.dropout(self.embedding(target[:, :-1]))
        features = torch.stack([self.step(words[:, place], state) for place in range(words.shape[1])], dim=1)
        logits = self.output(self.dropout(features))
        written = F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), reduction="sum")
        aligned = F.ctc_loss(
            torch.log_softmax(self.ctc(states), dim=-1).transpose(0, 1),
            target[:, 1:-1].flatten(),
            lengths,
            torch.full((len(x),), target.shape[1] - 2),
            reduction="sum",
        )
        return 0.7 * written + 0.3 * aligned

    @torch.no_grad()
    def greedy(self, x: Tensor, lengths: Tensor, count: int) -> Tensor:
        state = self.begin(*self.encode(x, lengths))
        tokens = [torch.full((len(x),), START)]
        for _ in range(count):
            tokens.append(self.output(self.step(self.embedding(tokens[-1]), state)).argmax(dim=-1))
        return torch.stack(tokens[1:], dim=1)


def made(seed: int = 0) -> tuple[SeriesBatch, Tensor]:
    torch.manual_seed(seed)
    lengths = torch.randint(LONGEST // 2, LONGEST + 1, (ROWS,))
    lengths[0] = LONGEST
    target = torch.randint(4, WORDS, (ROWS, LETTERS))
    target[:, 0], target[:, -1] = 2, 3
    return SeriesBatch(torch.randn(ROWS, LONGEST, FEATURES), lengths), target


def trained(model: nn.Module, loss: Any) -> Any:
    optimiser = make_optimiser(model, TrainingConfig())

    def step() -> None:
        optimiser.zero_grad()
        loss().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()

    return step


def writing(model: ListenAttendSpell, source: SeriesBatch) -> Any:
    rules = Rules(START, END, min_length=WRITTEN, max_length=WRITTEN)

    def write() -> None:
        with torch.inference_mode():
            step, state = model.writing(model.annotate(source))
            greedy(step, state, ROWS, rules)

    return write


def hour(minutes: float) -> Any:
    """Features and windows of a recording, as `predict` reads it."""
    import soundfile

    from sightline.inputs.sound import SoundInput
    from sightline.tasks.configs.transcribe import SoundTranscribeConfig

    config = SoundTranscribeConfig()
    reading = SoundInput(config, SeriesShape((40,), 0.01))
    folder = Path(tempfile.mkdtemp())
    with soundfile.SoundFile(folder / "long.wav", "w", 16000, 1) as file:
        draw = np.random.default_rng(0)
        for _ in range(round(minutes * 6)):
            file.write(draw.normal(0, 0.05, 160_000).astype(np.float32))

    def read() -> None:
        assert len(reading.encode([folder / "long.wav"])[0]) >= 1

    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    source, target = made()
    config = ListenAttendSpellConfig(front=SeriesFrontConfig(masking=None), sampling=0.0)
    ours, plain = config.build(SeriesShape((FEATURES,), 0.01), WORDS), Plain()
    seconds = float(source.lengths.sum()) / 100
    training = interleaved(
        {
            "ours": trained(ours, lambda: ours.loss(source, target).total),
            "plain": trained(plain, lambda: plain.loss(source.values, source.lengths, target)),
        },
        options.rounds,
    )
    ours.eval(), plain.eval()
    predicting = interleaved(
        {"ours": writing(ours, source), "plain": lambda: plain.greedy(source.values, source.lengths, WRITTEN)},
        options.rounds,
    )
    lines = ["| | ours, median | plain PyTorch, median | plain ÷ ours |", "|---|--:|--:|--:|"]
    for name, times, unit in (
        ("training", training, "s of sound a second"),
        ("writing", predicting, "real-time factor"),
    ):
        medians = {one: float(np.median(some)) for one, some in times.items()}
        values = [
            f"{seconds / medians[one]:.0f} {unit}" if name == "training" else f"{medians[one] / seconds:.5f} {unit}"
            for one in ("ours", "plain")
        ]
        lines.append(f"| {name} | {' | '.join(values)} | {median_ratio(times['plain'], times['ours']):.2f} |")
    memory = [extra_memory(hour, minutes) for minutes in (6.0, 60.0)]
    lines += ["", f"Memory to read a recording: {memory[0]:.0f} MB of six minutes, {memory[1]:.0f} MB of an hour."]
    print("\n".join(lines))
    if options.write:
        title = f"## Speed of speech\n\nMeasured on {machine()}; {options.threads} threads, in turns."
        given = f"--rounds {options.rounds} --threads {options.threads}"
        how = f"Reproduce: `python benchmarks/speech_speed.py {given} --write`."
        write_section("speech-speed", "\n".join([title, "", *lines, "", how]))


if __name__ == "__main__":
    main()
