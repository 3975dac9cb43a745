"""Search: greedy, beam and sampling. Knows `step(tokens, state)` and nothing of models.

A step takes the last token of every row and a state, and gives the log-probabilities of the next token and the next
state. States are nests of tuples of tensors with the batch axis first, so `select` can reorder them. Rows are decoded
together, and sentences that are finished leave the batch.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sightline.state import State, reorder, select

NEVER = -math.inf
GROUPS, GROUPED = 64, 1 << 18  # of words when choosing among this many log-probabilities or more


@runtime_checkable
class Step(Protocol[State]):
    """One step of any model: last tokens and state → log-probabilities of the next tokens, next state.

    Search writes into the log-probabilities, and uses no state twice.
    """

    def __call__(self, tokens: Int[Tensor, " n"], state: State) -> tuple[Float[Tensor, "n v"], State]: ...


class Hypothesis(NamedTuple):
    """A finished sequence, without start and end: its tokens, log-probability and the score it was ranked by."""

    tokens: list[int]
    log_prob: float
    score: float


@dataclass(frozen=True)
class Rules:
    """What every search must keep to. Lengths count tokens without start and end."""

    start: int
    end: int
    min_length: int = 0
    max_length: int = 256
    no_repeat: int = 0  # no sequence of this many tokens twice; 0: anything goes
    forbidden: tuple[int, ...] = ()  # tokens never written, such as padding

    def __post_init__(self) -> None:
        if not 0 <= self.min_length <= self.max_length:
            raise ValueError(
                f"min_length is {self.min_length} and max_length {self.max_length}; the first must be 0 or more, and "
                f"at most the second"
            )
        if self.no_repeat < 0:
            raise ValueError(f"no_repeat is {self.no_repeat}; it must be 0 or more")

    def apply(
        self,
        log_probs: Float[Tensor, "n v"],
        written: Int[Tensor, "n t"],
        prefixes: Int[Tensor, "n p"],
        limits: Int[Tensor, " n"],
        soonest: int = 0,
    ) -> Float[Tensor, "n v"]:
        """The log-probabilities, with −inf put in for whatever may not be written next.

        No limit is below ``soonest``: up to there they are not compared.
        """
        length = written.shape[-1]
        forced = prefixes[:, length] if length < prefixes.shape[-1] else None
        # A prefix overrides every other rule.
        forced_log_probs = None if forced is None else log_probs.gather(-1, forced.clamp(min=0).unsqueeze(-1))
        if self.no_repeat and length >= self.no_repeat:
            log_probs.masked_fill_(self._repeats(written, log_probs.shape[-1]), NEVER)
        never = (self.start, *self.forbidden, *((self.end,) if length < self.min_length else ()))
        log_probs.index_fill_(-1, _places(never, log_probs.device), NEVER)
        if length >= soonest and (full := limits <= length).any():
            _leave_only(log_probs, full, torch.full_like(limits, self.end), log_probs[:, [self.end]])
        if forced is not None and forced_log_probs is not None:
            _leave_only(log_probs, forced >= 0, forced, forced_log_probs)
        return log_probs

    def _repeats(self, written: Int[Tensor, "n t"], words: int) -> Bool[Tensor, "n v"]:
        size = self.no_repeat
        banned = torch.zeros(len(written), words, dtype=torch.bool, device=written.device)
        windows = written.unfold(-1, size, 1)
        last = written[:, written.shape[-1] - size + 1 :].unsqueeze(1)
        seen = (windows[..., :-1] == last).all(dim=-1)
        rows = torch.arange(len(written), device=written.device).unsqueeze(-1).expand_as(seen)
        banned[rows[seen], windows[..., -1][seen]] = True
        banned[:, self.end] = False
        return banned


@functools.lru_cache(maxsize=64)
def _places(tokens: tuple[int, ...], device: torch.device) -> Tensor:
    """Made once, not at every step."""
    with torch.inference_mode(False):
        return torch.tensor(tokens, device=device)


def _leave_only(log_probs: Tensor, rows: Bool[Tensor, " n"], tokens: Int[Tensor, " n"], values: Tensor) -> None:
    """In these rows nothing but one token, with the log-probability given."""
    log_probs.masked_fill_(rows.unsqueeze(-1), NEVER)
    log_probs[rows, tokens[rows]] = values[rows].squeeze(-1)


def _prefix_tensor(prefixes: Sequence[Sequence[int]] | None, rows: int, device: torch.device) -> Tensor:
    """Forced beginnings as one tensor, −1 behind the end of each."""
    if prefixes is None:
        return torch.empty(rows, 0, dtype=torch.long, device=device)
    if len(prefixes) != rows:
        raise ValueError(f"prefixes has {len(prefixes)} entries; expected {rows}, one for each row of the batch")
    longest = max(map(len, prefixes), default=0)
    padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
    return torch.tensor(padded, dtype=torch.long, device=device).reshape(rows, longest)


def _limits(rules: Rules, limits: Sequence[int] | None, rows: int, device: torch.device) -> Tensor:
    """The longest output of each row: the rules' own, or less where a row has a limit."""
    if limits is None:
        return torch.full((rows,), rules.max_length, device=device)
    if len(limits) != rows:
        raise ValueError(f"limits has {len(limits)} entries; expected {rows}, one for each row of the batch")
    return torch.tensor(limits, device=device).clamp(min=rules.min_length, max=rules.max_length)


