"""Plain text: to learn from it without labels, and to say what stands behind `<mask>`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from sightline.data.checking import Limits
from sightline.data.columns import Cells
from sightline.data.plain import without_blanks
from sightline.inputs.text import ReaderInput, check_length, text_of
from sightline.tasks.task import BadValueError
from sightline.text.windows import owners, windows
from sightline.vocabulary import MASK_SPELLING

Plain = str | tuple[int, ...]  # a text, or its tokens where a run has kept no more of it


class Masked(NamedTuple):
    """Part of a text with masks as a model reads it, with start and end.

    ``first`` is the number of its first token in the text, ``masks`` are the places of the masks that it answers for.
    """

    tokens: list[int]
    first: int
    masks: list[int]


class PlainInput(ReaderInput):
    """Texts. Only those with a mask have something to predict; around each, ``config.longest`` tokens are read."""

    def stage(self, tables: Sequence[Iterable[Cells]], setting: Any) -> Sequence[Iterable[Cells]]:
        return [without_blanks(rows) for rows in tables]

    def read(self, cells: Mapping[str, Any]) -> str:
        text = text_of(cells, "text").strip()
        if not text:
            raise BadValueError("no text: found blanks alone, expected words")
        return text

    def check(self, x: str, limits: Limits) -> None:
        check_length(x, "a text", limits)

    def identity(self, x: Plain) -> str:
        from sightline.tasks.prepare import normalised

        return normalised(self.text(x))

    def text(self, x: Plain) -> str:
        """An item as text."""
        tokeniser: Any = self.reader.tokeniser if not isinstance(x, str) else None
        return x if isinstance(x, str) else tokeniser.decode([list(x)])[0]

    def train_parts(self, xs: Sequence[Plain]) -> list[list[list[int]]]:
        """The tokens alone: texts are one stream, which is cut into blocks."""
        return [[tokens] for tokens in self.tokens(xs)]

    def tokens(self, xs: Sequence[Plain]) -> list[list[int]]:
        """The tokens of each text; masks are not among them."""
        coming = iter(self.reader.tokeniser.encode([x for x in xs if isinstance(x, str)]))
        return [next(coming) if isinstance(x, str) else list(x) for x in xs]

    def with_masks(self, text: str) -> list[int]:
        """The tokens of a text, a mask for each `<mask>`."""
        mask = self.reader.specials.mask
        found: list[int] = []
        between = [one.strip() for one in text.split(MASK_SPELLING)]
        for number, tokens in enumerate(self.reader.tokeniser.encode(between)):
            found += [mask, *tokens] if number else tokens  # type: ignore[list-item]
        return found

    def encode(self, xs: Sequence[Plain]) -> list[list[Masked]]:
        return [self.parts(self.with_masks(x)) if isinstance(x, str) and MASK_SPELLING in x else [] for x in xs]

    def parts(self, tokens: Sequence[int]) -> list[Masked]:
        """Tokens with masks among them, in stretches where they are many, without those that answer for none."""
        specials, room = self.reader.specials, self.config.longest - 2
        stretches = windows([1] * len(tokens), room, room // 2)
        found = []
        for (first, behind), (start, end) in zip(stretches, owners(stretches), strict=True):
            masks = [1 + at - first for at in range(start, end) if tokens[at] == specials.mask]
            if masks:
                found.append(Masked([specials.start, *tokens[first:behind], specials.end], first, masks))
        return found

    def stored(self, part: Any) -> Any:
        return part.tokens if isinstance(part, Masked) else part

    def label(self, x: Plain) -> str:
        return self.text(x)

    def texts(self, x: Plain) -> tuple[str, ...]:
        return (self.text(x),)

    def parse(self, line: str, number: int, is_json: bool) -> str:
        """A line as it stands, which may be empty."""
        return super().parse(line, number, True) if is_json else line
