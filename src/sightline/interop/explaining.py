"""Explain what a Hugging Face model makes of a text: run it under `capture`, then measure evidence about the map."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from sightline.errors import UserError
from sightline.explain.capture import Trace, capture
from sightline.explain.evidence import believe, rollout_records
from sightline.explain.evidence.measures import chosen_rows
from sightline.explain.evidence.subject import PoolSubject
from sightline.explain.explanation import Belief, Choice, Explanation, OutputStep, Stack
from sightline.explain.intercept import has_sink
from sightline.interop.subjects import MaskedSubject, NextSubject, VectorSubject, WrittenSubject
from sightline.records import Record, Tokens

if TYPE_CHECKING:
    from sightline.interop.huggingface import HuggingFaceModel

LIKELIEST = 5  # choices shown for each step
WHOLE = 1 << 24  # weights, over all heads; above that only the largest of each row are kept
LARGEST = 64
MEASURED = 400  # tokens; the time to hide each of them in turn grows with the cube
MASKED = 6  # words that are masked in turn: each needs passes of its own
LONGEST = 256  # tokens written
SINK = "(sink)"
SPECIAL_IDS = (
    "bos_token_id", "eos_token_id", "pad_token_id", "cls_token_id", "sep_token_id", "decoder_start_token_id",
)  # fmt: skip
_CROSS = re.compile(r"cross|enc_?dec|encoder_attn|encoder_attention|encoder_decoder", re.IGNORECASE)
Measure = Callable[[], Belief]
Explained = tuple[Explanation, str, Measure | None]  # with what is measured, in words, and the function that does it
Predicted = tuple[str, str, Measure | None]  # the same with the prediction alone


def explain(owner: "HuggingFaceModel", text: str, output: str | None, top: int | None, measure: bool) -> Explanation:
    """Everything there is to show about one text."""
    if top is not None and top < 1:
        raise UserError(f"top is {top}; it must be at least 1")
    if output is not None and owner.kind not in ("next", "written"):
        raise UserError(f"{owner.name} writes no output, so none can be given; leave it out")
    tokens = owner.pieces.encode(text)
    if not tokens:
        raise UserError("the text has no tokens: there is nothing to attend to")
    _check_known(owner, tokens, "the text")
    reading = _Reading(owner, text, tokens, output, top)
    with _one_sentence(owner, len(tokens)), torch.no_grad():
        explainers = {"written": reading.written, "next": reading.following}
        explanation, measured, evidence = explainers.get(owner.kind, reading.encoded)()
    if not measure or evidence is None:
        return explanation
    longest = max(len(explanation.records[0].rows), len(explanation.records[0].columns))
    if longest > MEASURED:
        note = f"{longest:,} tokens are too many to measure evidence about the map, which is done up to {MEASURED:,}"
        return replace(explanation, notes=(*explanation.notes, note))
    with _one_sentence(owner, len(tokens)):
        return replace(explanation, belief=evidence(), notes=(*explanation.notes, measured))


@contextmanager
def _one_sentence(owner: "HuggingFaceModel", tokens: int) -> Iterator[None]:
    """A folder may hold any model with any settings: a failure to run is an error of one sentence."""
    try:
        yield
    except UserError:
        raise
    except IndexError:  # of an embedding of positions
        raise _too_long(owner, tokens) from None
    except (ValueError, RuntimeError, TypeError, KeyError, AttributeError, ImportError) as error:
        message = " ".join(str(error).split())[:300] or type(error).__name__
        raise UserError(f"{owner.name} could not be run on this text: {message}") from None


@dataclass
class _Reading:
    """One text that a model reads under `capture`. ``top`` limits the weights that are kept of each row."""

    owner: "HuggingFaceModel"
    text: str
    tokens: list[int]
    output: str | None
    top: int | None

    def __post_init__(self) -> None:
        ids = [getattr(self.owner.config, name, None) for name in SPECIAL_IDS]
        self.special = sorted(self.owner.pieces.special | {one for one in ids if isinstance(one, int)})

    def encoded(self) -> Explained:
        """An encoder: one stack of self-attention, and what the model predicts of the whole."""
        _check_length(self.owner, len(self.tokens))
        ids, axis = self._ids(self.tokens), self._axis(self.tokens)
        outputs, trace = self._run(len(self.tokens), input_ids=ids, attention_mask=torch.ones_like(ids))
        records = _records(trace, trace.names, axis, axis)
        stacks = [Stack("Inside the text", "self", tuple(trace.names))]
        rolled = self._rolled(trace, records, "Inside the text", stacks)
        last = trace.names[-1]
        about = f"{last}, mean of {len(trace[last].heads)} heads"
        heads_mean = np.mean([record.matrix() for record in records if record.name == last], axis=0)
        kind = "vector" if self.owner.kind == "masked" and self.owner.pieces.mask is None else self.owner.kind
        predict = {"label": self._label, "masked": self._masked}.get(kind, self._vector)
        prediction, note, evidence = predict(outputs, last, heads_mean.astype(np.float64), about)
        return self._explanation(prediction, [*records, *rolled], stacks, trace), note, evidence

    def _label(self, outputs: Any, last: str, weights: np.ndarray, about: str) -> Predicted:
        model = self.owner.model
        label = int(torch.softmax(outputs.logits[0].float(), dim=-1).argmax())
        name = str(cast("dict[int, str]", self.owner.config.id2label).get(label, label))

        def evidence() -> Belief:
            subject = PoolSubject(
                model,
                self.tokens,
                label,
                embedding=model.get_input_embeddings(),  # type: ignore[operator]
                attention=last,
                classify=lambda ids: model(input_ids=ids, attention_mask=torch.ones_like(ids), return_dict=True).logits,
                special=self.special,
            )
            return believe(subject, weights[:1], about=f"{about}, first row", names=(last,))

        note = f"what was measured is the probability of the label {name!r}, against the map's first row"
        return name, note, evidence

    def _masked(self, outputs: Any, last: str, weights: np.ndarray, about: str) -> Predicted:
        """Masks of the text are filled by the model; without any, some words are masked in turn."""
        owner, tokens, mask = self.owner, self.tokens, self.owner.pieces.mask
        assert mask is not None
        prediction, places = "", [place for place, token in enumerate(tokens) if token == mask]
        if places:
            logits = outputs.logits[0][places].index_fill(-1, self._ids(self.special)[0], -torch.inf)
            words = logits.argmax(dim=-1).tolist()
            filled = dict(zip(places, words, strict=True))
            prediction = owner.pieces.decode([filled.get(place, token) for place, token in enumerate(tokens)])
        else:
            plain = [place for place, token in enumerate(tokens) if token not in self.special]
            places = [plain[i] for i in chosen_rows(len(plain), MASKED)]
            words = [tokens[place] for place in places]
        if not places:
            return prediction, "", None

        def evidence() -> Belief:
            subject = MaskedSubject(owner.model, tokens, places, words, mask, (last,), self.special)
            variants = subject.masked(subject.tokens.unsqueeze(0))
            with torch.no_grad(), capture(owner.model, layers=[last]) as trace:
                owner.model(input_ids=variants, attention_mask=torch.ones_like(variants))
            rows = trace[last].weights.mean(dim=1)[torch.arange(len(places)), torch.tensor(places)]
            about_masks = f"{about}, the rows of masked words"
            return believe(subject, rows.double().cpu().numpy(), about=about_masks, names=(last,))

        note = (
            f"what was measured is the probability of the right word under a mask, for {len(places)} words masked in "
            f"turn, against the attention of the masks"
        )
        return prediction, note, evidence

    def _vector(self, outputs: Any, last: str, weights: np.ndarray, about: str) -> Predicted:
        first = self.owner.first
        rows = weights[:1] if first else weights.mean(axis=0, keepdims=True)

        def evidence() -> Belief:
            subject = VectorSubject(self.owner.model, self.tokens, last, self.special, first)
            about_rows = f"{about}, {'first row' if first else 'mean of all rows'}"
            return believe(subject, rows, about=about_rows, names=(last,))

        pooled = "that of its first token" if first else "the mean over its tokens"
        note = (
            f"what was measured is how far the vector of the text ({pooled}) turns when something is hidden or "
            f"ablated, as 1 − cosine; the costs of heads have the same unit"
        )
        return "", note, evidence

    def following(self) -> Explained:
        """A causal language model: a row for each token that follows another; the last is predicted or given."""
        owner = self.owner
        given = owner.pieces.encode(self.output, special=False) if self.output is not None else []
        if self.output is not None and not given:
            raise UserError("the output has no tokens: nothing was written")
        read = [*self.tokens, *given[:-1]]
        _check_length(owner, len(read))
        ids = self._ids(read)
        outputs, trace = self._run(len(read), input_ids=ids, attention_mask=torch.ones_like(ids), use_cache=False)
        log_probs = torch.log_softmax(outputs.logits[0].float(), dim=-1)
        last_token = given[-1] if given else int(log_probs[-1].argmax())
        written = [*read[1:], last_token]
        records = _records(trace, trace.names, self._axis(written), self._axis(read))
        output = self.output
        if output is None:
            output = owner.pieces.decode([last_token]) or owner.pieces.label(last_token)
        last = trace.names[-1]
        heads_mean = np.mean([record.matrix()[:, : len(read)] for record in records if record.name == last], axis=0)

        def evidence() -> Belief:
            subject = NextSubject(owner.model, read, last_token, last, self.special)
            about = f"{last}, mean of {len(trace[last].heads)} heads, last row"
            return believe(subject, heads_mean[-1:].astype(np.float64), about=about, names=(last,))

        stack = Stack("Inside the text, up to each token", "causal", tuple(trace.names))
        last_is = "was given" if given else "is the likeliest"
        rows_are = f"a row is a token that follows the tokens before it; the last one {last_is}"
        steps = self._steps(log_probs, written)
        explanation = self._explanation(output, records, [stack], trace, steps, notes=(rows_are,))
        note = "what was measured is the probability of the last row's token, against that row of the map"
        return explanation, note, evidence

    def written(self) -> Explained:
        """A model from text to text: decode greedily, then run it once more on the output."""
        owner, model = self.owner, self.owner.model
        _check_length(owner, len(self.tokens))
        source, start = self._ids(self.tokens), _start(owner)
        mask = torch.ones_like(source)
        written = self._decoded(source, mask)
        _check_length(owner, len(written))
        outputs, trace = self._run(
            max(len(self.tokens), len(written)),
            input_ids=source,
            attention_mask=mask,
            decoder_input_ids=self._ids([start, *written[:-1]]),
            use_cache=False,
        )
        rows, columns = self._axis(written), self._axis(self.tokens)
        encoder = {id(module) for module in model.get_encoder().modules()}  # type: ignore[operator]
        names: dict[Any, list[str]] = {"cross": [], "self": [], "causal": []}
        for name in trace.names:
            inside = id(trace.mechanisms[name]) in encoder
            names["self" if inside else "cross" if _CROSS.search(name) else "causal"].append(name)
        axes = {"cross": (rows, columns), "self": (columns, columns), "causal": (rows, rows)}
        records = [record for kind, some in names.items() for record in _records(trace, some, *axes[kind])]
        titles = {"cross": "From the output to the source", "self": "Inside the source", "causal": "Inside the output"}
        stacks = [Stack(titles[kind], kind, tuple(some)) for kind, some in names.items() if some]
        rolled = self._rolled(trace, [one for one in records if one.name in names["self"]], "Inside the source", stacks)
        output = self.output if self.output is not None else owner.pieces.decode(written)
        steps = self._steps(torch.log_softmax(outputs.logits[0].float(), dim=-1), written)
        explanation = self._explanation(output, [*records, *rolled], stacks, trace, steps)

        def evidence() -> Belief:
            subject = WrittenSubject(model, self.tokens, start, written, names["cross"], self.special)
            return believe(subject, explanation.of(names["cross"][-1]))

        return explanation, "what was measured is the probability of each token of the output", evidence

    def _decoded(self, source: Tensor, mask: Tensor) -> list[int]:
        """The tokens of the output, with the end: decoded greedily, or those of the output given."""
        owner, end = self.owner, self.owner.config.eos_token_id
        ends = set(end if isinstance(end, list) else [] if end is None else [end])
        if self.output is not None:
            tokens = owner.pieces.encode(self.output)
            return tokens if (tokens and tokens[-1] in ends) or not ends else [*tokens, min(ends)]
        decoded = owner.model.generate(  # type: ignore[operator]
            input_ids=source,
            attention_mask=mask,
            do_sample=False,
            num_beams=1,
            max_new_tokens=min(LONGEST, 3 * source.shape[1] + 20),
            return_dict_in_generate=False,
        )
        written = decoded[0].tolist()[1:]
        if not written:
            raise UserError(f"{owner.name} wrote nothing, so there is nothing to explain; give an output instead")
        return written

    def _run(self, longest: int, **inputs: Any) -> tuple[Any, Trace]:
        """The model's outputs, and its attention."""
        config = self.owner.config
        layers = getattr(config, "num_hidden_layers", 12) * (2 if self.owner.kind == "written" else 1)
        heads = layers * getattr(config, "num_attention_heads", 12)
        self.top = self.top or (None if heads * longest**2 <= WHOLE else LARGEST)
        with capture(self.owner.model, top=self.top) as trace:
            outputs = self.owner.model(**inputs, return_dict=True)
        if not trace.names:
            raise UserError(
                f"{self.owner.name} ran no attention that can be seen; sightline.explain.intercept lists what can be"
            )
        return outputs, trace

    def _rolled(self, trace: Trace, records: Sequence[Record], title: str, stacks: list[Stack]) -> list[Record]:
        """The rollout of self-attention, where whole maps of all layers are there; its stack is added."""
        square = all(record.rows == record.columns for record in records)  # not so with attention sinks
        rolled = rollout_records(records) if self.top is None and square and not _repeated(trace) else []
        if rolled:
            stacks.append(Stack(f"{title}, through all layers", "self", tuple(one.name for one in rolled)))
        return rolled

    def _explanation(
        self, output: str, records: Sequence[Record], stacks: Sequence[Stack], trace: Trace,
        steps: tuple[OutputStep, ...] = (), notes: tuple[str, ...] = (),
    ) -> Explanation:  # fmt: skip
        owner = self.owner
        if _repeated(trace):
            notes += ("some attention of this model runs more than once, as one module for several layers: the last "
                      "pass is shown",)  # fmt: skip
        if self.top:
            notes += (f"only the {self.top} largest weights of each row were kept; the evidence is about these",)
        task = {"written": "translate", "next": "continue", "label": "classify"}.get(owner.kind, "read")
        return Explanation(owner.name, task, self.text, output, tuple(records), tuple(stacks), steps, notes=notes)

    def _steps(self, log_probs: Tensor, written: Sequence[int]) -> tuple[OutputStep, ...]:
        values, choices = log_probs.exp().topk(min(LIKELIEST, log_probs.shape[-1]), dim=-1)
        label = self.owner.pieces.label
        return tuple(
            OutputStep(
                label(token),
                float(log_probs[row, token].exp()),
                tuple(map(Choice, map(label, choices[row].tolist()), values[row].tolist())),
            )
            for row, token in enumerate(written)
        )

    def _ids(self, tokens: Sequence[int]) -> Tensor:
        return torch.tensor([list(tokens)], device=self.owner.device)

    def _axis(self, tokens: Sequence[int]) -> Tokens:
        return self.owner.pieces.axis(tokens, frozenset(self.special))


