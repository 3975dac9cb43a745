"""Encoders and decoders made of attention: the parts that models are built from."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.nn.annotating import TokenEmbedding
    from sightline.nn.decoder import DecoderShape, DecoderState, RecurrentAttentionDecoder
    from sightline.nn.efficientnet import EfficientNetLite0, EfficientNetLite0Config
    from sightline.nn.image import CNN, CNNConfig, ImageEncoder, ImageEncoderConfig
    from sightline.nn.lora import LoraConfig, add_lora, merge_lora
    from sightline.nn.mel import LogMelConfig, log_mel
    from sightline.nn.rnn import BidirectionalEncoder
    from sightline.nn.timm import TimmConfig, TimmEncoder
    from sightline.nn.transformer import DecoderLayer, EncoderLayer, LayerShape
    from sightline.nn.universal import UniversalEncoder
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "nn.annotating": "TokenEmbedding",
            "nn.decoder": "DecoderShape DecoderState RecurrentAttentionDecoder",
            "nn.efficientnet": "EfficientNetLite0 EfficientNetLite0Config",
            "nn.image": "CNN CNNConfig ImageEncoder ImageEncoderConfig",
            "nn.lora": "LoraConfig add_lora merge_lora",
            "nn.mel": "LogMelConfig log_mel",
            "nn.rnn": "BidirectionalEncoder",
            "nn.timm": "TimmConfig TimmEncoder",
            "nn.transformer": "DecoderLayer EncoderLayer LayerShape",
            "nn.universal": "UniversalEncoder",
        },
    )

__all__ = ["CNN", "BidirectionalEncoder", "CNNConfig", "DecoderLayer", "DecoderShape", "DecoderState"]
__all__ += ["EfficientNetLite0", "EfficientNetLite0Config", "EncoderLayer", "ImageEncoder", "ImageEncoderConfig"]
__all__ += [
    "LayerShape",
    "LogMelConfig",
    "LoraConfig",
    "RecurrentAttentionDecoder",
    "TimmConfig",
    "TimmEncoder",
    "TokenEmbedding",
    "UniversalEncoder",
]
__all__ += ["add_lora", "log_mel", "merge_lora"]
