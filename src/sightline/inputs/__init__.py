"""What comes into a task: text, words, images, grids. One file for each kind of input."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.inputs.base import Input
    from sightline.inputs.grid import GridInput
    from sightline.inputs.image import ImageInput
    from sightline.inputs.question import QuestionInput
    from sightline.inputs.text import PlainInput, SourceText, TextInput
    from sightline.inputs.words import WordsInput
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "inputs.base": "Input",
            "inputs.grid": "GridInput",
            "inputs.image": "ImageInput",
            "inputs.question": "QuestionInput",
            "inputs.text": "PlainInput SourceText TextInput",
            "inputs.words": "WordsInput",
        },
    )

__all__ = ["GridInput", "ImageInput", "Input", "PlainInput", "QuestionInput", "SourceText", "TextInput"]
__all__ += ["WordsInput"]
