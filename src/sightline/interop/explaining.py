"""Explain what a Hugging Face model made of a text: read it once under `capture`, then say what to make of the map."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import PoolSubject, believe, rollout_records
from sightline.explain.evidence.measures import chosen_rows
from sightline.explain.explanation import Belief, Choice, Explanation, Stack, Step
from sightline.interop.subjects import MaskedSubject, NextSubject, VectorSubject, WrittenSubject, believe_vector
from sightline.records import Record, Tokens

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel

LIKELIEST = 5  # choices shown for each step
WHOLE = 1 << 24  # weights, over all heads; above that only the largest of each row are kept
LARGEST = 64
MEASURED = 400  # tokens; hiding each of them in turn grows with the cube
MASKED = 6  # words that are masked in turn: each needs passes of its own
LONGEST = 256  # tokens written
_CROSS = re.compile(r"cross|enc_?dec|encoder_attn|encoder_attention|encoder_decoder", re.IGNORECASE)
Measure = Callable[[], Belief]
Found = tuple[Explanation, str, Measure | None]  # with what is measured, in words, and how


def explain(owner: "HuggingFaceModel", text: str, output: str | None, top: int | None, measure: bool) -> Explanation:
    """Everything there is to show about one text."""
    if top is not None and top < 1:
        raise UserError(f"top is {top}; it must be at least 1")
    if output is not None and owner.kind not in ("next", "written"):
        raise UserError(f"{owner.name} writes nothing, so there is no output to give; leave it out")
    tokens = owner.pieces.encode(text)
    if not tokens:
        raise UserError("the text has no tokens: there is nothing to look at")
    _check_known(owner, tokens, "the text")
    with _one_sentence(owner, len(tokens)):
        makers = {"written": _written, "next": _next}
        found, measured, tell = makers.get(owner.kind, _encoded)(owner, text, tokens, output, top)
    if not measure or tell is None:
        return found
    longest = max(len(found.records[0].rows), len(found.records[0].columns))
    if longest > MEASURED:
        note = f"{longest:,} tokens are too many to measure what to make of the map, which is done up to {MEASURED:,}"
        return replace(found, notes=(*found.notes, note))
    with _one_sentence(owner, len(tokens)):
        return replace(found, belief=tell(), notes=(*found.notes, measured))


@contextmanager
def _one_sentence(owner: "HuggingFaceModel", tokens: int) -> Iterator[None]:
    """A folder may hold any model with any settings: what does not run is an error of one sentence."""
    try:
        yield
    except UserError:
        raise
    except IndexError:  # of an embedding of positions
        raise _too_long(owner, tokens) from None
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError, ImportError) as error:
        said = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"{owner.name} could not be run on this text: {said}") from None


def _check_known(owner: "HuggingFaceModel", tokens: Sequence[int], what: str) -> None:
    """The tokeniser and the model of a folder need not fit."""
    known = getattr(owner.model.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]
    if isinstance(known, int) and max(tokens, default=0) >= known:
        raise UserError(f"{what} has token {max(tokens):,}, and the model of {owner.name} knows {known:,} only")


@torch.no_grad()
def _encoded(owner: "HuggingFaceModel", text: str, tokens: list[int], output: str | None, top: int | None) -> Found:
    """A model that reads: one stack of self-attention, and what it makes of the whole."""
    _check_length(owner, len(tokens))
    top = top or _top(owner, len(tokens))
    given = _tensor(owner, tokens)
    with capture(owner.model, top=top) as trace:
        result = owner.model(input_ids=given, attention_mask=torch.ones_like(given), return_dict=True)
    axis = _axis(owner, tokens)
    records = [record for name in _ran(owner, trace) for record in trace[name].records(rows=axis, columns=axis)]
    rolled = rollout_records(records) if top is None and not _repeated(trace) else []
    stacks = [Stack("Inside the text", "self", tuple(trace.names))]
    if rolled:
        stacks.append(Stack("Inside the text, through all layers", "self", tuple(one.name for one in rolled)))
    last = trace.names[-1]
    about = f"{last}, mean of {len(trace[last].heads)} heads"
    looks = np.mean([record.matrix() for record in records if record.name == last], axis=0).astype(np.float64)
    special = sorted(_special(owner))
    said, note = "", ""
    tell: Measure | None = None
    if owner.kind == "label":
        scores = torch.softmax(result.logits[0].float(), dim=-1)
        label = int(scores.argmax())
        said = str(owner.config.id2label.get(label, label))
        note = f"what was measured is how likely the model finds the label {said!r}, against the map's first row"
        tell = _label(owner, tokens, label, last, looks[:1], about, special)
    elif owner.kind == "masked" and owner.pieces.mask is not None:
        places, words, said = _masks(owner, tokens, result.logits[0])
        if places:
            note = (
                f"what was measured is how likely the model finds the right word under a mask, for {len(places)} words "
                f"masked in turn, against where the masks look"
            )
            tell = _masked(owner, tokens, places, words, last, about, special)
    else:
        pooled = "that of its first token" if owner.first else "the mean over its tokens"
        note = (
            f"what was measured is how far the vector of the text ({pooled}) turns when something is hidden or cut, as "
            f"1 − cosine; costs of heads are in that too"
        )
        rows = looks[:1] if owner.first else looks.mean(axis=0, keepdims=True)
        tell = _vector(owner, tokens, last, rows, f"{about}, {'first row' if owner.first else 'all rows together'}")
    found = _explanation(owner, text, said, [*records, *rolled], stacks, (), top)
    return replace(found, notes=(*_repeated(trace), *found.notes)), note, tell


@torch.no_grad()
def _next(owner: "HuggingFaceModel", text: str, tokens: list[int], output: str | None, top: int | None) -> Found:
    """A model that goes on with a text: a row for each token that follows another, the last one its own or given."""
    given = owner.pieces.encode(output, special=False) if output is not None else []
    if output is not None and not given:
        raise UserError("the output has no tokens: there is nothing that was written")
    read = [*tokens, *given[:-1]]
    _check_length(owner, len(read))
    top = top or _top(owner, len(read))
    ids = _tensor(owner, read)
    with capture(owner.model, top=top) as trace:
        result = owner.model(input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False, return_dict=True)
    logs = torch.log_softmax(result.logits[0].float(), dim=-1)
    last_token = given[-1] if given else int(logs[-1].argmax())
    written = [*read[1:], last_token]
    rows, columns = _axis(owner, written), _axis(owner, read)
    records = [record for name in _ran(owner, trace) for record in trace[name].records(rows=rows, columns=columns)]
    said = output if output is not None else owner.pieces.decode([last_token]) or owner.pieces.label(last_token)
    last = trace.names[-1]
    about = f"{last}, mean of {len(trace[last].heads)} heads, last row"
    looks = np.mean([record.matrix() for record in records if record.name == last], axis=0)[-1:].astype(np.float64)
    note = "what was measured is how likely the model finds the last row's token, against that row of the map"
    stack = Stack("Inside the text, up to each token", "causal", tuple(trace.names))
    steps = tuple(_steps(owner, logs, written))

    def tell() -> Belief:
        subject = NextSubject(owner.model, read, last_token, last, sorted(_special(owner)))
        return believe(subject, looks, about=about, names=(last,), special=columns.special)

    found = _explanation(owner, text, said, records, [stack], steps, top)
    last_is = "was given" if given else "is the likeliest"
    rows_are = f"a row is a token that follows what was read; the last one {last_is}"
    return replace(found, notes=(rows_are, *_repeated(trace), *found.notes)), note, tell


@torch.no_grad()
def _written(owner: "HuggingFaceModel", text: str, tokens: list[int], output: str | None, top: int | None) -> Found:
    """A model from text to text: decode greedily, then read the output once more."""
    _check_length(owner, len(tokens))
    model, source = owner.model, _tensor(owner, tokens)
    mask = torch.ones_like(source)
    start = _start(owner)
    written = _output(owner, source, mask, output)
    _check_length(owner, len(written))
    top = top or _top(owner, max(len(tokens), len(written)))
    with capture(model, top=top) as trace:
        result = model(
            input_ids=source,
            attention_mask=mask,
            decoder_input_ids=_tensor(owner, [start, *written[:-1]]),
            use_cache=False,
            return_dict=True,
        )
    rows, columns = _axis(owner, written), _axis(owner, tokens)
    encoder = {id(module) for module in model.get_encoder().modules()}  # type: ignore[operator]
    names: dict[Any, list[str]] = {"cross": [], "self": [], "causal": []}
    for name in _ran(owner, trace):
        inside = id(trace.mechanisms[name]) in encoder
        names["self" if inside else "cross" if _CROSS.search(name) else "causal"].append(name)
    axes = {"cross": (rows, columns), "self": (columns, columns), "causal": (rows, rows)}
    records = [
        record
        for kind, some in names.items()
        for name in some
        for record in trace[name].records(rows=axes[kind][0], columns=axes[kind][1])
    ]
    titles = {"cross": "From the output to the source", "self": "Inside the source", "causal": "Inside the output"}
    stacks = [Stack(titles[kind], kind, tuple(some)) for kind, some in names.items() if some]
    one_pass = top is None and not _repeated(trace)
    rolled = rollout_records([one for one in records if one.name in names["self"]]) if one_pass else []
    if rolled:
        stacks.append(Stack("Inside the source, through all layers", "self", tuple(one.name for one in rolled)))
    logs = torch.log_softmax(result.logits[0].float(), dim=-1)
    said = output if output is not None else owner.pieces.decode(written)
    note = "what was measured is how likely the model finds each token that was written"
    steps = tuple(_steps(owner, logs, written))
    found = _explanation(owner, text, said, [*records, *rolled], stacks, steps, top)
    found = replace(found, notes=(*_repeated(trace), *found.notes))

    def tell() -> Belief:
        subject = WrittenSubject(model, tokens, start, written, names["cross"], sorted(_special(owner)))
        return believe(subject, found.of(names["cross"][-1]))

    return found, note, tell


def _label(
    owner: "HuggingFaceModel",
    tokens: list[int],
    label: int,
    name: str,
    looks: np.ndarray,
    about: str,
    special: list[int],
) -> Measure:
    def tell() -> Belief:
        model = owner.model
        subject = PoolSubject(
            model,
            tokens,
            label,
            embedding=model.get_input_embeddings(),  # type: ignore[operator]
            attention=name,
            classify=lambda ids: model(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).logits,
            special=special,
        )
        return believe(subject, looks, about=f"{about}, first row", names=(name,))

    return tell


def _masked(
    owner: "HuggingFaceModel",
    tokens: list[int],
    places: list[int],
    words: list[int],
    name: str,
    about: str,
    special: list[int],
) -> Measure:
    def tell() -> Belief:
        assert owner.pieces.mask is not None
        subject = MaskedSubject(owner.model, tokens, places, words, owner.pieces.mask, (name,), special)
        variants = subject.masked(subject.tokens.unsqueeze(0))
        with torch.no_grad(), capture(owner.model, layers=[name]) as trace:
            owner.model(input_ids=variants, attention_mask=torch.ones_like(variants))
        each = torch.arange(len(places))
        looks = trace[name].weights.mean(dim=1)[each, torch.tensor(places)].double().cpu().numpy()
        return believe(subject, looks, about=f"{about}, the rows of masked words", names=(name,))

    return tell


def _vector(owner: "HuggingFaceModel", tokens: list[int], name: str, looks: np.ndarray, about: str) -> Measure:
    def tell() -> Belief:
        special = _special(owner)
        subject = VectorSubject(owner.model, tokens, name, sorted(special), owner.first)
        return believe_vector(subject, looks, [at for at, token in enumerate(tokens) if token in special], about)

    return tell


def _masks(owner: "HuggingFaceModel", tokens: list[int], logits: Tensor) -> tuple[list[int], list[int], str]:
    """Which places are masked and what belongs there: those of the text, filled by the model; else words in turn."""
    own = [place for place, token in enumerate(tokens) if token == owner.pieces.mask]
    special = _special(owner)
    if own:
        words = logits[own].index_fill(-1, _tensor(owner, sorted(special))[0], -torch.inf).argmax(dim=-1).tolist()
        filled = dict(zip(own, words, strict=True))
        return own, words, owner.pieces.decode([filled.get(place, token) for place, token in enumerate(tokens)])
    plain = [place for place, token in enumerate(tokens) if token not in special]
    places = [plain[i] for i in chosen_rows(len(plain), MASKED)]
    return places, [tokens[place] for place in places], ""


def _output(owner: "HuggingFaceModel", source: Tensor, mask: Tensor, output: str | None) -> list[int]:
    """The tokens that were written, with the end: greedily by the model, or those of the output given."""
    end = owner.config.eos_token_id
    ends = set(end if isinstance(end, list) else [] if end is None else [end])
    if output is not None:
        tokens = owner.pieces.encode(output)
        return tokens if (tokens and tokens[-1] in ends) or not ends else [*tokens, min(ends)]
    longest = min(LONGEST, 3 * source.shape[1] + 20)
    made = owner.model.generate(  # type: ignore[operator]
        input_ids=source,
        attention_mask=mask,
        do_sample=False,
        num_beams=1,
        max_new_tokens=longest,
        return_dict_in_generate=False,
    )
    written = made[0].tolist()[1:]
    if not written:
        raise UserError(f"{owner.name} wrote nothing, so there is nothing to look at; give an output instead")
    return written


def _start(owner: "HuggingFaceModel") -> int:
    # `generate` listens to the first of them.
    for said in (getattr(owner.model, "generation_config", None), owner.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            found = getattr(said, name, None)
            if isinstance(found, int):
                _check_known(owner, [found], "its config.json")
                return found
    if isinstance(owner.config.pad_token_id, int):
        return owner.config.pad_token_id
    raise UserError(f"the config.json of {owner.name} does not say which token its decoder starts with")


def _explanation(
    owner: "HuggingFaceModel",
    text: str,
    output: str,
    records: Sequence[Record],
    stacks: Sequence[Stack],
    steps: tuple[Step, ...],
    top: int | None,
) -> Explanation:
    kept = f"of each row only the {top} largest weights were kept; numbers about the map are about these"
    task = {"written": "translate", "next": "continue", "label": "classify"}.get(owner.kind, "read")
    return Explanation(
        owner.name, task, text, output, tuple(records), tuple(stacks), steps, notes=(kept,) if top else ()
    )


def _steps(owner: "HuggingFaceModel", logs: Tensor, written: Sequence[int]) -> Iterator[Step]:
    values, choices = logs.exp().topk(min(LIKELIEST, logs.shape[-1]), dim=-1)
    for row, token in enumerate(written):
        names = [owner.pieces.label(one) for one in choices[row].tolist()]
        yield Step(
            owner.pieces.label(token), float(logs[row, token].exp()), tuple(map(Choice, names, values[row].tolist()))
        )


def _repeated(trace: Trace) -> tuple[str, ...]:
    """What has to be said of a model that runs one module for several layers."""
    if len(trace.maps) == len(trace.names):
        return ()
    return (
        "some attention of this model runs more than once, as one module for several layers: the last pass is shown",
    )


def _ran(owner: "HuggingFaceModel", trace: Trace) -> list[str]:
    if not trace.names:
        raise UserError(f"{owner.name} ran no attention that can be seen; sightline.explain.intercept says what can be")
    return trace.names


def _tensor(owner: "HuggingFaceModel", tokens: Sequence[int]) -> Tensor:
    return torch.tensor([list(tokens)], device=owner.device)


def _special(owner: "HuggingFaceModel") -> set[int]:
    names = ("bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id", "decoder_start_token_id")
    said = [getattr(owner.config, name, None) for name in names]
    return owner.pieces.special | {one for one in said if isinstance(one, int)}


def _axis(owner: "HuggingFaceModel", tokens: Sequence[int]) -> Tokens:
    return owner.pieces.axis(tokens, frozenset(_special(owner)))


def _check_length(owner: "HuggingFaceModel", tokens: int) -> None:
    most = getattr(owner.config, "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < tokens:
        raise _too_long(owner, tokens)


def _too_long(owner: "HuggingFaceModel", tokens: int) -> UserError:
    most = getattr(owner.config, "max_position_embeddings", None)
    about = f" (max_position_embeddings in its config.json is {most:,})" if isinstance(most, int) else ""
    return UserError(f"a text of {tokens:,} tokens is longer than {owner.name} can read{about}; choose a shorter one")


def _top(owner: "HuggingFaceModel", longest: int) -> int | None:
    """How many weights of each row to keep; None for all of them."""
    layers = getattr(owner.config, "num_hidden_layers", 12) * (2 if owner.kind == "written" else 1)
    heads = layers * getattr(owner.config, "num_attention_heads", 12)
    return None if heads * longest**2 <= WHOLE else LARGEST