@torch.no_grad()
def greedy(
    step: Step[State],
    state: State,
    rows: int,
    rules: Rules,
    *,
    prefixes: Sequence[Sequence[int]] | None = None,
    limits: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
    sampler: "Sampler | None" = None,
) -> list[Hypothesis]:
    """The likeliest next token, again and again; with a sampler, a drawn one. The score is the log-probability."""
    device = torch.device(device)
    forced, limit = _prefix_tensor(prefixes, rows, device), _limits(rules, limits, rows, device)
    written = torch.empty(rows, 0, dtype=torch.long, device=device)
    total = torch.zeros(rows, dtype=torch.float64, device=device)
    alive = torch.arange(rows, device=device)
    last = torch.full((rows,), rules.start, dtype=torch.long, device=device)
    done: dict[int, Hypothesis] = {}
    # Before that many tokens no limit is reached, and before that many nothing can end: both need no look.
    least = int(limit.min()) if rows else 0
    soonest = 0 if forced.shape[-1] else min(rules.min_length, least)
    while alive.shape[0]:
        log_probs, state = step(last, state)
        allowed = rules.apply(log_probs, written, forced, limit, least)
        last = _largest(allowed) if sampler is None else sampler.draw(allowed)
        total = total + allowed.gather(-1, last.unsqueeze(-1)).squeeze(-1)
        if written.shape[-1] >= soonest and (ended := last == rules.end).any():
            for row, tokens, score in zip(
                alive[ended].tolist(), written[ended].tolist(), total[ended].tolist(), strict=True
            ):
                done[row] = Hypothesis(tokens, score, score)
            keep = (~ended).nonzero().squeeze(-1)
            state = select(state, keep)
            alive, last, total, forced, limit, written = (
                part.index_select(0, keep) for part in (alive, last, total, forced, limit, written)
            )
        written = torch.cat([written, last.unsqueeze(-1)], dim=-1)
    return [done[row] for row in range(rows)]


