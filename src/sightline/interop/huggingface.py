"""Models in a Hugging Face folder: ``load(DIR).explain(text)`` shows their attention.

The folder is untrusted: weights are read from safetensors and never from a pickle, no code of the folder is run,
nothing is fetched from a network. Needs `transformers` (the extra ``hf``).
"""

import contextlib
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import torch
from torch import nn

from sightline.errors import UserError
from sightline.explain.explanation import Explanation
from sightline.files import check_tensors, open_regular
from sightline.interop.pieces import LARGEST_FILE, Pieces
from sightline.interop.tokens import CUT, read_json

if TYPE_CHECKING:
    from transformers import PreTrainedConfig

PREFIX = "hf:"
CONFIG, WEIGHTS, TOKENISER = "config.json", "model.safetensors", "tokenizer.json"
PARTS = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
LARGEST_CONFIG = 1 << 22  # bytes; the index of parts of a large model has a tenth of that
MOST_LAYERS = 1_000  # an untrusted number: building layers takes time before anything else fails
Kind = Literal["vector", "masked", "label", "next", "written"]
CLASSES: dict[Kind, str] = {
    "vector": "AutoModel",
    "masked": "AutoModelForMaskedLM",
    "label": "AutoModelForSequenceClassification",
    "next": "AutoModelForCausalLM",
    "written": "AutoModelForSeq2SeqLM",
}


class HuggingFaceModel:
    """A model, its tokeniser and its task. ``kind`` is what it predicts: a ``vector`` of a text, a word for a mask
    (``masked``), a ``label``, the ``next`` token, or a text ``written`` from another."""

    def __init__(self, model: nn.Module, pieces: Pieces, kind: Kind, name: str, first: bool = False) -> None:
        self.model, self.pieces, self.kind, self.name = model.eval(), pieces, kind, name
        self.first = first  # whether the vector of a text is that of its first token, instead of the mean

    @property
    def config(self) -> "PreTrainedConfig":
        return cast("PreTrainedConfig", self.model.config)

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    def explain(
        self, text: str, output: str | None = None, *, top: int | None = None, measure: bool = True
    ) -> Explanation:
        """The attention of the model: reading ``text``, and writing its own output or the one given.

        ``top`` keeps that many weights of each row; without it, all are kept unless the text is long. ``measure`` adds
        evidence about the map, which takes many more passes than the map itself.
        """
        from sightline.interop.explaining import explain

        return explain(self, text, output, top, measure)


def load(folder: str | Path) -> HuggingFaceModel:
    """A model from a folder with config.json, model.safetensors and tokenizer.json."""
    path = Path(str(folder).removeprefix(PREFIX))
    check_folder(path, f"{PREFIX}DIR names a Hugging Face model on this disk")
    config = read_json(path / CONFIG, LARGEST_CONFIG)
    for name, value in config.items():
        if "layers" in name and isinstance(value, int) and value > MOST_LAYERS:
            raise UserError(f"{path / CONFIG}: {name} is {value:,}; at most {MOST_LAYERS:,} are read")
    try:
        import transformers
    except ImportError:
        raise UserError("models of Hugging Face need transformers: pip install 'sightline[hf]'") from None
    pieces = Pieces(path / TOKENISER)
    with _quiet(), _errors(path):
        known = transformers.AutoConfig.from_pretrained(path, local_files_only=True, trust_remote_code=False)
        kind = _kind(config, known)
        model, kind = _load(path, known, kind)
        reads_words = isinstance(model.get_input_embeddings(), nn.Embedding)  # some models raise an error instead
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES as IMAGES

    if not reads_words or known.model_type in IMAGES:
        raise UserError(f"{path} is a {known.model_type} model, which does not read text; choose a model that does")
    return HuggingFaceModel(model, pieces, kind, path.name or path.resolve().name, _first_token(path))


