"""Train, predict and evaluate, for runs that read texts word by word: pretrain, tag, span."""

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, get_args

from sightline.commands.common import say_unfinished, set_up
from sightline.commands.prediction import Lines, write_predictions
from sightline.commands.scoring import (
    check_rows_wanted,
    console,
    given_data,
    plain_table,
    predicting,
    print_classes,
    print_json,
    say_left_out,
    spaced,
    write_rows,
)
from sightline.data.answers import QUESTION_NAMES, TEXT_NAMES, AnswersFile
from sightline.data.checking import Report
from sightline.data.plain import PlainFile
from sightline.data.tagged import CONLL_ENDINGS, WORD_NAMES, TaggedFile
from sightline.errors import UserError
from sightline.tasks.answerer import Answerer, AnswerEvaluation, read_asked
from sightline.tasks.answerer import evaluate as evaluate_answers
from sightline.tasks.filling import Reader
from sightline.tasks.presets import MODELS
from sightline.tasks.span import SpanMetric
from sightline.tasks.table import task_named, task_of
from sightline.tasks.tagger import TagEvaluation, Tagger, TagMetric, read_sentences
from sightline.tasks.tagger import evaluate as evaluate_tags

FILES: dict[str, type] = {"pretrain": PlainFile, "tag": TaggedFile, "span": AnswersFile}
NEEDED = {
    "pretrain": "plain text",
    "tag": "sentences with a label for each word",
    "span": "questions, texts and answers",
}
METRICS: dict[str, tuple[str, ...]] = {"pretrain": (), "tag": get_args(TagMetric), "span": get_args(SpanMetric)}
SHOWN = 300  # characters of a text that was wrong


def training_files(
    task: str,
    data: str | None,
    valid: str | None,
    columns: tuple[str, ...] | None,
    others: dict[str, object],
    metric: str | None,
    model: str | None,
) -> tuple[Any, Any]:
    """The files that the options name. Options of ``others`` tasks are refused, not passed over."""
    for name, value in others.items():
        if value is not None and value is not False:
            raise UserError(f"{name} means nothing to {task}; leave it out")
    if metric is not None and metric not in METRICS[task]:
        there = f"here it is one of {', '.join(METRICS[task])}" if METRICS[task] else "leave it out"
        raise UserError(f"--metric {metric} is one of another task; {there}")
    if model in MODELS:
        raise UserError(
            f"--model {model} writes text; {task} takes {'' if task == 'pretrain' else 'attentive or '}encoder"
        )
    found, kind = given_data(data, f"--data FILE: {NEEDED[task]}"), FILES[task]
    return kind(found, columns), None if valid is None else kind(valid, columns)


def _load(run: Path) -> Any:
    """A trained model, with a word on standard error when its training has not ended."""
    found, about = task_named(task_of(run)).load(run)
    say_unfinished(run, about)
    return found


def predict_command(
    run: Path,
    path: str | None,
    texts: Sequence[str],
    out: Path | None,
    as_json: bool,
    batch_tokens: int,
    best: int,
    threads: int | None,
) -> None:
    """Labels of words, answers, or what stands behind masks, in the order of the input."""
    set_up(threads)
    if out is not None and out.is_dir():
        raise UserError(f"--out is {out}, which is a folder; name a file")
    if batch_tokens < 1:
        raise UserError(f"--batch-tokens is {batch_tokens}; it must be at least 1")
    lines = Lines(path, texts)
    found = _load(run)
    reading: Iterator[tuple[list[Any], int]]
    say: Callable[[list[Any]], Iterator[str]]
    if isinstance(found, Tagger):
        reading, say = _sentences(lines), lambda some: _tag_lines(found, some, as_json, batch_tokens)
    elif isinstance(found, Answerer):
        reading, say = _questions(lines), lambda some: _answer_lines(found, some, as_json, batch_tokens)
    else:
        reading, say = lines.blocks(), lambda some: _filled_lines(found, some, as_json, max(best, 5 if as_json else 1))

    def said(block: list[Any], number: int) -> Iterator[str]:
        return say(block)

    write_predictions(lines, reading, said, out)


