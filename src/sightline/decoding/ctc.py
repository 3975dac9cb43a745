"""Connectionist temporal classification (Graves 2006): prefix scores for search, alignment, and the best path.

A path writes one label or a blank at every frame; repeated labels are merged, then blanks go. The blank is the padding
token. The unknown, start and end tokens have no label; in a search, the end closes a prefix.

`ctc_step` is a step of `sightline.decoding.search`. It scores by the probability of a prefix, ψ(g): that of all
labellings that begin with g (Graves 2008; Watanabe and others 2017). A common mistake is to take the probability of
the prefix at its likeliest frame: ψ sums over all frames at which the last label can come first.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import pad

from sightline.state import Shared
from sightline.vocabulary import END, PADDING, START, UNKNOWN

BLANK = PADDING
NO_LABEL = (UNKNOWN, START, END)
NEVER = -torch.inf
FLOOR = -1e5  # no label of a frame is less likely than e^FLOOR, so that sums of log-probabilities stay finite
UNSURE = 1e-280  # a smaller sum of probabilities may have lost terms, and is made again of logarithms
AT_ONCE = 1 << 22  # numbers that are made at once when sums are made again


class PrefixState(NamedTuple):
    """A prefix of every hypothesis, and what its sentence's frames say. Frames are kept once for a sentence.

    ``by_label`` and ``by_blank`` have the log-probability that the frames up to each one write exactly the prefix and
    end in its last label, or in a blank; the first column stands before all frames. ``score`` is log ψ.
    """

    frames: Shared  # log-probabilities, probabilities ÷ the largest of each label, these largest, what is no padding
    by_label: Float[Tensor, "n times"]
    by_blank: Float[Tensor, "n times"]
    score: Float[Tensor, " n"]
    last: Int[Tensor, " n"]


def ctc_begin(log_probs: Float[Tensor, "b t v"], lengths: Int[Tensor, " b"]) -> PrefixState:
    """The state before the first token. Frames beyond a row's length never count."""
    frames = pad(log_probs.clamp(min=FLOOR), (0, 0, 0, 0 if log_probs.shape[1] else 1))
    frames[..., list(NO_LABEL)] = NEVER
    inside = torch.arange(frames.shape[1], device=frames.device) < lengths.unsqueeze(-1)
    frames[~inside] = NEVER
    frames[..., BLANK] = frames[..., BLANK].masked_fill(~inside, 0.0)  # so the last frame has the whole row's sum
    largest = frames.amax(dim=1)
    scaled = (frames.double() - largest.clamp(min=FLOOR).unsqueeze(1)).exp()
    by_blank = pad(frames[..., BLANK].double().cumsum(dim=-1), (1, 0))
    return PrefixState(
        Shared((frames, scaled, largest, inside)),
        torch.full_like(by_blank, NEVER),
        by_blank,
        by_blank.new_zeros(len(by_blank)),
        lengths.new_full((len(by_blank),), START),
    )


