"""The documents are true: every Python example and command of README, docs and CONTRIBUTING runs, in both languages."""

import itertools
import json
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foreign_models import save_folder
from invoke import run
from sightline.data.sound import wav_bytes
from sightline.synthetic.morse import RATE, made_morse
from sightline.tasks.registry import BUILT_IN

pytestmark = pytest.mark.unchecked_shapes

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "sightline"
PAGES = ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"]
# In this order, in one folder: later pages use the runs of earlier ones.
DOCS = ["training", "predicting", "evaluating", "viewing", "exporting", "serving", "tasks", "ask", "python"]
DOCS = [f"docs/{name}.md" for name in DOCS]
EVERY = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


QUICK = {
    "demo": ["--steps", "2", "--pairs", "1000"],
    "train": ["--steps", "2"],
    "bench": ["--seconds", "0.05"],
}


def commands(block):
    """The commands of a block, each with its here-document."""
    lines = iter(block.splitlines())
    for line in lines:
        end = re.search(r"<<'(\w+)'", line)
        body = [*itertools.takewhile(lambda one, end=end: one != end[1], lines), end[1]] if end else []
        yield "\n".join([line, *body])


def run_page(page, folder):
    """Every command of a page in its order, then every Python example beside the files they made."""
    for command in [one for block in blocks(page, "bash") for one in commands(block) if one.strip()]:
        arguments = shlex.split(command, comments=True)
        if arguments[0] == "make":  # its targets have a test of their own, as has the demo at full length
            continue
        if arguments[0] != "sightline":
            environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            shell = subprocess.run(
                ["bash", "-ec", command], capture_output=True, text=True, cwd=folder, env=environment
            )
            assert shell.returncode == 0, f"{page}: {command}: {shell.stderr}"
            continue
        arguments = [
            *arguments[1:],
            *QUICK.get(arguments[1], []),
            *(["--verify", "2"] if "--verify" in arguments else []),
        ]
        if arguments[0] == "serve":
            assert_it_serves([sys.executable, "-m", "sightline", *arguments], folder)
            continue
        if arguments[0] in ("train", "export"):  # a page begins without the runs that it makes
            shutil.rmtree(folder / arguments[arguments.index("--out") + 1], ignore_errors=True)
        done = run(*arguments, cwd=folder)
        assert done.returncode == 0, f"{page}: {command}: {done.stderr}"
        if "sentences.txt" in command and "--out" not in command:
            assert done.stdout.count("\n") == 3
    # Each by itself, as a reader would try it, but in one process: most of their time is the import of torch.
    apart = [
        f"exec(compile({code!r}, {page!r}, 'exec'), {{'__name__': '__main__'}})" for code in blocks(page, "python")
    ]
    line = [sys.executable, "-W", "error", "-c", "\n".join(apart)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, f"{page}: {done.stderr}"


def test_the_readme_runs_from_top_to_bottom(tmp_path):
    """In an empty folder: the README makes every file that it uses."""
    run_page("README.md", tmp_path)


@pytest.mark.long
def test_the_docs_run_from_top_to_bottom(tmp_path):
    """On made files with the names that the pages use."""
    make_texts(tmp_path)
    make_images(tmp_path)
    make_recordings(tmp_path)
    make_arrays(tmp_path)
    make_tables(tmp_path)
    save_folder(tmp_path / "models" / "bert", "vector")
    for page in DOCS:
        run_page(page, tmp_path)


def test_commands_of_the_table_of_tasks_are_those_of_its_page():
    """So that they run as well."""
    named = re.findall(r"\| `(sightline [^`]+)`", (ROOT / "README.md").read_text(encoding="utf-8"))
    there = [line for block in blocks("docs/tasks.md", "bash") for line in commands(block)]
    assert len(named) == len(BUILT_IN)
    assert set(named) <= {line.split("  #")[0].strip() for line in there}


def make_texts(folder):
    words = ["".join(letters) for letters in itertools.product("abcde", repeat=3)]
    pairs = "source\ttarget\n" + "".join(f"{word}\t{word[::-1]}\n" for word in words)
    reviews = [f"{'good' if i % 2 else 'bad'} film {i}" for i in range(60)]
    labelled = "".join(f"{text}\t{text.split()[0]}\n" for text in reviews)
    same = "".join(
        f"{text}\t{text.split()[i % 2]} film\t{'yes' if i % 3 else 'no'}\n" for i, text in enumerate(reviews)
    )
    asked = [{"question": "who?", "text": f"Ann{i} sleeps.", "answer": f"Ann{i}"} for i in range(60)]
    files = {
        "pairs.tsv": pairs,
        "pairs-test.tsv": "source\ttarget\nhab\tbah\ncab h\th bac\n",
        "more.tsv": "source\ttarget\n" + "".join(f"{a}{b}\t{b}{a}\n" for a in "abcde" for b in "fg"),
        "articles.tsv": pairs,
        "articles-test.tsv": "source\ttarget\nhab\tbah\ncab h\th bac\n",
        "sentences.txt": "abc\n\ncab\n",
        "reviews.tsv": f"text\tlabel\n{labelled}",
        "reviews-test.tsv": "text\tlabel\na good film\tgood\na bad film\tbad\n",
        "pairs-of-texts.tsv": f"text\ttext2\tlabel\n{same}",
        "plain.txt": "".join(f"{text}. It was seen by {len(text)} people.\n" for text in reviews * 3),
        "names.conll": "".join(f"Ann{i}\tB-PER\nsleeps\tO\n\n" for i in range(60)),
        "questions.jsonl": "".join(json.dumps(row) + "\n" for row in asked),
    }
    for name, text in files.items():
        (folder / name).write_text(text)


def make_images(folder):
    """Coloured squares with captions, masks and labels."""
    captions, masks = ["image\tcaption\n"], ["image\tmask\n"]
    for number in range(24):
        colour = ("red", "blue")[number % 2]
        pixels = np.full((64, 64, 3), 255, dtype=np.uint8)
        corner = 16 * (number % 3)
        pixels[corner : corner + 16, 16:32] = (255, 0, 0) if colour == "red" else (0, 0, 255)
        mask = (pixels.min(axis=2) < 255).astype(np.uint8) * 255
        (folder / "flowers" / colour).mkdir(parents=True, exist_ok=True)
        pixels[0, 0] = number  # no two are the same
        Image.fromarray(pixels).save(folder / "flowers" / colour / f"{number}.png")
        Image.fromarray(mask).save(folder / f"mask{number}.png")
        captions.append(f"flowers/{colour}/{number}.png\ta {colour} square\n")
        masks.append(f"flowers/{colour}/{number}.png\tmask{number}.png\n")
    (folder / "photos.tsv").write_text("".join(captions))
    (folder / "photos-test.tsv").write_text("".join(captions[:3]))
    (folder / "cracks.tsv").write_text("".join(masks))
    Image.fromarray(pixels).save(folder / "dog.png")


def make_recordings(folder):
    """Morse code."""
    (folder / "clips").mkdir()
    rows = ["audio\ttext\n"]
    for number, sent in enumerate(made_morse(12, most_words=1), 1):
        (folder / "clips" / f"{number:04}.wav").write_bytes(wav_bytes(sent.samples, RATE))
        rows.append(f"clips/{number:04}.wav\t{sent.text}\n")
    (folder / "recordings.tsv").write_text("".join(rows))


def make_arrays(folder):
    """Walks, and where they are at every second step."""
    rows = ["features\ttarget\n"]
    for name in ("walks", "steps"):
        (folder / name).mkdir()
    for number in range(1, 13):
        walk = np.cumsum(np.random.default_rng(number).normal(size=(12 + number, 3)), axis=0)
        np.save(folder / "walks" / f"{number:04}.npy", walk)
        np.save(folder / "steps" / f"{number:04}.npy", walk[::2, :2])
        rows.append(f"walks/{number:04}.npy\tsteps/{number:04}.npy\n")
    (folder / "sensors.tsv").write_text("".join(rows))


def make_tables(folder):
    """Tables of medals, and questions about them."""
    (folder / "tables").mkdir()
    questions = []
    for number in range(20):
        nations = [("Norway", 14 + number), ("Germany", 10), ("Canada", 11), ("Japan", number % 4)]
        lines = ["Nation,Gold", *(f"{nation},{gold}" for nation, gold in nations)]
        (folder / "tables" / f"{number}.csv").write_text("\n".join(lines) + "\n")
        questions.append(f"which nation won the most gold?\ttables/{number}.csv\tNorway\n")
        questions.append(f"how many nations won more than 10 gold?\ttables/{number}.csv\t2\n")
    shutil.copy(folder / "tables" / "0.csv", folder / "results.csv")
    for name, lines in (("questions", questions), ("test", questions[:4])):
        (folder / f"{name}.tsv").write_text("question\ttable\tanswer\n" + "".join(lines))


def assert_it_serves(line, folder):
    """It says where, and leaves when told to."""
    server = subprocess.Popen(
        [*line, "--port", "0"], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    try:
        said = next(one for one in server.stdout if "http://" in one)
        address = re.search(r"http://\S+?:\d+", said).group()
        with urllib.request.urlopen(f"{address}/health", timeout=20) as answer:
            assert answer.status == 200
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=40)
    assert server.returncode == 0


def test_contributing_runs(tmp_path):
    """In one process and in order: the second example uses what the first one made."""
    code = "\n".join(blocks("CONTRIBUTING.md", "python"))
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_make_has_what_the_pages_name():
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    for page in PAGES:
        named = re.findall(r"(?:`|^)make ([a-z]+)", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE)
        assert named
        assert set(named) <= set(targets), page


@pytest.mark.parametrize("page", EVERY)
def test_links_of_documents_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for name, heading in re.findall(r"\]\(([^):#]*)(?:#([^)]*))?\)", text):
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), f"{page} links to {name}"
        if heading:
            headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w -]", "", one.lower()).replace(" ", "-") for one in headings}
            assert heading in anchors, f"{page} links to {name}#{heading}"


@pytest.mark.parametrize("page", EVERY)
def test_files_that_documents_name_exist(page):
    """Paths of the source, of tests, benchmarks and examples, and modules; a changelog also names what is gone."""
    text = (ROOT / page).read_text(encoding="utf-8")
    folders = "|".join(
        ["src", "tests", "benchmarks", "examples", "docs", *sorted(one.name for one in PACKAGE.iterdir())]
    )
    for name in re.findall(rf"`((?:{folders})/[\w/.-]*)`", text):
        assert (ROOT / name).exists() or (PACKAGE / name).exists(), f"{page} names {name}"
    for name in re.findall(r"`(sightline(?:\.\w+)+)", text) if page != "CHANGELOG.md" else []:
        pkgutil.resolve_name(name)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_both_languages_have_the_same_examples():
    """Comments are translated; the code is the same."""
    for language in ("python", "bash"):
        english, chinese = ([re.sub(r"\s*#.*", "", block) for block in blocks(page, language)] for page in PAGES[:2])
        assert english == chinese
