"""One paper, one file: each puts the layers together, with its configuration beside it."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.models.attentive import Attentive, AttentiveConfig
    from sightline.models.captioning_transformer import CaptioningTransformer, CaptioningTransformerConfig
    from sightline.models.encoder import Encoder, EncoderConfig
    from sightline.models.grammar import GrammarConfig
    from sightline.models.grid import GridModel, GridModelConfig
    from sightline.models.grid_at_once import AtOnceConfig, SingleConfig
    from sightline.models.grid_sequential import SequentialConfig
    from sightline.models.han import HAN, HANConfig
    from sightline.models.image_to_labels import ImageToLabels, ImageToLabelsConfig
    from sightline.models.image_to_text import ImageToText, ImageToTextConfig
    from sightline.models.luong import LuongConfig
    from sightline.models.recurrent import RecurrentModel
    from sightline.models.rnnsearch import RNNSearchConfig
    from sightline.models.seq2seq import Seq2SeqConfig
    from sightline.models.show_attend_tell import ShowAttendTell, ShowAttendTellConfig
    from sightline.models.text_to_labels import TextModel, TextModelConfig
    from sightline.models.text_to_text import TextToText, TextToTextConfig
    from sightline.models.transformer import Transformer, TransformerConfig
    from sightline.models.universal import Universal, UniversalConfig
    from sightline.models.universal_transformer import UniversalTransformer, UniversalTransformerConfig
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "models.attentive": "Attentive AttentiveConfig",
            "models.captioning_transformer": "CaptioningTransformer CaptioningTransformerConfig",
            "models.encoder": "Encoder EncoderConfig",
            "models.grammar": "GrammarConfig",
            "models.grid": "GridModel GridModelConfig",
            "models.grid_at_once": "AtOnceConfig SingleConfig",
            "models.grid_sequential": "SequentialConfig",
            "models.han": "HAN HANConfig",
            "models.image_to_labels": "ImageToLabels ImageToLabelsConfig",
            "models.image_to_text": "ImageToText ImageToTextConfig",
            "models.luong": "LuongConfig",
            "models.recurrent": "RecurrentModel",
            "models.rnnsearch": "RNNSearchConfig",
            "models.seq2seq": "Seq2SeqConfig",
            "models.show_attend_tell": "ShowAttendTell ShowAttendTellConfig",
            "models.text_to_labels": "TextModel TextModelConfig",
            "models.text_to_text": "TextToText TextToTextConfig",
            "models.transformer": "Transformer TransformerConfig",
            "models.universal": "Universal UniversalConfig",
            "models.universal_transformer": "UniversalTransformer UniversalTransformerConfig",
        },
    )

__all__ = ["AtOnceConfig", "Attentive", "AttentiveConfig", "CaptioningTransformer", "CaptioningTransformerConfig"]
__all__ += ["HAN", "Encoder", "EncoderConfig", "GrammarConfig", "GridModel", "GridModelConfig", "HANConfig"]
__all__ += ["ImageToLabels"]
__all__ += ["ImageToLabelsConfig", "ImageToText", "ImageToTextConfig", "LuongConfig", "RNNSearchConfig"]
__all__ += ["RecurrentModel", "Seq2SeqConfig", "SequentialConfig", "ShowAttendTell", "ShowAttendTellConfig"]
__all__ += ["SingleConfig", "TextModel", "TextModelConfig", "TextToText", "TextToTextConfig", "Transformer"]
__all__ += ["TransformerConfig", "Universal", "UniversalConfig", "UniversalTransformer", "UniversalTransformerConfig"]
