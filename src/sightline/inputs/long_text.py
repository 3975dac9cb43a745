"""Long texts that are read whole, or cut behind so many tokens, and how many were."""

from collections.abc import Sequence

from sightline.inputs.text import SourceText
from sightline.text.copying import Word


class LongSource(SourceText):
    """Texts of one vocabulary, of which the first ``config.max_source`` tokens are read."""

    def encode(self, xs: Sequence[str]) -> list[list[list[int]]]:
        most = self.config.max_source
        return [[part[:most] for part in parts] for parts in super().encode(xs)]

    def words_of(self, x: str) -> list[Word | None]:
        return super().words_of(x)[: self.config.max_source]

    def count_cut(self, xs: Sequence[str]) -> int:
        most = self.config.max_source
        return 0 if most is None else sum(len(tokens) > most for tokens in self.tokeniser.encode(list(xs)))
