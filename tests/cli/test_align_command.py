"""The command `align`: pairs in, a line of links each out, and what it says about them."""

import gzip
import json
import signal
import subprocess
import sys

import pytest

import invoke
import runs
from aligned_models import backwards, reversal  # noqa: F401 - pytest finds the fixtures here
from sightline.align.links import pharaoh
from sightline.outputs.translation import TranslationOutput
from signals import start_interruptible

READ = ("--use", "decoder.attention:mean:0")  # where choosing is not the point


@pytest.fixture(scope="module")
def run(tmp_path_factory, backwards):
    """The model that writes backwards, as a run folder."""
    return runs.saved(backwards, tmp_path_factory.mktemp("runs") / "run", weights="for tests", sealed=True)


@pytest.fixture
def pairs(reversal):
    sources, targets, _ = reversal
    return list(zip(sources, targets, strict=True))


@pytest.fixture
def links(reversal):
    return [pharaoh(gold.sure) for gold in reversal[2]]


@pytest.fixture
def command(run, tmp_path, pairs):
    """`sightline align RUN ...` in a folder with pairs.tsv."""
    (tmp_path / "pairs.tsv").write_text(table(pairs))

    def call(*arguments):
        return invoke.run("align", run, *arguments, cwd=tmp_path)

    return call


def table(pairs):
    return "source\ttarget\n" + "".join(f"{source}\t{target}\n" for source, target in pairs)


def test_lines_are_the_links_of_the_pairs_in_order(command, links):
    done = command("--data", "pairs.tsv")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == links
    assert "decoder.attention:mean:0: the best agreement with hiding source words" in done.stderr
    assert "the source is written without spaces" in done.stderr
    assert f"{len(links)} pairs" in done.stderr


def test_every_row_has_its_line_whatever_it_holds(command, pairs, links, tmp_path, monkeypatch):
    rows = [*pairs[:3], ("", "一"), ("一", ""), ("", ""), *pairs[3:]] * 5  # enough that one bad row is few
    (tmp_path / "holes.tsv").write_bytes(
        table(rows).encode() + b"\xff\xfe\tx\n" + table(pairs[:1]).split("\n")[1].encode()
    )
    from sightline.cli import align as aligning

    monkeypatch.setattr(aligning, "BLOCK", 7)
    done = command("--data", "holes.tsv", *READ)
    assert done.returncode == 0, done.stderr
    expected = [*links[:3], "", "", "", *links[3:]] * 5 + ["", links[0]]
    assert done.stdout.split("\n") == [*expected, ""]
    assert f"1 rows cannot be read and have no links: holes.tsv:{len(rows) + 2}: bad UTF-8" in done.stderr
    worse = table(pairs[:2]).encode() + b"\xff\tx\n"
    (tmp_path / "worse.tsv").write_bytes(worse)
    done = command("--data", "worse.tsv", "--out", "out.txt", *READ)
    assert done.returncode == 2
    assert "1 of 3 rows are bad (worse.tsv:4: bad UTF-8" in done.stderr
    assert not (tmp_path / "out.txt").exists()


def test_pairs_that_are_too_long_are_named(command, pairs, links, monkeypatch):
    from sightline.align import aligning

    monkeypatch.setattr(aligning, "LONGEST", 4)
    done = command("--data", "pairs.tsv", *READ, "--format", "jsonl")
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    long = [number for number, (source, _) in enumerate(pairs) if len(source) > 4]
    assert [number for number, row in enumerate(rows) if "problem" in row] == long
    assert f"{len(long)} rows have more than" in done.stderr
    assert f"pairs.tsv:{long[0] + 2}" in done.stderr


