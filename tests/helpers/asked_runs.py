"""Runs of `ask` with random weights: programs without sense, of real models."""

import torch

from asked import HEADER, WORDS
from sightline.inputs.table import TableInput
from sightline.models.neural_programmer import NeuralProgrammerConfig
from sightline.outputs.answer import AnswerOutput
from sightline.tasks.ask import ASK
from sightline.tasks.configs.ask import AskConfig
from sightline.tasks.run import Run


def asker(name="programmer", seed=0):
    """A Neural Programmer that was never trained."""
    torch.manual_seed(seed)
    config = AskConfig(model=NeuralProgrammerConfig(size=16))
    reading = TableInput(config, list(dict.fromkeys(word.lower() for word in (*WORDS, *HEADER))))
    output = AnswerOutput(config)
    model = config.build(reading, output)
    return Run(ASK, ASK.variants[0], model.eval(), reading, output, config, name)
