"""Runs made of a model and its tokenisers, without training; and tasks by their names: what they read and learn."""

from contextlib import contextmanager
from dataclasses import replace

from sightline.cli.train import base_config
from sightline.data.checking import RowLimits
from sightline.data.source import Source
from sightline.inputs.text import SourceText
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.prepare import Setting, preparing, read_examples
from sightline.tasks.registry import task_named
from sightline.tasks.run import Run
from sightline.tasks.task import imported
from sightline.tasks.train import started, train_task
from sightline.tasks.translate import TRANSLATE
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


def read_as(task, data, columns=None, limits=None, config=None, **options):
    """The examples that a task reads out of data, and what was left out: all that is bad, unless there are limits."""
    task, source = task_named(task), Source.of(data, columns, **options)
    variant = task.variant_for(source)
    task, config = task.of(variant), config or imported(variant.config)()
    reading, output = (imported(one)(config) for one in (variant.input, variant.output))
    return read_examples(source, task, variant, reading, output, limits or RowLimits(1_000_000, 1.0))


@contextmanager
def prepared_as(task, data, folder, config, valid=None, start=None, limits=None, fold=None):
    """What training begins with and, to be read inside the block, the rows that it trains on."""
    task, source = task_named(task), Source.of(data)
    variant = task.variant_for(source)
    limits = limits or RowLimits(task.max_characters, task.max_bad_share)
    setting = Setting(task.of(variant), variant, config, folder, limits, started(task, variant, start), fold=fold)
    with preparing(source, None if valid is None else Source.of(valid), setting) as (prepared, rows):
        yield prepared, rows


def trained_on(task, data, out, config, **options):
    """A run of a task that was trained on this data, and how it ended; without data the run in ``out`` is resumed."""
    return train_task(task_named(task), None if data is None else Source.of(data), out, config, **options)


def config_from(task, path):
    """The configuration of a run of a task that begins with what an earlier one learnt."""
    task = task_named(task)
    return base_config(task, task.variants[-1], None, None, path)