def test_both_directions_in_every_form(command, run, tmp_path, pairs, links):
    (tmp_path / "a.txt").write_text("".join(f"{source}\n" for source, _ in pairs))
    (tmp_path / "b.txt").write_text("".join(f"{target}\n" for _, target in pairs))
    done = command(
        *("--source", "a.txt", "--target", "b.txt", "--reverse", run, "--symmetrise", "intersection"),
        *("--format", "jsonl", "--out", "new/out.jsonl", "--report", "report.json"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out.jsonl"]
    rows = [json.loads(line) for line in (tmp_path / "new" / "out.jsonl").read_text().splitlines()]
    for row, (source, target), expected in zip(rows, pairs, links, strict=True):
        assert (row["source"], row["target"]) == (source, target)
        assert (row["source_words"], row["target_words"]) == (list(source), list(target))
        assert " ".join(f"{a}-{b}" for a, b in row["links"]) == expected
        assert len(row["weights"]) == len(row["reverse_weights"]) == len(row["links"])
        assert all(0.3 < weight <= 1 for weight in row["weights"] + row["reverse_weights"])
        place = {"layer": "decoder.attention", "head": "mean", "shift": 0}
        assert row["choice"]["forward"] == row["choice"]["reverse"] == place
        assert row["choice"]["by"] == "agreement"
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["pairs"] == len(pairs)
    assert report["links"] == sum(len(row["links"]) for row in rows)
    assert report["agreement"] == pytest.approx(1.0)
    assert report["symmetrise"] == "intersection"
    assert "both directions agree with F1 1.000" in done.stderr


@pytest.mark.parametrize("packed", [False, True])
def test_gold_chooses_and_scores(command, tmp_path, links, pairs, packed):
    text = "\n".join([links[0].replace("-", "p"), "", *links[2:24]])
    gold = tmp_path / ("gold.txt.gz" if packed else "gold.txt")
    gold.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    done = command("--data", "pairs.tsv", "--gold", gold.name, "--report", "report.json")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == links
    assert "the lowest error rate on 20 gold pairs, 0.0%" in done.stderr
    assert (
        "error rate 0.0%, precision 100.0%, recall 100.0%, F1 100.0% on 3 gold pairs, which did not choose"
        in done.stderr
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert (report["gold"]["pairs"], report["gold"]["error_rate"], report["choice"]["by"]) == (3, 0.0, "gold")


def test_gold_may_count_words_from_one(command, tmp_path, links):
    """As some collections of gold alignments do; the links that are written count from 0."""
    ones = [" ".join("-".join(str(int(one) + 1) for one in link.split("-")) for link in line.split()) for line in links]
    (tmp_path / "gold.txt").write_text("".join(f"{line}\n" for line in ones))
    done = command("--data", "pairs.tsv", "--gold", "gold.txt", "--gold-base", "1")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == links
    assert "error rate 0.0%" in done.stderr
    refused = command("--data", "pairs.tsv", "--gold", "gold.txt")
    assert "(--gold-base 1 if the words of the gold are counted from 1)" in refused.stderr
    (tmp_path / "gold.txt").write_text("".join(f"{line}\n" for line in links))
    refused = command("--data", "pairs.tsv", "--gold", "gold.txt", "--gold-base", "1")
    assert "has links of word 0, so its words are not counted from 1; leave out --gold-base" in refused.stderr
    refused = command("--data", "pairs.tsv", "--gold", "gold.txt", "--gold-base", "2")
    assert "--gold-base is 2; words are counted from 0 or from 1" in refused.stderr


def test_gold_may_bring_its_own_pairs(command, tmp_path, links, pairs):
    rows = [
        {"source": "一二", "target": "二一", "links": "0-1 1p0"},
        {"source": "三一二", "target": "二一三", "links": [[0, 2], [1, 1]], "possible": [[2, 0]]},
    ]
    (tmp_path / "gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = command("--data", "pairs.tsv", "--gold", "gold.jsonl")
    assert done.stdout.splitlines() == links
    assert "on 2 gold pairs, the same that chose" in done.stderr
    # What was written can be read as gold.
    command("--data", "pairs.tsv", "--format", "jsonl", "--out", "own.jsonl", *READ)
    done = command("--data", "pairs.tsv", "--gold", "own.jsonl", *READ)
    assert "error rate 0.0%" in done.stderr
    assert f"on {len(pairs)} gold pairs, which did not choose" in done.stderr


@pytest.mark.parametrize(
    ("content", "name", "said"),
    [
        ("0-0\n0-9\n", "gold.txt", "gold.txt:2: the link 0-9 has target word 9"),
        ("1:1\n", "gold.txt", "gold.txt:1: found '1:1'; expected links such as 0-0 (sure)"),
        ("0-0\n" * 40, "gold.txt", "40 lines and the data 24 rows"),
        ("\n\n", "gold.txt", "no gold links"),
        (b"\xff0-0\n", "gold.txt", "bad UTF-8: found byte 0xff"),
        (b"\x1f\x8bxx", "gold.txt.gz", "gzip file cut short"),
        ("{}\n", "gold.jsonl", "gold.jsonl:1: found no pair"),
        ("[\n", "gold.jsonl", "gold.jsonl:1: bad JSON"),
        ('{"source": "一", "target": "二", "links": [[0, -1]]}\n', "gold.jsonl", "no pairs of numbers"),
        ("", "gold.jsonl", "no gold pairs"),
    ],
)
def test_wrong_gold_is_named(command, tmp_path, content, name, said):
    (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    done = command("--data", "pairs.tsv", "--gold", name)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_use_is_named(command, run, tmp_path):
    for arguments, said in [
        (["--gold", "none.txt"], "there is no such file"),
        (["--use", "decoder"], "NAME:HEAD:SHIFT"),
        (["--use", "decoder.0:mean:0"], "there is decoder.attention"),
        (["--reverse-use", "decoder.attention:mean:0"], "give both or neither"),
        (["--threshold", "1"], "--threshold is 1.0"),
        (["--out", "."], "is a folder"),
        (["--reverse", "nothing"], "nothing"),
    ]:
        done = command("--data", "pairs.tsv", *arguments)
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
    assert command().returncode == 2
    assert "there is no such file" in command("--data", "none.tsv").stderr


def test_a_run_of_the_same_direction_is_noticed(command, run, tmp_path, monkeypatch):
    def sure_of(source):
        """A model that is surer of pairs with this source than of others."""
        return lambda self, run, pairs: 2.0 if pairs[0].x == source else 9.0

    monkeypatch.setattr(TranslationOutput, "perplexity", sure_of("一二三"))
    (tmp_path / "one.tsv").write_text(table([("一二三", "三二一")]))
    done = command("--data", "one.tsv", "--reverse", run)
    assert "trained the other way round" in done.stderr
    monkeypatch.setattr(TranslationOutput, "perplexity", sure_of("三二一"))
    assert "trained the other way round" not in command("--data", "one.tsv", "--reverse", run).stderr


@pytest.mark.slow
def test_a_pipe_is_aligned_and_ctrl_c_leaves_nothing(run, tmp_path, pairs, links):
    """In a process of its own: standard input cannot be read twice, and what is half-written is taken away."""
    line = [sys.executable, "-m", "sightline", "align", str(run)]
    done = subprocess.run([*line, "--data", "-"], input=table(pairs), capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.splitlines()) == (0, links), done.stderr
    (tmp_path / "many.tsv").write_text(table(pairs * 10_000))
    process = start_interruptible([*line, "--data", "many.tsv", "--out", "out/links.txt"], cwd=tmp_path)
    for text in process.stderr:
        if "reading" in text:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert not list(tmp_path.glob("out/*"))


def test_what_is_read_is_not_written_over(command, tmp_path, pairs):
    for options, words in (
        (["--out", "pairs.tsv"], "one of the files that are read"),
        (["--out", "x", "--report", "x"], "both x"),
    ):
        done = command("--data", "pairs.tsv", *options)
        assert done.returncode == 2
        assert words in done.stderr
    assert (tmp_path / "pairs.tsv").read_text() == table(pairs)
