"""Runs made of a model and its tokenisers, without training."""

from dataclasses import replace

from sightline.inputs.sequence_text import SourceText
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.declared.translate import TRANSLATE
from sightline.tasks.run import Run
from sightline.training.folder import RunFolder


def translator(model, source, target, name="the model", shift=0, config=None):
    """A run of `translate` with this model and the tokenisers of its two sides."""
    config = config or TranslateConfig()
    reading, writing = SourceText(config, source), TranslationOutput(config, target, shift)
    return Run(TRANSLATE, TRANSLATE.variants[0], model, reading, writing, config, name)


def saved(run, path, config=None, weights="the last step", sealed=False):
    """The path of a run folder with this run in it, which has no metrics yet; ``config`` is that of its model."""
    folder = RunFolder.create(path)
    names = replace(run, config=config or run.config).save(folder, weights)
    if sealed:
        folder.seal([name for name in names if (path / name).exists()])
    return path
