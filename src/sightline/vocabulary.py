"""The tokens that every vocabulary begins with. Data and models share nothing else."""

from dataclasses import dataclass

PADDING, UNKNOWN, START, END = range(4)
SPELLINGS = ("<pad>", "<unk>", "<s>", "</s>")  # how files and pictures write them, in the order of their ids
MASK, MASK_SPELLING = 4, "<mask>"  # only vocabularies for pre-training have it


@dataclass(frozen=True)
class Specials:
    """The ids of the tokens that are no words: ours, or those of a foreign vocabulary."""

    padding: int = PADDING
    unknown: int = UNKNOWN
    start: int = START
    end: int = END
    mask: int | None = None  # where there is one


OURS = Specials()
