"""Tokenisers, sentences, words and where they stand in a text."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.text.masking import MaskingConfig
    from sightline.text.sentences import split_sentences
    from sightline.text.tokeniser import Tokeniser, TokeniserConfig, train_tokeniser, train_tokenisers
    from sightline.text.words import word_spans
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "text.masking": "MaskingConfig",
            "text.sentences": "split_sentences",
            "text.tokeniser": "Tokeniser TokeniserConfig train_tokeniser train_tokenisers",
            "text.words": "word_spans",
        },
    )

__all__ = ["MaskingConfig", "Tokeniser", "TokeniserConfig", "split_sentences", "train_tokeniser", "train_tokenisers"]
__all__ += ["word_spans"]