@dataclass(frozen=True)
class Sampler:
    """Draws from the distribution made sharper (temperature below 1), and cut to the likeliest ``top`` or ``mass``."""

    temperature: float = 1.0
    top: int | None = None
    mass: float = 1.0
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"temperature is {self.temperature}; it must be above 0")
        if self.top is not None and self.top < 1:
            raise ValueError(f"top is {self.top}; it must be at least 1")
        if not 0 < self.mass <= 1:
            raise ValueError(f"mass is {self.mass}; it must lie above 0 and be at most 1")

    def draw(self, log_probs: Float[Tensor, "n v"]) -> Int[Tensor, " n"]:
        scores, order = log_probs.sort(dim=-1, descending=True)
        # From the likeliest downwards: however small a temperature, the likeliest stays a number.
        scores = (scores - scores[:, :1]) / max(self.temperature, torch.finfo(scores.dtype).tiny)
        if self.top is not None:
            scores[:, self.top :] = NEVER
        probs = torch.softmax(scores, dim=-1)
        # The likeliest token always stays; others while the mass before them is not enough.
        enough = probs.cumsum(dim=-1) - probs >= self.mass
        enough[:, 0] = False
        probs = probs.masked_fill(enough, 0.0)
        return order.gather(-1, torch.multinomial(probs, 1, generator=self.generator)).squeeze(-1)


class _Beams(NamedTuple):
    """What is known of the sentences still in search: ``k`` living hypotheses each, and the ``best`` finished ones."""

    sentences: Int[Tensor, " s"]
    written: Int[Tensor, "s k t"]
    log_prob: Float[Tensor, "s k"]
    finished: Float[Tensor, "s best"]
    finished_log_prob: Float[Tensor, "s best"]
    finished_tokens: Int[Tensor, "s best m"]
    finished_count: Int[Tensor, " s"]
    prefixes: Int[Tensor, "s p"]
    limits: Int[Tensor, " s"]


