"""What `test_data_checking` and other tests share."""

import numpy as np

from sightline.data.checking import RowLimits
from sightline.data.disk import hash_of
from sightline.data.splitting import key_of, normalise, split_hashes
from sightline.inputs.text import SourceText
from sightline.outputs.translation import TranslationOutput
from sightline.tasks.configs.translate import TranslateConfig
from sightline.tasks.prepare import checked
from sightline.tasks.registry import task_named


def checked_pairs(rows, limits=None):
    """The good pairs of some rows, as training on them reads them."""
    task, config = task_named("translate"), TranslateConfig()
    return checked(rows, SourceText(config), TranslationOutput(config), task.columns, limits or RowLimits(), "pairs")


def hashes(pairs, seed):
    sources = [hash_of(normalise(source), key_of(seed)) for source, _ in pairs]
    return np.array(sources, np.uint64), np.array([hash_of(normalise(target)) for _, target in pairs], np.uint64)


def marks(pairs, asked, seed):
    split = split_hashes(*hashes(pairs, seed), asked)
    return split.train(0, len(pairs)), split.valid(0, len(pairs))


def parts(pairs, asked, seed):
    return [[pairs[i] for i in np.flatnonzero(marked)] for marked in marks(pairs, asked, seed)]
