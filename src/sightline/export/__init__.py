"""Runs in the formats of other engines: Hugging Face, CTranslate2, ONNX."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.export.predicting import load_engine
    from sightline.export.run import export_run
    from sightline.export.writing import Closeness, Exported
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "export.predicting": "load_engine",
            "export.run": "export_run",
            "export.writing": "Closeness Exported",
        },
    )

__all__ = ["Closeness", "Exported", "export_run", "load_engine"]