@torch.no_grad()
def beam_search(
    step: Step[State],
    state: State,
    rows: int,
    rules: Rules,
    *,
    beam: int = 5,
    best: int = 1,
    length_penalty: float = 1.0,
    prefixes: Sequence[Sequence[int]] | None = None,
    limits: Sequence[int] | None = None,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """The ``best`` hypotheses of each row, ranked by log-probability ÷ length^penalty (length with the end).

    At each step the ``beam`` likeliest continuations live on, and an end among them is finished. A sentence leaves when
    ``beam`` hypotheses have finished, or when no living one can still come among the best. With a beam as wide as
    there are sequences the result is exact; with a beam of one it is `greedy`.
    """
    if beam < 1 or best < 1:
        raise ValueError(f"beam is {beam} and best is {best}; both must be at least 1")
    device = torch.device(device)
    longest = rules.max_length if limits is None else max([rules.min_length, *limits])
    beams = _Beams(
        sentences=torch.arange(rows, device=device),
        written=torch.empty(rows, 1, 0, dtype=torch.long, device=device),
        log_prob=torch.zeros(rows, 1, dtype=torch.float64, device=device),
        finished=torch.full((rows, best), NEVER, dtype=torch.float64, device=device),
        finished_log_prob=torch.full((rows, best), NEVER, dtype=torch.float64, device=device),
        finished_tokens=torch.full((rows, best, longest), -1, dtype=torch.long, device=device),
        finished_count=torch.zeros(rows, dtype=torch.long, device=device),
        prefixes=_prefix_tensor(prefixes, rows, device),
        limits=_limits(rules, limits, rows, device),
    )
    last = torch.full((rows,), rules.start, dtype=torch.long, device=device)
    results: list[list[Hypothesis]] = [[] for _ in range(rows)]
    least = int(beams.limits.min()) if rows else 0
    while beams.sentences.shape[0]:
        log_probs, state = step(last, state)
        beams, origins = _advance(beams, log_probs, rules, beam, length_penalty, least)
        leaving = _cannot_improve(beams, beam, length_penalty)
        keep = None
        if leaving.any():
            _collect(beams, leaving, results)
            keep = (~leaving).nonzero().squeeze(-1)
            beams, origins = select(beams, keep), origins.index_select(0, keep)
        state = reorder(state, origins.flatten(), keep)
        last = beams.written[..., -1].flatten()
    return results


def _advance(
    beams: _Beams, log_probs: Float[Tensor, "n v"], rules: Rules, beam: int, penalty: float, least: int
) -> tuple[_Beams, Int[Tensor, "s k"]]:
    """One token more for every living hypothesis; also the row that each new hypothesis came from."""
    sentences, k, length = beams.written.shape
    words = log_probs.shape[-1]
    allowed = rules.apply(
        log_probs,
        beams.written.flatten(0, 1),
        beams.prefixes.repeat_interleave(k, dim=0),
        beams.limits.repeat_interleave(k, dim=0),
        least,
    )
    # Each hypothesis has one end, so among the 2 · beam best at least `beam` are unfinished.
    likely, parents, tokens = likeliest(allowed.reshape(sentences, k, words), beams.log_prob, 2 * beam)
    ends = tokens == rules.end
    # An end counts only among the `beam` best, as in the search that a beam of one must equal.
    ended = likely.masked_fill(~ends, NEVER)
    ended[:, beam:] = NEVER
    beams = _finish(beams, ended, parents, length, penalty)
    living, order = likely.masked_fill(ends, NEVER).topk(min(beam, likely.shape[-1]), dim=-1)
    parents, tokens = parents.gather(-1, order), tokens.gather(-1, order)
    history = beams.written.gather(1, parents.unsqueeze(-1).expand(-1, -1, length))
    written = torch.cat([history, tokens.unsqueeze(-1)], dim=-1)
    origins = parents + torch.arange(sentences, device=parents.device).unsqueeze(-1) * k
    return beams._replace(written=written, log_prob=living), origins


def _largest(log_probs: Float[Tensor, "n v"]) -> Int[Tensor, " n"]:
    """Where each row has its largest number. On a processor NumPy finds it ten times as fast as PyTorch."""
    if log_probs.device.type != "cpu" or log_probs.dtype not in (torch.float32, torch.float64):
        return log_probs.argmax(dim=-1)
    return torch.from_numpy(log_probs.numpy().argmax(axis=-1))


def likeliest(
    log_probs: Float[Tensor, "s k v"], before: Float[Tensor, "s k"], count: int
) -> tuple[Float[Tensor, "s n"], Int[Tensor, "s n"], Int[Tensor, "s n"]]:
    """The ``count`` likeliest continuations of the ``k`` hypotheses of each sentence, best first, if there are so many.

    Gives their log-probabilities (with what stood ``before``), the hypotheses they extend, and the tokens.
    """
    sentences, k, words = log_probs.shape
    count = min(count, k * words)
    if log_probs.numel() < GROUPED or words < GROUPS or log_probs.device.type != "cpu":
        kept = min(count, words)
        values, choices = log_probs.topk(kept, dim=-1)
        likely, places = (before.unsqueeze(-1) + values).flatten(1).topk(count, dim=-1)
        return likely, places // kept, choices.flatten(1).gather(-1, places)
    # The largest of many numbers are slow to find, the largest of each group fast: only the best groups are looked
    # into. A group is every GROUPS-th word; the few words left over at the end are looked at anyway.
    size = words // GROUPS
    rest = words - size * GROUPS
    groups = log_probs[..., : words - rest].unflatten(-1, (size, GROUPS))
    best = (before.unsqueeze(-1) + groups.amax(dim=-2)).flatten(1).topk(min(count, k * GROUPS), dim=-1).indices
    parents, firsts = best // GROUPS, best % GROUPS
    inside = groups[torch.arange(sentences).unsqueeze(-1), parents, :, firsts]
    behind = before.unsqueeze(-1) + log_probs[..., words - rest :]
    totals = torch.cat([(before.gather(-1, parents).unsqueeze(-1) + inside).flatten(1), behind.flatten(1)], dim=-1)
    likely, order = totals.topk(count, dim=-1)
    group, member = (order // size).clamp(max=best.shape[-1] - 1), order % size
    parents, tokens = parents.gather(-1, group), firsts.gather(-1, group) + GROUPS * member
    if rest:
        left = order - best.shape[-1] * size
        parents = torch.where(left < 0, parents, left // rest)
        tokens = torch.where(left < 0, tokens, words - rest + left % rest)
    return likely, parents, tokens


def _finish(
    beams: _Beams, ended: Float[Tensor, "s c"], parents: Int[Tensor, "s c"], length: int, penalty: float
) -> _Beams:
    """Put the hypotheses that ended among the finished ones, and keep the best."""
    if not (ended > NEVER).any():
        return beams
    best, longest = beams.finished_tokens.shape[1:]
    scores = torch.cat([beams.finished, ended / (length + 1) ** penalty], dim=-1)
    history = beams.written.gather(1, parents.unsqueeze(-1).expand(-1, -1, length))
    padding = beams.finished_tokens.new_full((*parents.shape, longest - length), -1)
    tokens = torch.cat([beams.finished_tokens, torch.cat([history, padding], dim=-1)], dim=1)
    log_prob = torch.cat([beams.finished_log_prob, ended], dim=-1)
    finished, order = scores.topk(best, dim=-1)
    return beams._replace(
        finished=finished,
        finished_log_prob=log_prob.gather(-1, order),
        finished_tokens=tokens.gather(1, order.unsqueeze(-1).expand(-1, -1, longest)),
        finished_count=beams.finished_count + (ended > NEVER).sum(dim=-1),
    )


def _cannot_improve(beams: _Beams, beam: int, penalty: float) -> Bool[Tensor, " s"]:
    """Enough have finished, or even a sure ending of the best living one would come too late."""
    length = beams.written.shape[-1]
    top = beams.log_prob.amax(dim=-1)
    shortest = torch.full_like(top, length + 1)
    furthest = (beams.limits + 1).to(top.dtype).clamp(min=length + 1)
    hope = torch.maximum(top / shortest**penalty, top / furthest**penalty)
    # Asked so that NaN, what a damaged model writes, leaves: it would be searched for ever.
    return ~((beams.finished_count < beam) & (beams.finished[:, -1] < hope) & (top > NEVER))


def _collect(beams: _Beams, leaving: Bool[Tensor, " s"], results: list[list[Hypothesis]]) -> None:
    """The finished hypotheses of the sentences that leave, best first."""
    rows = zip(
        beams.sentences[leaving].tolist(),
        beams.finished_tokens[leaving].tolist(),
        beams.finished_log_prob[leaving].tolist(),
        beams.finished[leaving].tolist(),
        strict=True,
    )
    for sentence, tokens, log_probs, scores in rows:
        results[sentence] = [
            Hypothesis([token for token in written if token >= 0], log_prob, score)
            for written, log_prob, score in zip(tokens, log_probs, scores, strict=True)
            if score > NEVER
        ]


def ensemble(steps: Sequence[Step[State]]) -> Step[tuple[State, ...]]:
    """Several models as one: the mean of their probabilities. Its state is the tuple of theirs."""

    def step(tokens: Int[Tensor, " n"], state: tuple[State, ...]) -> tuple[Float[Tensor, "n v"], tuple[State, ...]]:
        answers = [one(tokens, part) for one, part in zip(steps, state, strict=True)]
        mean = mean_of_probs([log_probs for log_probs, _ in answers])
        return mean, tuple(part for _, part in answers)

    return step


def mean_of_probs(log_probs: Sequence[Float[Tensor, "..."]]) -> Float[Tensor, "..."]:
    """The logarithm of the mean of probabilities. A model that cannot copy gives no probability to copied words."""
    widest = max(one.shape[-1] for one in log_probs)
    padded = [torch.nn.functional.pad(one, (0, widest - one.shape[-1]), value=NEVER) for one in log_probs]
    return torch.logsumexp(torch.stack(padded), dim=0) - math.log(len(padded))