def _is_json(lines: Lines) -> bool:
    return lines.path is not None and lines.path.lower().endswith((".jsonl", ".ndjson"))


def _fields(line: str, number: int, names: Sequence[Sequence[str]]) -> list[Any]:
    """One field of a line of JSON by each list of names."""
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise UserError(f"line {number:,} is not JSON: {error}") from None
    there = found if isinstance(found, dict) else {}
    chosen = [next((name for name in some if name in there), None) for some in names]
    if None in chosen:
        expected = ", ".join(repr(some[0]) for some in names)
        raise UserError(
            f"line {number:,}: found the fields {', '.join(map(repr, there)) or 'none'}; expected {expected}"
        )
    return [there[name] for name in chosen]


def _sentences(lines: Lines) -> Iterator[tuple[list[tuple[str, ...]], int]]:
    """One sentence a line, words with blanks between them; or one word a line, in a file whose name says so."""
    ending = "" if lines.path is None else Path(lines.path).suffix.lower()
    waiting, number = list[str](), 0
    for block, size in lines.blocks():
        if ending in CONLL_ENDINGS and ending != ".txt":
            some: list[tuple[str, ...]] = []
            for line in block:
                if line.strip():
                    waiting.append(line.split("\t" if "\t" in line else None)[0].strip())
                elif waiting:
                    some.append(tuple(waiting))
                    waiting = []
            yield some, size
            continue
        found = []
        for line in block:
            number += 1
            words = _fields(line, number, (WORD_NAMES,))[0] if _is_json(lines) else line
            if isinstance(words, str):
                words = words.split()
            if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
                raise UserError(f"line {number:,}: expected words, as a list or a text with blanks between them")
            found.append(tuple(words))
        yield found, size
    if waiting:
        yield [tuple(waiting)], 0


def _tag_lines(tagger: Tagger, some: list[tuple[str, ...]], as_json: bool, batch_tokens: int) -> Iterator[str]:
    for one in tagger.predict(some, batch_tokens=batch_tokens):
        if as_json:
            data = {"words": one.words, "tags": one.tags, "probabilities": [round(p, 6) for p in one.probabilities]}
            yield json.dumps(data, ensure_ascii=False)
        else:
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(one.words, one.tags, strict=True))


def _questions(lines: Lines) -> Iterator[tuple[list[tuple[str, str]], int]]:
    number = 0
    for block, size in lines.blocks():
        found = []
        for line in block:
            number += 1
            if _is_json(lines):
                question, text = _fields(line, number, (QUESTION_NAMES, TEXT_NAMES))
                if not isinstance(question, str) or not isinstance(text, str):
                    raise UserError(f"line {number:,}: question and text are not both texts")
            else:
                question, tab, text = line.partition("\t")
                if not tab:
                    raise UserError(
                        f"line {number:,} has no tab; expected a question and a text with a tab between them"
                    )
            found.append((question, text))
        yield found, size


def _answer_lines(answerer: Answerer, some: list[tuple[str, str]], as_json: bool, batch_tokens: int) -> Iterator[str]:
    for (question, _), one in zip(some, answerer.predict(some, batch_tokens=batch_tokens), strict=True):
        if as_json:
            place = {"answer": one.answer, "start": one.start, "end": one.end, "probability": one.probability}
            yield json.dumps({"question": question, **place}, ensure_ascii=False)
        else:
            yield " ".join(one.answer.split())


def _filled_lines(reader: Reader, some: list[str], as_json: bool, best: int) -> Iterator[str]:
    for text, one in zip(some, reader.predict(some, best), strict=True):
        if as_json:
            masks = [[{"word": word, "probability": chance} for word, chance in mask] for mask in one.masks]
            yield json.dumps({"text": text, "filled": one.text, "masks": masks}, ensure_ascii=False)
        else:
            yield one.text.replace("\n", " ")


