"""The worker: what waits is predicted together, nobody starves, and what nobody waits for is left out."""

import threading
import time

import pytest

from server_samples import Gate, client_of, some_runs
from sightline.errors import UserError
from sightline.outputs.searched import SequenceOptions
from sightline.serve import Limits
from sightline.serve.adapter import TurnKey
from sightline.serve.refusals import RefusedError
from sightline.serve.worker import TURN_TEXTS, ExplainJob, PredictJob, Worker
from sightline.tasks.explain import ExplainOptions
from sightline.tasks.run import Run

pytestmark = pytest.mark.unchecked_shapes

GREEDY = TurnKey("frozen", SequenceOptions(beam=1))


@pytest.fixture(scope="module")
def runs():
    return some_runs()


@pytest.fixture
def worker(runs):
    made = Worker(runs, Limits(waiting=20))
    yield made
    made.stop(60.0)


def held(worker, runs, monkeypatch):
    """A worker that is busy with one text until its gate is opened."""
    gate = Gate(runs["frozen"], monkeypatch)
    worker.start()
    first = PredictJob(GREEDY, ["first"])
    worker.submit(first)
    assert gate.inside.wait(60)
    return gate, first


def test_what_waits_is_predicted_together(worker, runs, monkeypatch):
    gate, first = held(worker, runs, monkeypatch)
    jobs = [PredictJob(GREEDY, [text]) for text in ("abc", "", "hgfedcba", "aaaa")]
    other = PredictJob(TurnKey("frozen", SequenceOptions(beam=2)), ["abc"])
    for job in (jobs[0], other, *jobs[1:]):
        worker.submit(job)
    assert worker.waiting == 6
    gate.opened.set()
    found = [job.answer.result(60)[0][0]["text"] for job in jobs]
    assert [one["text"] for one in other.answer.result(60)[0]] == [runs["frozen"].predict(["abc"], beam=2)[0].text]
    assert gate.batches[:3] == [["first"], ["abc", "", "hgfedcba", "aaaa"], ["abc"]]
    assert found == [runs["frozen"].predict([job.items[0]], beam=1)[0].text for job in jobs]
    assert first.answer.done()


