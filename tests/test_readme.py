"""The README is true: every Python example and every command in it runs, in both languages and in CONTRIBUTING."""

import itertools
import json
import re
import shlex
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

pytestmark = pytest.mark.unchecked_shapes

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "README.zh-CN.md", "CONTRIBUTING.md"]


def blocks(page, language):
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.DOTALL | re.MULTILINE)


QUICK = {
    "demo": ["--steps", "2", "--pairs", "1000"],
    "train": ["--steps", "2"],
    "bench": ["--seconds", "0.05"],
}


@pytest.mark.slow
def test_the_readme_runs_from_top_to_bottom(tmp_path):
    """Every command in its order, on made files with the names it uses, then every Python example beside them."""
    words = ["".join(letters) for letters in itertools.product("abcde", repeat=3)]
    rows = "".join(f"{word}\t{word[::-1]}\n" for word in words)
    (tmp_path / "pairs.tsv").write_text(f"source\ttarget\n{rows}")
    (tmp_path / "test.tsv").write_text("source\ttarget\nhab\tbah\ncab h\th bac\n")
    (tmp_path / "more.tsv").write_text("source\ttarget\n" + "".join(f"{a}{b}\t{b}{a}\n" for a in "abcde" for b in "fg"))
    (tmp_path / "sentences.txt").write_text("abc\n\ncab\n")
    reviews = [f"{'good' if i % 2 else 'bad'} film {i}" for i in range(60)]
    table = "text\tlabel\n" + "".join(f"{text}\t{text.split()[0]}\n" for text in reviews)
    (tmp_path / "reviews.tsv").write_text(table)
    (tmp_path / "reviews-test.tsv").write_text("text\tlabel\na good film\tgood\na bad film\tbad\n")
    (tmp_path / "plain.txt").write_text(
        "".join(f"{text}. It was seen by {len(text)} people.\n" for text in reviews * 3)
    )
    tagged = "".join(f"Ann{i}\tB-PER\nsleeps\tO\n\n" for i in range(60))
    (tmp_path / "names.conll").write_text(tagged)
    asked = [{"question": "who?", "text": f"Ann{i} sleeps.", "answer": f"Ann{i}"} for i in range(60)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    save_folder(tmp_path / "models" / "bert", "vector")
    make_images(tmp_path)
    lines = [line.split("#")[0].strip() for block in blocks("README.md", "bash") for line in block.splitlines()]
    for command in [line for line in lines if line.startswith("sightline")]:
        # The demo at full length has a test of its own; here it is the command that counts.
        words = shlex.split(command)[1:]
        arguments = [*words, *QUICK.get(words[0], [])]
        if words[0] == "serve":
            assert_it_serves([sys.executable, "-m", "sightline", *arguments], tmp_path)
            continue
        done = run(*arguments, cwd=tmp_path)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        if "sentences.txt" in command:
            assert done.stdout.count("\n") == 3
    # Each by itself, as a reader would try it, but in one process: most of their time is the import of torch.
    apart = [
        f"exec(compile({code!r}, 'README', 'exec'), {{'__name__': '__main__'}})"
        for code in blocks("README.md", "python")
    ]
    line = [sys.executable, "-W", "error", "-c", "\n".join(apart)]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


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


def test_files_that_the_pages_name_exist():
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for name in re.findall(r"\]\(([^):]+)\)", text):
            assert (ROOT / name).exists(), f"{page} links to {name}"


def test_both_languages_have_the_same_examples():
    """Comments are translated; the code is the same."""
    for language in ("python", "bash"):
        english, chinese = ([re.sub(r"\s*#.*", "", block) for block in blocks(page, language)] for page in PAGES[:2])
        assert english == chinese