def check_folder(path: Path, expected: str, split: bool = True) -> None:
    """Refuse a folder that lacks a file or has its weights only as a pickle; unless ``split``, weights in parts too."""
    if not path.is_dir():
        raise UserError(f"there is no folder {path}; {expected}")
    if not (path / CONFIG).is_file():
        raise UserError(f"{path} has no {CONFIG}; it is not the folder of a Hugging Face model")
    parts = (path / PARTS).is_file()
    if not (path / WEIGHTS).is_file() and not (parts and split):
        if parts:
            raise UserError(
                f"{path} has its weights in several files; save them as one, {WEIGHTS} "
                "(model.save_pretrained(folder, max_shard_size='100GB'))"
            )
        pickles = sorted(file.name for pattern in PICKLES for file in path.glob(pattern))
        if pickles:
            raise UserError(
                f"{path} has its weights only in {pickles[0]}, a pickle, which can run any code when it is loaded; if "
                f"you trust it, convert it: AutoModel.from_pretrained({str(path)!r}).save_pretrained(folder) writes "
                f"{WEIGHTS}"
            )
        raise UserError(f"{path} has no {WEIGHTS}; it is not the folder of a Hugging Face model")
    if not (path / TOKENISER).is_file():
        raise UserError(
            f"{path} has no {TOKENISER}, so texts cannot be tokenised; save the fast tokeniser there "
            f"(AutoTokenizer.from_pretrained(...).save_pretrained({str(path)!r}))"
        )
    for file in sorted(path.iterdir()):  # the library reads more of them than are named here
        if file.suffix == ".safetensors" and file.exists() and not file.is_dir():
            check_tensors(file)
        elif file.suffix == ".json" and file.exists() and not file.is_dir():
            open_regular(file, LARGEST_FILE if file.name == TOKENISER else LARGEST_CONFIG).close()


def _kind(config: dict[str, Any], known: "PreTrainedConfig") -> Kind:
    """The task that the weights in the folder were saved for."""
    from transformers.models.auto import modeling_auto as names

    saved = " ".join(str(name) for name in config.get("architectures") or ())
    if known.is_encoder_decoder:
        return "written"
    if "ForSequenceClassification" in saved:
        return "label"
    kind = known.model_type
    masked, causal = names.MODEL_FOR_MASKED_LM_MAPPING_NAMES, names.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if kind in causal and (kind not in masked or "CausalLM" in saved or "LMHead" in saved):
        return "next"
    if kind in masked and ("ForMaskedLM" in saved or "ForPreTraining" in saved):
        return "masked"
    return "vector"


def _load(path: Path, known: "PreTrainedConfig", kind: Kind) -> tuple[Any, Kind]:
    """The model with its head, or without it if the head has no weights. Never with random weights."""
    import transformers

    kinds: tuple[Kind, ...] = (kind,) if kind in ("written", "vector") else (kind, "vector")
    for one in kinds:
        options = {"config": known, "local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
        options |= {"dtype": torch.float32, "output_loading_info": True}
        owner = getattr(transformers, CLASSES[one])
        try:
            model, about = owner.from_pretrained(path, **options, attn_implementation="sdpa")
        except ValueError as error:
            if "scaled_dot_product_attention" not in str(error):
                raise
            model, about = owner.from_pretrained(path, **options, attn_implementation="eager")
        missing = sorted(name for name in about["missing_keys"] if "pooler" not in name)
        wrong = sorted(str(name) for name in about.get("mismatched_keys", ()))
        if not missing and not wrong:
            return model, one
    lacking = missing + wrong
    others = f" and {len(lacking) - 1:,} other parts" if len(lacking) > 1 else ""
    raise UserError(f"{path} has no weights that fit {lacking[0]}{others}; the folder is incomplete")


def _first_token(path: Path) -> bool:
    """Whether sentence-transformers pools the first token; without its file, the mean is used."""
    pooling = path / "1_Pooling" / CONFIG
    return pooling.is_file() and read_json(pooling, LARGEST_CONFIG).get("pooling_mode_cls_token") is True


@contextlib.contextmanager
def _errors(path: Path) -> Iterator[None]:
    """An error of a library about a folder, in one sentence."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # any library may raise, and safetensors has an error of its own
        message = " ".join(str(error).split())[: 3 * CUT] or type(error).__name__
        raise UserError(f"{path} cannot be loaded as a Hugging Face model: {message}") from None


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence the library's progress bars and warnings, and restore them afterwards."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