def evaluate_command(
    run: Path,
    data: str | None,
    columns: tuple[str, ...] | None,
    as_json: bool,
    threads: int | None,
    *,
    errors: int = 0,
    out: Path | None = None,
) -> None:
    """Every score of the run's task."""
    set_up(threads)
    task = task_of(run)
    given = given_data(data, f"--data FILE: {NEEDED[task]}")
    check_rows_wanted(errors, out)
    found = _load(run)
    if isinstance(found, Reader):
        _evaluate_reader(found, PlainFile(given, columns, found.config.paragraphs), as_json, errors, out)
        return
    measured: TagEvaluation | AnswerEvaluation
    rows: Any
    report: Report
    if isinstance(found, Tagger):
        rows, report = read_sentences(TaggedFile(given, columns or found.labels.columns))
    else:
        rows, report = read_asked(AnswersFile(given, columns))
    say_left_out(report)
    with predicting(len(rows)) as advance:
        evaluate: Any = evaluate_tags if isinstance(found, Tagger) else evaluate_answers
        measured = evaluate(found, rows, on_predicted=advance)
    write_rows(measured.rows(), out)
    if as_json:
        print_json(measured.to_json(errors))
    elif isinstance(measured, TagEvaluation):
        _print_tags(measured, found, errors)
    else:
        _print_answers(measured, errors)


def _evaluate_reader(reader: Reader, files: PlainFile, as_json: bool, errors: int, out: Path | None) -> None:
    if errors or out is not None:
        raise UserError("--errors and --out are for predictions; a pre-trained encoder is scored on hidden words")
    values, report = reader.evaluate(files)
    say_left_out(report)
    if as_json:
        print_json({"texts": report.pairs, **values})
        return
    _print_values({"": values}, "texts", {"": report.pairs})


def _print_values(rows: dict[str, dict[str, float]], unit: str, counts: dict[str, int]) -> None:
    table = plain_table("", *map(spaced, next(iter(rows.values()))), unit)
    for name, values in rows.items():
        table.add_row(name, *(f"{value:.2f}" for value in values.values()), f"{counts[name]:,}")
    console().print(table)


def _print_tags(found: TagEvaluation, tagger: Tagger, errors: int) -> None:
    rows, counts = {"all": found.values}, {"all": len(found.sentences)}
    if found.without is not None:
        rows["not in the training data"] = found.without
        counts["not in the training data"] = len(found.sentences) - (found.seen or 0)
    _print_values(rows, "sentences", counts)
    if found.seen:
        print(
            f"{found.seen:,} of {len(found.sentences):,} sentences stand in the training data: scores on them flatter"
        )
    if found.unseen:
        named = ", ".join(f"{name!r} ({count:,})" for name, count in list(found.unseen.items())[:10])
        total = sum(found.unseen.values())
        print(f"labels that training did not have, on {total:,} of {found.words:,} words, counted as wrong: {named}")
    if tagger.spans and "span_f1" not in found.values:
        print("not all of these labels mark spans: words are counted, and no spans")
    if found.too_long:
        print(f"{found.too_long:,} sentences have more than {tagger.longest:,} tokens: they were read in stretches")
    print_classes(found.table, "kind" if "span_f1" in found.values else "label", "there")
    for number, error in enumerate(found.worst(errors), start=1):
        print(f"\n{number}.")
        for word, right, said in zip(error["words"], error["tags"], error["prediction"], strict=True):
            print(f"   {word}\t{said}" + ("" if right == said else f"\tright is {right}"))


def _print_answers(found: AnswerEvaluation, errors: int) -> None:
    total = len(found.asked)
    rows, counts = {"all": found.values}, {"all": total}
    for name, values, count in (
        ("with an answer", found.answered, sum(bool(one.answers) for one in found.asked)),
        ("to texts that are not in the training data", found.without, total - (found.seen or 0)),
    ):
        if values is not None:
            rows[name], counts[name] = values, count
    _print_values(rows, "questions", counts)
    if found.seen:
        print(f"{found.seen:,} of {total:,} questions are to texts of the training data: scores on them flatter")
    if found.in_stretches:
        print(f"{found.in_stretches:,} texts are longer than the model reads at once: they were read in stretches")
    for number, error in enumerate(found.worst(errors), start=1):
        right = ", ".join(map(repr, error["answers"])) or "that there is none"
        print(f"\n{number}. {error['question']}")
        print(f"   {error['prediction']!r}, {error['probability']:.1%} sure; right is {right}")
        print(f"   {' '.join(error['text'].split())[:SHOWN]}")