def test_a_small_request_does_not_wait_for_all_of_a_large_one(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    texts = [f"{'abcdefgh'[i % 8]}{'abcdefgh'[i // 8 % 8]}" for i in range(3 * TURN_TEXTS)]
    large, small = PredictJob(GREEDY, texts), PredictJob(GREEDY, ["abc"])
    worker.submit(large)
    worker.submit(small)
    gate.opened.set()
    found = [some[0]["text"] for some in large.answer.result(60)]
    assert found == [one.text for one in runs["frozen"].predict(texts, beam=1)]
    sizes = [len(batch) for batch in gate.batches[1:4]]
    assert sizes == [TURN_TEXTS] * 3
    assert "abc" in gate.batches[1]
    assert [text for batch in gate.batches[1:5] for text in batch if text != "abc"] == texts


def test_large_texts_come_a_few_at_a_time(worker, runs, monkeypatch):
    monkeypatch.setattr("sightline.serve.worker.TURN_TOKENS", 100)
    gate, _ = held(worker, runs, monkeypatch)
    short = TurnKey("frozen", SequenceOptions(beam=1, max_length=4))
    job = PredictJob(short, ["a" * 32, "b" * 32, "c" * 32, "d" * 200, "e"])  # 40, 40, 40, 208 and 9 tokens
    worker.submit(job)
    gate.opened.set()
    job.answer.result(60)
    assert [[len(text) for text in batch] for batch in gate.batches[1:5]] == [[32, 32], [32], [200], [1]]


def test_samples_are_drawn_one_by_one(worker, runs):
    key = TurnKey("frozen", SequenceOptions(sample=True, seed=5, temperature=3.0))
    job = PredictJob(key, ["abc", "abc", "hh"])
    worker.start()
    worker.submit(job)
    first, again, _ = (some[0]["text"] for some in job.answer.result(60))
    assert first == again == runs["frozen"].predict(["abc"], sample=True, seed=5, temperature=3.0)[0].text


def test_explanations_and_predictions_take_turns(worker, runs, monkeypatch):
    order = []
    gate, _ = held(worker, runs, monkeypatch)
    explained = worker._explain

    def note(job):
        order.append("explain")
        explained(job)

    monkeypatch.setattr(worker, "_explain", note)
    predicted = worker._predict
    monkeypatch.setattr(worker, "_predict", lambda chosen: (order.append("predict"), predicted(chosen))[1])
    wanted = ExplainOptions(beam=1, measure=False)
    jobs = [ExplainJob("transformer", "the dog", wanted) for _ in range(3)]
    jobs += [PredictJob(TurnKey("frozen", SequenceOptions(beam=width)), ["abc"]) for width in (1, 2, 3)]
    for job in jobs:
        worker.submit(job)
    gate.opened.set()
    for job in jobs:
        job.answer.result(60)
    assert order == ["explain", "predict"] * 3


def test_measuring_is_a_turn_of_its_own(worker, runs, monkeypatch):
    order = []
    explained = worker._explain
    monkeypatch.setattr(worker, "_explain", lambda job: (order.append(job.mapped), explained(job))[1])
    job = ExplainJob("frozen", "abc", ExplainOptions(beam=1))
    worker.submit(job)
    worker.start()
    assert job.answer.result(60).belief is not None
    assert order == [False, True]


def test_too_many_are_refused(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    jobs = [PredictJob(GREEDY, ["abc"]) for _ in range(20)]
    for job in jobs:
        worker.submit(job)
    with pytest.raises(RefusedError, match="20 requests wait already") as refused:
        worker.submit(PredictJob(GREEDY, ["abc"]))
    assert refused.value.status == 503
    assert refused.value.headers["retry-after"] == "1"
    gate.opened.set()
    assert {job.answer.result(60)[0][0]["text"] for job in jobs} == {"cba"}


def test_one_bad_text_harms_no_other(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    raw = Run.raw

    def breaking(self, texts, **options):
        if "bad" in texts:
            raise UserError("bad is bad")
        return raw(self, texts, **options)

    monkeypatch.setattr(Run, "raw", breaking)
    jobs = [PredictJob(GREEDY, texts) for texts in (["abc"], ["ab", "bad", "cd"], ["hg"])]
    for job in jobs:
        worker.submit(job)
    gate.opened.set()
    assert jobs[0].answer.result(60)[0][0]["text"] == "cba"
    assert jobs[2].answer.result(60)[0][0]["text"] == "gh"
    with pytest.raises(UserError, match="bad is bad"):
        jobs[1].answer.result(60)


def test_a_text_that_cannot_be_read_harms_no_other(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    tokeniser = runs["frozen"].input.tokeniser
    encode = tokeniser.encode

    def breaking(texts, **options):
        if "bad" in texts:
            raise UserError("bad is bad")
        return encode(texts, **options)

    monkeypatch.setattr(tokeniser, "encode", breaking)
    jobs = [PredictJob(GREEDY, texts) for texts in (["bad"], ["abc"])]
    for job in jobs:
        worker.submit(job)
    gate.opened.set()
    assert jobs[1].answer.result(60)[0][0]["text"] == "cba"
    with pytest.raises(UserError, match="bad is bad"):
        jobs[0].answer.result(60)


def test_what_nobody_waits_for_is_left_out(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    left, stays = PredictJob(GREEDY, ["left"]), PredictJob(GREEDY, ["stays"])
    worker.submit(left)
    worker.submit(stays)
    left.answer.cancel()
    gate.opened.set()
    stays.answer.result(60)
    assert gate.batches == [["first"], ["stays"]]
    assert worker.waiting == 0 or worker.stop(60.0)


def test_stopping_finishes_what_waits(runs, monkeypatch):
    worker = Worker(runs, Limits())
    gate, first = held(worker, runs, monkeypatch)
    job = PredictJob(GREEDY, ["abc"])
    worker.submit(job)
    stopping = threading.Thread(target=worker.stop, args=(60.0,))
    stopping.start()
    time.sleep(0.05)
    with pytest.raises(RefusedError, match="stopping"):
        worker.submit(PredictJob(GREEDY, ["late"]))
    gate.opened.set()
    stopping.join(60)
    assert not worker.alive
    assert all(one.answer.done() for one in (first, job))


def test_requests_that_come_together_are_answered_together(runs, monkeypatch):
    """From the side of HTTP: many threads, some batches, every answer that of its own text."""
    gate = Gate(runs["frozen"], monkeypatch)
    gate.opened.set()
    texts = ["abcdefgh"[i % 8] * (1 + i // 8) for i in range(32)]
    found = {}
    with client_of(runs) as client:

        def ask(text):
            answer = client.post("/predict", json={"texts": [text]})
            found[text] = answer.json()["predictions"][0][0]["text"]

        gate.opened.clear()
        threads = [threading.Thread(target=ask, args=(text,)) for text in texts]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + 20
        while client.get("/health").json()["waiting"] < 32 and time.monotonic() < limit:
            time.sleep(0.02)
        gate.opened.set()
        for thread in threads:
            thread.join(60)
    assert len(gate.batches) <= 3
    expected = runs["frozen"].predict(texts)
    assert found == {text: one.text for text, one in zip(texts, expected, strict=True)}


def test_a_turn_that_nobody_waits_for_ends(worker, runs):
    """A long search stops at its next step, and others are served."""
    long = PredictJob(TurnKey("frozen", SequenceOptions(beam=4, min_length=200_000, max_length=200_000)), ["abc"])
    worker.start()
    worker.submit(long)
    deadline = time.monotonic() + 60
    while worker._predictions and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.2)
    assert not long.answer.done()
    long.answer.cancel()
    small = PredictJob(GREEDY, ["abc"])
    worker.submit(small)
    assert small.answer.result(60)


def test_clients_that_left_make_room(worker, runs, monkeypatch):
    gate, _ = held(worker, runs, monkeypatch)
    left = [PredictJob(GREEDY, ["abc"]) for _ in range(20)]
    for job in left:
        worker.submit(job)
    for job in left:
        job.answer.cancel()
    stays = PredictJob(GREEDY, ["abc"])
    worker.submit(stays)
    assert worker.waiting == 2
    gate.opened.set()
    assert stays.answer.result(60)
