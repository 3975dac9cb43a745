"""Models from series to text: both losses against PyTorch's, padding, sampling, and search with CTC."""

import itertools

import pytest
import torch
import torch.nn.functional as F

from sightline.attention import AdditiveConfig, ComposedConfig, LocationAwareConfig
from sightline.decoding.options import SearchConfig
from sightline.models.listen_attend_spell import CTCConfig, ListenAttendSpellConfig
from sightline.models.series_transformer import SeriesTransformerConfig
from sightline.nn.series import SeriesBatch, SeriesShape
from sightline.vocabulary import END, PADDING, START

WORDS = 7
SHAPE = SeriesShape((3,), 0.01)
TARGET = torch.tensor([[START, 4, 5, 5, END], [START, 6, END, PADDING, PADDING]])
CONFIGS = {
    "location": ListenAttendSpellConfig(
        size=6, embedding_size=5, decoder_size=8, attention=LocationAwareConfig(6, 2, 5), dropout=0.0, sampling=0.0
    ),
    "content": ListenAttendSpellConfig(
        size=6, embedding_size=5, decoder_size=8, attention=ComposedConfig(AdditiveConfig(6)), dropout=0.0, sampling=0.0
    ),
    "transformer": SeriesTransformerConfig(
        size=8, heads=2, feed_forward=12, encoder_layers=1, decoder_layers=1, channels=2, dropout=0.0
    ),
}


def batch():
    torch.manual_seed(0)
    return SeriesBatch(torch.randn(2, 30, 3), torch.tensor([30, 17]))


def built(config, **changed):
    from dataclasses import replace

    torch.manual_seed(1)
    return replace(config, **changed).build(SHAPE, WORDS).eval()


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_joint_loss_is_the_sum_of_both(kind):
    model = built(CONFIGS[kind], ctc=0.3)
    source = batch()
    annotations = model.annotate(source)
    features, _ = model.decode(TARGET[:, :-1], model.begin(source))
    written = F.cross_entropy(
        model.output(features).transpose(1, 2), TARGET[:, 1:], ignore_index=PADDING, reduction="sum"
    )
    logits = model.ctc(annotations.states).clone()
    logits[..., [START, END]] = -1e4
    aligned = sum(
        F.ctc_loss(
            logits[row, : int(annotations.lengths[row])].log_softmax(-1),
            labels,
            annotations.lengths[row : row + 1],
            torch.tensor([len(labels)]),
            blank=PADDING,
            reduction="sum",
        )
        for row, labels in enumerate((torch.tensor([4, 5, 5]), torch.tensor([6])))
    )
    loss = model.loss(source, TARGET)
    assert loss.tokens == 6
    torch.testing.assert_close(loss.total, 0.7 * written + 0.3 * aligned, rtol=1e-4, atol=1e-4)
    assert loss.parts["ctc"] == pytest.approx(aligned.item(), rel=1e-4)


@pytest.mark.parametrize("kind", CONFIGS)
def test_padding_changes_nothing(kind):
    model, source = built(CONFIGS[kind]), batch()
    together = model.logits(source, TARGET[:, :-1])
    by_itself = model.logits(SeriesBatch(source.values[1:, :17], source.lengths[1:]), TARGET[1:, :-1])
    torch.testing.assert_close(together[1:], by_itself, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", CONFIGS)
def test_one_word_at_a_time_is_all_at_once(kind):
    model, source = built(CONFIGS[kind]), batch()
    state, rows = model.begin(source), []
    for place in range(4):
        features, state = model.decode(TARGET[:, place : place + 1], state)
        rows.append(model.output(features))
    torch.testing.assert_close(torch.cat(rows, dim=1), model.logits(source, TARGET[:, :-1]), rtol=1e-4, atol=1e-5)


def searched(model, source, lengths, **options):
    step, state = model.searching(source)
    return SearchConfig(**options).find(step, state, lengths, [[] for _ in lengths], torch.Generator())


def test_search_adds_the_scores_of_ctc():
    """A wide beam finds the best text of all, by (1 − λ) log p of the decoder + λ log p of CTC."""
    model = built(CONFIGS["location"], ctc=0.4, reduces=(2, 2, 2))
    source = SeriesBatch(batch().values[:1, :22], torch.tensor([22]))
    letters, most = range(4, WORDS), 3
    scores = {}
    for length in range(most + 1):
        for text in itertools.product(letters, repeat=length):
            target = torch.tensor([[START, *text, END]])
            with torch.no_grad():
                parts = model.loss(source, target).parts
            scores[text] = -(0.6 * parts["attention"] + 0.4 * parts["ctc"])
    best = max(scores, key=scores.get)
    with torch.no_grad():
        ((given,),) = searched(model, source, [3], beam=60, length_penalty=0.0, max_length=most)
    assert tuple(given.tokens) == best
    assert given.log_prob == pytest.approx(scores[best], abs=1e-3)


def test_ctc_alone_writes_what_is_likeliest():
    torch.manual_seed(5)
    model = CTCConfig(size=6, reduces=(2, 2), dropout=0.0).build(SHAPE, WORDS).eval()
    source = SeriesBatch(torch.randn(1, 12, 3), torch.tensor([12]))
    scores = {}
    for length in range(4):
        for text in itertools.product(range(4, WORDS), repeat=length):
            with torch.no_grad():
                total = float(model.loss(source, torch.tensor([[START, *text, END]])).total)
            scores[text] = -total if total else -float("inf")  # 0: too few frames for it
    with torch.no_grad():
        ((given,),) = searched(model, source, [3], beam=60, length_penalty=0.0, max_length=3)
    assert tuple(given.tokens) == max(scores, key=scores.get)


def test_own_words_replace_a_share_of_the_true_ones():
    model = built(CONFIGS["location"], sampling=0.5).train()
    words = torch.tensor([[START, *[4, 5] * 40]])
    replaced = model._sampled(words, model.annotate(SeriesBatch(batch().values[:1], torch.tensor([30]))))
    assert replaced[0, 0] == START
    share = float((replaced != words).float().mean())
    assert 0.1 < share < 0.6
    model.eval()
    assert torch.equal(
        model._sampled(words, model.annotate(SeriesBatch(batch().values[:1], torch.tensor([30])))), words
    )


def test_settings_that_leave_nothing_are_refused():
    with pytest.raises(ValueError, match="use the model ctc"):
        ListenAttendSpellConfig(ctc=1.0)
    with pytest.raises(ValueError, match="from 0 to 1"):
        ListenAttendSpellConfig(ctc=1.5)
    with pytest.raises(ValueError, match="of a model with CTC alone it is 1"):
        CTCConfig(ctc=0.5)
    with pytest.raises(ValueError, match="reduces"):
        ListenAttendSpellConfig(reduces=())