def ctc_step(tokens: Int[Tensor, " n"], state: PrefixState) -> tuple[Float[Tensor, "n v"], PrefixState]:
    """log ψ(prefix and token) − log ψ(prefix) of each next token; for the end, log p(prefix alone) − log ψ(prefix).

    Summed over a hypothesis this is the CTC log-probability of its whole labelling. Tokens for which too few frames
    are left get −inf. Where nothing can follow, not even the end (a prefix that was forced), the end gets 0.
    """
    state = _extended(tokens, state)
    frames, scaled, largest, inside = state.frames.part
    sentences, times, words = scaled.shape
    rows = torch.arange(len(tokens), device=tokens.device) // (len(tokens) // sentences)
    before = torch.logaddexp(state.by_label, state.by_blank)[:, :-1].masked_fill(~inside[rows], NEVER)
    top = before.amax(dim=-1, keepdim=True).clamp(min=-1e300)
    sums = ((before - top).exp().reshape(sentences, -1, times) @ scaled).reshape(-1, words)
    log_probs = sums.log() + top + largest.double()[rows]
    unsure = (sums < UNSURE) & (largest > NEVER)[rows] & (before > NEVER).any(dim=-1, keepdim=True)
    unsure.scatter_(-1, state.last.unsqueeze(-1), False)  # made below
    for some in unsure.nonzero().split(max(1, AT_ONCE // times)):
        hypotheses, choices = some.unbind(-1)
        log_probs[hypotheses, choices] = (before[hypotheses] + frames[rows[hypotheses], :, choices]).logsumexp(-1)
    # The last label again is a new one only behind a blank.
    again = (state.by_blank[:, :-1] + frames[rows, :, state.last]).logsumexp(dim=-1, keepdim=True)
    log_probs.scatter_(-1, state.last.unsqueeze(-1), again)
    log_probs[:, [BLANK, *NO_LABEL]] = NEVER
    log_probs[:, END] = torch.logaddexp(state.by_label[:, -1], state.by_blank[:, -1])
    log_probs -= state.score.clamp(min=-1e300).unsqueeze(-1)
    log_probs[(log_probs == NEVER).all(dim=-1), END] = 0.0
    return log_probs, state


def _extended(tokens: Int[Tensor, " n"], state: PrefixState) -> PrefixState:
    """The state of the prefixes with one token more; the start token adds nothing."""
    if (tokens == START).all():
        return state._replace(last=tokens)
    frames = state.frames.part[0]
    rows = torch.arange(len(tokens), device=tokens.device) // (len(tokens) // len(frames))
    again = (tokens == state.last).unsqueeze(-1)
    before = torch.where(again, state.by_blank, torch.logaddexp(state.by_label, state.by_blank))[:, :-1]
    chosen = frames[rows, :, tokens].double()
    score = (before + chosen).logsumexp(dim=-1)
    by_label = _linear(chosen.clamp(min=FLOOR), before).masked_fill((score == NEVER).unsqueeze(-1), NEVER)
    by_blank = _linear(frames[rows, :, BLANK].double(), by_label[:, :-1])
    return PrefixState(state.frames, by_label, by_blank, score, tokens)


def _linear(log_probs: Float[Tensor, "n t"], entering: Float[Tensor, "n t"]) -> Float[Tensor, "n times"]:
    """log r of r_t = p_t (r_{t−1} + entering_{t−1}), r_0 = 0, for all frames at once: r_t ÷ Πp is a cumulative sum."""
    products = log_probs.cumsum(dim=-1)
    return pad(products + torch.logcumsumexp(entering - products + log_probs, dim=-1), (1, 0), value=NEVER)


def _labels(log_probs: Tensor) -> Tensor:
    """The log-probabilities without those of tokens that have no label."""
    places = torch.tensor(NO_LABEL, device=log_probs.device)
    return log_probs.index_fill(-1, places, NEVER)


def best_path(log_probs: Float[Tensor, "b t v"], lengths: Int[Tensor, " b"]) -> list[list[int]]:
    """The labelling of the likeliest path of each row: fast, and not always the likeliest labelling."""
    written = []
    for labels, length in zip(_labels(log_probs).argmax(dim=-1), lengths.tolist(), strict=True):
        merged = labels[:length].unique_consecutive()
        written.append(merged[merged != BLANK].tolist())
    return written


def ctc_align(log_probs: Float[Tensor, "t v"], tokens: Sequence[int]) -> list[tuple[int, int]]:
    """The frames of each token on the likeliest path that writes the tokens: its first, and the one behind its last."""
    if not tokens:
        return []
    scores, skips = _lattice(log_probs, tokens)
    best = _sums(scores, skips, np.maximum)
    place = scores.shape[1] - 1 - int(best[-1, -2] > best[-1, -1])
    spans = [(0, 0)] * len(tokens)
    for time in reversed(range(len(scores))):
        if place % 2:
            spans[place // 2] = (time, spans[place // 2][1] or time + 1)
        if time:
            origins = [place, *([place - 1] if place else []), *([place - 2] if skips[place] else [])]
            place = max(origins, key=best[time - 1].__getitem__)
    return spans


def ctc_posteriors(log_probs: Float[Tensor, "t v"], tokens: Sequence[int]) -> Float[Tensor, "n t"]:
    """The probability of each token at each frame, given that the frames write the tokens: an alignment map.

    A row sums to the expected number of its token's frames; a column sums to 1 without the probability of a blank.
    """
    if not tokens:
        return log_probs.new_zeros(0, len(log_probs))
    scores, skips = _lattice(log_probs, tokens)
    forward = _sums(scores, skips, np.logaddexp)
    # From the end backwards the lattice looks as from the beginning: the same recurrence on all of it reversed.
    behind = np.concatenate([skips[2:], [False, False]])[::-1]
    backward = _sums(scores[::-1, ::-1], behind, np.logaddexp)[::-1, ::-1]
    both = forward + backward - scores
    total = np.logaddexp.reduce(both[-1])
    return torch.from_numpy(np.exp(both[:, 1::2] - total).T.copy()).to(log_probs)


def _lattice(log_probs: Float[Tensor, "t v"], tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """Log-probabilities of blank, token, blank, … (t × places), and the places that a blank before may be left out."""
    repeats = sum(one == other for one, other in itertools.pairwise(tokens))
    if len(log_probs) < len(tokens) + repeats:
        raise ValueError(
            f"{len(tokens)} tokens need {len(tokens) + repeats} frames (one more between equal ones), and there are "
            f"{len(log_probs)}; give fewer tokens or more frames"
        )
    places = np.full(2 * len(tokens) + 1, BLANK)
    places[1::2] = tokens
    skips = (places != BLANK) & (places != np.concatenate([[-1, -1], places[:-2]]))
    skips[:2] = False
    scores = log_probs.detach().double().clamp(min=FLOOR).cpu().numpy()
    return scores[:, places], skips


def _sums(scores: np.ndarray, skips: np.ndarray, add: np.ufunc) -> np.ndarray:
    """What beginnings of paths that stand at a place after a frame come to: all of them, or with a maximum the best."""
    times, places = scores.shape
    sums = np.full((times, places + 2), -np.inf)  # two more before the first, so that every place has some before it
    sums[0, 2:4] = scores[0, :2]
    over = np.where(skips, 0.0, -np.inf)
    for time in range(1, times):
        before, after = sums[time - 1], sums[time, 2:]
        add(before[2:], before[1:-1], out=after)
        add(after, before[:-2] + over, out=after)
        after += scores[time]
    return sums[:, 2:]