def _records(trace: Trace, names: Sequence[str], rows: Tokens, columns: Tokens) -> list[Record]:
    records = []
    for name in names:
        sink = has_sink(trace.mechanisms[name]) and trace[name].columns == len(columns) + 1
        records += trace[name].records(rows=rows, columns=_with_sink(columns) if sink else columns)
    return records


def _with_sink(columns: Tokens) -> Tokens:
    """A column more: the weight that a model with attention sinks gives to no token."""
    words = None if columns.words is None else (*columns.words, max(columns.words, default=-1) + 1)
    return Tokens((*columns.texts, SINK), words, (*columns.special, len(columns)))


def _repeated(trace: Trace) -> bool:
    """Whether the model runs one module for several layers."""
    return len(trace.maps) > len(trace.names)


def _start(owner: "HuggingFaceModel") -> int:
    # `generate` uses the first of them.
    for config in (getattr(owner.model, "generation_config", None), owner.config):
        for name in ("decoder_start_token_id", "bos_token_id"):
            start = getattr(config, name, None)
            if isinstance(start, int):
                _check_known(owner, [start], "its config.json")
                return start
    if isinstance(owner.config.pad_token_id, int):
        return owner.config.pad_token_id
    raise UserError(f"the config.json of {owner.name} does not say which token its decoder starts with")


def _check_known(owner: "HuggingFaceModel", tokens: Sequence[int], what: str) -> None:
    """The tokeniser and the model of a folder need not fit."""
    known = getattr(owner.model.get_input_embeddings(), "num_embeddings", None)  # type: ignore[operator]
    if isinstance(known, int) and max(tokens, default=0) >= known:
        raise UserError(f"{what} has token {max(tokens):,}, but the vocabulary of {owner.name} has {known:,} only")


def _check_length(owner: "HuggingFaceModel", tokens: int) -> None:
    most = getattr(owner.config, "max_position_embeddings", None)
    if isinstance(most, int) and 0 < most < tokens:
        raise _too_long(owner, tokens)


def _too_long(owner: "HuggingFaceModel", tokens: int) -> UserError:
    most = getattr(owner.config, "max_position_embeddings", None)
    about = f" (max_position_embeddings in its config.json is {most:,})" if isinstance(most, int) else ""
    return UserError(f"a text of {tokens:,} tokens is longer than {owner.name} can read{about}; choose a shorter one")
