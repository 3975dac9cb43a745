"""Models and formats of other libraries."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel
    from sightline.interop.pretrained import Pretrained, load_pretrained
    from sightline.interop.tokens import PretrainedTokeniser
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "interop.huggingface": "HuggingFaceModel",
            "interop.pretrained": "Pretrained load_pretrained",
            "interop.tokens": "PretrainedTokeniser",
        },
    )

__all__ = ["HuggingFaceModel", "Pretrained", "PretrainedTokeniser", "load_pretrained"]
