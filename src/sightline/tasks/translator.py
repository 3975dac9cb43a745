"""A trained model from text to text: predict, score, save and load."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from sightline.config import Config
from sightline.data.tokenise import Tokeniser
from sightline.explanation import Explanation
from sightline.models.text_to_text import TextToText, TextToTextConfig
from sightline.tasks.loading import Saved
from sightline.tasks.predictor import Member, Prediction, Predictor  # noqa: F401 - others import them from here
from sightline.tasks.searching import pad
from sightline.training.folder import MODEL, RunFolder, save_tensors
from sightline.vocabulary import END, START

if TYPE_CHECKING:
    from sightline.tasks.choosing import Aligned

SOURCE, TARGET = "source.json", "target.json"


class Translator(Predictor):
    """A model with its tokenisers.

    ``name`` is what errors call it: the folder it comes from. ``shift`` is by how many rows its maps are moved when
    they are shown (`sightline.tasks.explaining.measured_shift`).
    """

    def __init__(
        self, model: TextToText, source: Tokeniser, target: Tokeniser, name: str = "the model", shift: int = 0
    ) -> None:
        self.model, self.source, self.target, self.name, self.shift = model, source, target, name, shift

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def members(self) -> tuple[Member, ...]:
        return (Member(self.model, self.source, self.target, self.name),)

    def as_run(self) -> Any:
        """The same as a run."""
        from sightline.inputs.sequence_text import SourceText
        from sightline.outputs.translation import TranslationOutput
        from sightline.tasks.declared.translate import TRANSLATE
        from sightline.tasks.run import Run

        output = TranslationOutput(None, self.target, self.shift)
        return Run(TRANSLATE, TRANSLATE.variants[0], self.model, SourceText(None, self.source), output, None, self.name)

    def explain(self, text: str, output: str | None = None, **options: Any) -> Explanation:
        """Where the model looked while it wrote: its own output, or the one given.

        Options are the other fields of `sightline.tasks.explaining.Wanted`. The explanation shows itself in a notebook,
        and its `save` writes pictures and pages.
        """
        from sightline.tasks.explaining import Wanted, explain

        return explain(self, text, Wanted(output, **options))

    def align(self, sources: Sequence[str], targets: Sequence[str], **options: Any) -> "Aligned":
        """Which words of pairs belong together, by attention; options as for `sightline.tasks.choosing.align`."""
        from sightline.tasks.choosing import align

        reverse = options.pop("reverse", None)
        other = None if reverse is None else reverse.as_run()
        return align(self.as_run(), sources, targets, reverse=other, **options)

    @torch.no_grad()
    def perplexity(self, pairs: Sequence[tuple[str, str]], rows: int = 64) -> float:
        """exp of the mean loss of a target token, without smoothing."""
        total, tokens = 0.0, 0
        ordered = sorted(pairs, key=lambda pair: len(pair[0]))
        for start in range(0, len(ordered), rows):
            part = ordered[start : start + rows]
            source = pad([[*ids, END] for ids in self.source.encode([a for a, _ in part])]).to(self.device)
            target = pad([[START, *ids, END] for ids in self.target.encode([b for _, b in part])]).to(self.device)
            loss = self.model.loss(source, target)
            total, tokens = total + float(loss.total), tokens + loss.tokens
        return math.exp(min(total / max(tokens, 1), 700))


def save_translator(folder: RunFolder, translator: Translator, config: Config, weights: str) -> None:
    """Everything that `load_translator` needs."""
    save_tensors(folder.path / MODEL, dict(translator.model.state_dict()))
    translator.source.save(folder.path / SOURCE)
    translator.target.save(folder.path / TARGET)
    sizes = {"source_words": translator.source.words, "target_words": translator.target.words}
    about = {"task": "translate", "weights": weights, "shift": translator.shift, **sizes}
    folder.write_config({**about, "config": config.to_json()})


def load_translator(path: Path) -> tuple[Translator, dict[str, Any]]:
    """A trained model from its run folder, checked file by file; or as it was at one of the run's checkpoints."""
    saved = Saved.open(path, "translate")
    data = saved.about
    with saved.reading():
        config = TextToTextConfig.from_json(data["config"]["model"])
        sizes = data["source_words"], data["target_words"]
        shift = data.get("shift", 0)  # runs of earlier versions have none
        if shift not in (-1, 0, 1):
            raise ValueError(f"shift is {shift!r}; it is -1, 0 or 1")
    model = saved.model(lambda: config.build(*sizes))
    source, target = Tokeniser.load(saved.path / SOURCE), Tokeniser.load(saved.path / TARGET)
    model.requires_grad_(False)  # to be used, not to learn: search may keep what it makes of the weights
    return Translator(model, source, target, saved.name, shift), data
