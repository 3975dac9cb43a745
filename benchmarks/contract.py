"""What a change of the design must not lose, and what it is to gain: size, names, walks, losses and memory.

    python benchmarks/contract.py --out before.json size names walk memory
    python benchmarks/contract.py --out before.json --data FOLDER loss
    python benchmarks/contract.py --out after.json --src OTHER/src size names walk

size    files and lines; lines of code are those without blank lines, comments and docstrings
names   where the names of tasks stand as strings, tests of the kind of a run, import cycles, and how many definitions
        do the same job
walk    the modules, functions and calls between modules of one tiny run of a command, after imports
loss    the training loss of 200 steps and the validation scores of five tasks; the same seed gives the same figures
memory  the peak of anonymous memory until the data is prepared, and how often the data file is opened meanwhile (Linux)

Every command runs in a process of its own with one thread. FOLDER holds the data sets translate-multi30k-en-de,
classify-sst2, caption-flickr8k and grid-crackforest, each with train.tsv (or train.tsv.gz) and valid.tsv. FILE.json is
written after every figure, and figures that are there from an earlier call stay unless they are measured again.
"""

import argparse
import ast
import io
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

Figures = Iterator[tuple[str, Any]]
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
LAYOUT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}

TASKS = {"translate", "summarise", "classify", "classify_images", "tag", "span", "pretrain", "caption", "grid"}
KINDS = {
    *("Translator", "Classifier", "ImageClassifier", "Captioner", "Tagger", "Answerer", "Reader", "Gridder"),
    *("Run", "Predictor"),
}
VERBS = ("cli", "commands", "serve", "api", "tasks")  # where the kind of a run must not matter

# Jobs that several definitions do, by the dotted names of these below the package. Each pattern takes the whole name:
# a function inside another, or a method of a class that is counted already, does not count again.
JOBS = {
    "train orchestration": r"tasks\.\w+\.train(_(?!together)\w+)?",
    "build model, prepare new": r"tasks\.\w+\.((\w+\.)?(build_model|_prepare_new|new_model|building)|Course\.build)",
    "dry-run trial": r"tasks\.\w+\.(\w+_trial|trial|timed_validation|_validation_seconds)",
    "task factory": r"tasks\.table\._\w+",
    "prepare data": r"tasks\.\w+\.((?!Course\.)(\w+\.)?(prepare(_\w+)?|preparation)|\w*Preparation)",
    "prepared data": r"(data|tasks)\.\w+\.Prepared\w*",
    "reopen": r"tasks\.\w+\.(\w+_before|(\w+\.)?reopen|read_valid)",
    "lesson": r"tasks\.\w+\.\w*Lesson",
    "save, load": r"tasks\.\w+\.((save|load)_(?!engine|encoder)\w+|Run\.(save|load))",
    "evaluation": r"(tasks|outputs|metrics)\.\w+\.(\w*Evaluation|evaluate(_\w+)?)",
    "comparison": r"(tasks|outputs|metrics)\.(?!exporting\.)\w+\.(\w*Comparison|compare(_\w+)?)",
    "commands": r"(commands|cli)\.((?!images\.)\w+\.((predict|evaluate|compare)_command|load_run|_load|training_files|"
    r"check_train_options|\w*_eye)|gridding\.view_command)",
    "dispatch": r"cli\.(using|training)\._\w+|api\._\w+|serve\.kinds\.[a-z]\w*",
    "file, row, report, checked, read": r"(data|inputs|outputs|tasks)\.(?!(image_)?tables\.|spool\.|shards\.)\w+\."
    r"(\w+Files?|(\w*[a-z])?Row|\w+Report|Checked[A-Z]\w*)|(data|inputs)\.\w+\.read_(rows|labelled|tagged|answers|plain)",
    "configuration": r"tasks\.\w+\.(?!Search)\w+Config",
}

# The same jobs under the contract of tasks: what is written once, and what each input, output and configuration adds.
OWN = r"(inputs|outputs)\.\w+\.\w+\."
JOBS_OF_THE_CONTRACT = {
    "train orchestration": r"tasks\.train\.(train_task|train_together|plan|started|untrained|finish)",
    "build model, prepare new": r"tasks\.train\.build(ing)?|tasks\.configs\.\w+\.\w+\.build",
    "dry-run trial": r"tasks\.dry_run\.\w+",
    "task factory": r"tasks\.task\.(Task|Variant)",
    "prepare data": r"tasks\.prepare\.(?!Prepared|Rows|Row|Setting|Vocab|reopened|read_valid)\w+|"
    + OWN
    + r"(fit|prepare|store)",
    "prepared data": r"tasks\.prepare\.(Prepared|Rows|Setting|VocabularyTexts)",
    "reopen": r"tasks\.prepare\.(reopened|read_valid)|" + OWN + r"(open_valid|reopen\w*)",
    "lesson": r"tasks\.(train\.TaskLesson|prepare\.RowBatches)|" + OWN + r"(batches|loss|collate)",
    "save, load": r"tasks\.run\.Run\.(save|load)|tasks\.loading\.\w+|" + OWN + r"(save|load)",
    "evaluation": r"tasks\.evaluate\.(?!Comparison|compare)\w+|" + OWN + r"(statistics|validate|evaluat\w+)",
    "comparison": r"tasks\.evaluate\.(Comparison|compare)|" + OWN + r"compar\w+",
    "commands": r"cli\.(predict|evaluate|compare|view)\.\w+",
    "dispatch": r"tasks\.registry\.\w+",
    "file, row, report, checked, read": r"data\.\w+\.(\w*Report|Checked|\w+_cells|_?answers\w*)|" + OWN + r"read",
    "configuration": r"tasks\.configs\.\w+\.(\w+Config|LabelChoices)",
}


class Options(NamedTuple):
    """What was asked for."""

    source: Path
    data: Path | None
    tasks: list[str]

    @property
    def package(self) -> Path:
        return self.source / "sightline"

    def wants(self, task: str) -> bool:
        return not self.tasks or task in self.tasks


def parsed(package: Path) -> Iterator[tuple[str, ast.Module]]:
    """Every file of the package: its path below the package, and its syntax tree."""
    for path in sorted(package.rglob("*.py")):
        yield path.relative_to(package).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


# Size


def lines_of_code(text: str) -> int:
    """The lines that hold a token of code; a docstring is not code, any other string is."""
    code: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in LAYOUT:
            code.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | Definition) and ast.get_docstring(node, clean=False) is not None:
            code.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(code)


def size(options: Options) -> Figures:
    """Files, lines and lines of code, of all and of each package."""
    texts = {path.relative_to(options.package): path.read_text("utf-8") for path in options.package.rglob("*.py")}
    code = {path: lines_of_code(text) for path, text in texts.items()}
    yield "files", len(texts)
    yield "lines", sum(text.count("\n") for text in texts.values())
    yield "code", sum(code.values())
    packages: Counter[str] = Counter()
    for path, count in code.items():
        packages[path.parts[0] if len(path.parts) > 1 else "(top)"] += count
    yield "code_by_package", dict(sorted(packages.items()))


# Names


def task_literals(tree: ast.Module) -> list[int]:
    """The lines of strings that are the name of a task, a line for each string; pieces of f-strings are none."""
    pieces = {id(piece) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for piece in node.values}
    strings = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in pieces)
    return [node.lineno for node in strings if isinstance(node.value, str) and node.value in TASKS]


def kind_tests(tree: ast.Module) -> int:
    """Calls of isinstance that ask for a kind of run, by its name or by a constant of the module that holds it."""
    named = set(KINDS)
    for node in tree.body:
        if isinstance(node, ast.Assign) and _names(node.value) & KINDS:
            named |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) == 2)
    return sum(ast.unparse(call.func) == "isinstance" and bool(_names(call.args[1]) & named) for call in calls)


def _names(node: ast.AST) -> set[str]:
    """The names in an expression, the last part of dotted ones."""
    found = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    return found | {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}


class Imports(ast.NodeVisitor):
    """The modules of the package that a module imports, at its top or in a function, but not for type checkers."""

    def __init__(self, package: str, modules: set[str]) -> None:
        self.package, self.modules = package, modules
        self.imported: set[str] = set()
        self.lazy = self.depth = 0

    def visit_If(self, node: ast.If) -> None:
        """Leave out what stands under TYPE_CHECKING."""
        for child in node.orelse if "TYPE_CHECKING" in _names(node.test) else [*node.body, *node.orelse]:
            self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Import(self, node: ast.Import) -> None:
        self._add([alias.name for alias in node.names])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        base = node.module or ""
        if node.level:
            above = self.package.split(".")[: len(self.package.split(".")) - node.level + 1]
            base = ".".join([*above, *filter(None, [node.module])])
        self._add([f"{base}.{alias.name}" for alias in node.names])

    def _add(self, names: list[str]) -> None:
        """A name is a module, or stands in one."""
        known = {name if name in self.modules else name.rpartition(".")[0] for name in names} & self.modules
        self.imported |= known
        self.lazy += bool(known and self.depth)


def import_graph(package: Path) -> tuple[dict[str, set[str]], int]:
    """What each module imports, lazy imports too, and how many statements are lazy."""
    trees: dict[str, tuple[bool, ast.Module]] = {}
    for path, tree in parsed(package):
        name = ".".join([package.name, *path.removesuffix(".py").split("/")])
        trees[name.removesuffix(".__init__")] = (name.endswith(".__init__"), tree)
    graph, lazy = {}, 0
    for name, (is_package, tree) in trees.items():
        imports = Imports(name if is_package else name.rpartition(".")[0], set(trees))
        imports.visit(tree)
        graph[name], lazy = imports.imported - {name}, lazy + imports.lazy
    return graph, lazy


def import_cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that each reach all others of the group, the largest first."""
    reached: dict[str, set[str]] = {}
    for name in graph:
        seen: set[str] = set()
        ahead = list(graph[name])
        while ahead:
            if (module := ahead.pop()) not in seen:
                seen.add(module)
                ahead.extend(graph[module])
        reached[name] = seen
    groups = {tuple(sorted(m for m in reached[name] if name in reached[m])) for name in graph if name in reached[name]}
    return [list(group) for group in sorted(groups, key=lambda group: (-len(group), group)) if len(group) > 1]


def definitions(package: Path) -> Iterator[tuple[str, int]]:
    """Every class and function: its dotted name below the package, and its lines with those of its decorators."""

    def inside(node: ast.AST, name: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, Definition):
                own = f"{name}.{child.name}"
                first = min([child.lineno, *(one.lineno for one in child.decorator_list)])
                yield own, (child.end_lineno or first) - first + 1
                yield from inside(child, own)

    for path, tree in parsed(package):
        yield from inside(tree, path.removesuffix(".py").removesuffix("/__init__").replace("/", "."))


def jobs(package: Path) -> dict[str, Any]:
    """How many definitions do each job, and in how many lines."""
    every = list(definitions(package))
    table: dict[str, Any] = {}
    patterns = JOBS_OF_THE_CONTRACT if (package / "tasks" / "task.py").exists() else JOBS
    for job, pattern in patterns.items():
        matched = {name: lines for name, lines in every if re.fullmatch(pattern, name)}
        table[job] = {"definitions": len(matched), "lines": sum(matched.values()), "names": sorted(matched)}
    total = {figure: sum(row[figure] for row in table.values()) for figure in ("definitions", "lines")}
    return {**table, "sum": total}


def names(options: Options) -> Figures:
    """Strings, tests of kinds, cycles and jobs."""
    trees = dict(parsed(options.package))
    literals = {path: lines for path, tree in trees.items() if (lines := task_literals(tree))}
    by_file = {path: len(lines) for path, lines in literals.items()}
    places = sum(len(set(lines)) for lines in literals.values())
    yield "task_literals", {"count": sum(by_file.values()), "lines": places, "files": len(by_file), "by_file": by_file}
    verbs = {path: tree for path, tree in trees.items() if re.split(r"[/.]", path)[0] in VERBS}
    tests = {path: count for path, tree in verbs.items() if (count := kind_tests(tree))}
    yield "isinstance", {"count": sum(tests.values()), "by_file": tests}
    graph, lazy = import_graph(options.package)
    cycles = import_cycles(graph)
    yield "import_cycles", {"sizes": [len(one) for one in cycles], "members": cycles, "lazy_imports": lazy}
    yield "jobs", jobs(options.package)


# Made data


def write_table(path: Path, header: str, rows: Iterable[str]) -> Path:
    with path.open("w", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in itertools.chain([header] if header else [], rows))
    return path


SYLLABLES = [first + second for first in "bdfgklmnprst" for second in "aeiou"]


def made_texts(count: int, seed: int, least: int = 6, most: int = 12) -> Iterator[list[str]]:
    """Texts of words of two syllables; 3,600 words, and hardly two texts alike."""
    draw = random.Random(seed)
    words = [first + second for first in SYLLABLES for second in SYLLABLES]
    for _ in range(count):
        yield draw.choices(words, k=draw.randint(least, most))


def tags_of(words: list[str]) -> list[str]:
    """By a word's end; words that end in o are what the word before says: two rules that a model can learn."""
    own = [
        "AMBIGUOUS" if word[-1] == "o" else {"a": "NOUN", "e": "VERB", "i": "ADJ"}.get(word[-1], "O") for word in words
    ]
    before = ["O", *own]
    return [
        ("AFTER-NOUN" if before[i] == "NOUN" else "OTHER") if tag == "AMBIGUOUS" else tag for i, tag in enumerate(own)
    ]


def write_tagged(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{' '.join(tags_of(words))}" for words in made_texts(count, seed))
    return write_table(path, "words\ttags", rows)


def write_labelled(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{tags_of(words)[0]}" for words in made_texts(count, seed))
    return write_table(path, "text\tlabel", rows)


def write_pairs(path: Path, count: int, seed: int) -> Path:
    rows = (f"{' '.join(words)}\t{' '.join(reversed(words))}" for words in made_texts(count, seed, 2, 5))
    return write_table(path, "source\ttarget", rows)


def write_captioned(path: Path, count: int) -> Path:
    """Images of one colour each, and the name of the colour."""
    from PIL import Image

    colours = ("red", "green", "blue", "yellow")
    rows = []
    for number in range(count):
        colour = colours[number % len(colours)]
        Image.new("RGB", (32, 32 + number), colour).save(path.parent / f"{number}.png")
        rows += [f"{number}.png\tthis is a {colour} image", f"{number}.png\tall of it is {colour}"]
    return write_table(path, "image\tcaption", rows)


# Commands in processes of their own


def environment(source: Path) -> dict[str, str]:
    """One thread; the package of ``source``. Some machines say that they have matrix registers and have none."""
    given = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE", **os.environ}
    return {**given, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}


def called(source: Path, role: str, file: Path, *arguments: str) -> list[str]:
    """This script as another process, in one of its roles: see `main`."""
    return [sys.executable, str(Path(__file__).resolve()), role, str(source), str(file), *arguments]


def run_command() -> int | str | None:
    """Run the command in sys.argv; what it exits with."""
    from sightline.cli import main as command

    try:
        command()
    except SystemExit as leave:
        return leave.code
    return None


class Walk:
    """A profiler: which functions of the package run after import, and which modules call which others."""

    def __init__(self, package: Path) -> None:
        self.begin = f"{package}{os.sep}"
        self.functions: set[tuple[str, str]] = set()
        self.edges: set[tuple[str, str]] = set()
        self.importing = 0

    def module(self, frame: Any) -> str | None:
        name = frame.f_code.co_filename
        return name.removeprefix(self.begin).removesuffix(".py") if name.startswith(self.begin) else None

    def __call__(self, frame: Any, event: str, _: Any) -> None:
        here = self.module(frame)
        if here is None:
            return
        if frame.f_code.co_name == "<module>":
            self.importing += {"call": 1, "return": -1}.get(event, 0)
        elif event == "call" and not self.importing and frame.f_code.co_flags & 1:  # 1: a function, no body of a class
            self.functions.add((here, frame.f_code.co_qualname))
            self._add_edge(frame.f_back, here)

    def _add_edge(self, caller: Any, here: str) -> None:
        """From the nearest caller that is of the package: a library between them does not hide it."""
        while caller is not None and (name := self.module(caller)) is None:
            caller = caller.f_back
        if caller is not None and caller.f_code.co_name != "<module>" and name is not None and name != here:
            self.edges.add((name, here))

    def figures(self) -> dict[str, int]:
        two_way = sum((there, here) in self.edges for here, there in self.edges) // 2
        modules = {module for module, _ in self.functions}
        figures = {"modules": len(modules), "functions": len(self.functions)}
        return {**figures, "edges": len(self.edges), "two_way": two_way}


def walk_here(source: Path, file: Path) -> None:
    """In a process of its own: run the command in sys.argv under the profiler, and write what it saw."""
    import sightline.cli  # noqa: F401 - what is imported before the command is no part of its way

    walk = Walk(source / "sightline")
    threading.setprofile(walk)
    sys.setprofile(walk)
    code = run_command()
    sys.setprofile(None)
    threading.setprofile(None)
    file.write_text(json.dumps("error" if code else walk.figures()), encoding="utf-8")
    sys.exit(code)


TINY = {
    "translate": "model.size=16 model.heads=2 model.feed_forward=16 model.encoder_layers=1 model.decoder_layers=1 "
    "tokeniser.vocab_size=400",
    "caption": "model.size=16 model.embedding_size=16 model.attention.score.hidden_size=16 tokeniser.min_frequency=1 "
    "encoder.kind=cnn encoder.size=16 encoder.channels=[16,16]",
    "tag": "model.size=16 model.embedding_size=16 tokeniser.vocab_size=400",
}


def walk(options: Options) -> Figures:
    """Train, predict and view, of three tasks, on a few made rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_pairs(folder / "translate.tsv", 40, seed=0)
        write_captioned(folder / "caption.tsv", 12)
        write_tagged(folder / "tag.tsv", 40, seed=0)
        for task in filter(options.wants, TINY):
            given = ["--image", "0.png"] if task == "caption" else ["--text", "bada dede soma"]
            train = ["train", task, "--data", f"{task}.tsv", "--out", task, "--steps", "2", "--threads", "1", "--set"]
            yield f"train {task}", walked(options, folder, [*train, *TINY[task].split()])
            yield f"predict {task}", walked(options, folder, ["predict", task, *given, "--threads", "1"])
            view = ["view", task, *given, "--out", f"{task}.html", "--threads", "1"]
            yield f"view {task}", walked(options, folder, view)


def walked(options: Options, folder: Path, arguments: list[str]) -> Any:
    """The figures of one command, or "error"."""
    file = folder / "walk.json"
    file.unlink(missing_ok=True)
    command = called(options.source, "walk-here", file, *arguments)
    done = subprocess.run(command, cwd=folder, env=environment(options.source), capture_output=True, text=True)
    if done.returncode:
        print(f"{' '.join(arguments[:2])}: {done.stderr.strip()[-500:]}", file=sys.stderr)
    return json.loads(file.read_text(encoding="utf-8")) if file.exists() else "error"


# Losses

STEPS = 200
SMALLER = {  # than the preset, where 200 steps of it take more than three minutes; an encoder that needs no weights
    "translate": "model.encoder_layers=2 model.decoder_layers=2 batch_tokens=1024",
    "classify": "",
    "tag": "",
    "caption": "encoder.kind=cnn encoder.size=32 encoder.channels=[16,32,64]",
    "grid": "batch=2",
}
SETS = {
    "translate": "translate-multi30k-en-de",
    "classify": "classify-sst2",
    "caption": "caption-flickr8k",
    "grid": "grid-crackforest",
}


def first_photos(table: Path, count: int) -> Iterator[str]:
    """The rows of the first photos of a table with several rows for each."""
    seen: set[str] = set()
    with table.open(encoding="utf-8") as file:
        next(file)
        for row in file:
            seen.add(row.partition("\t")[0])
            if len(seen) > count:
                return
            yield row.rstrip("\n")


def files_of(task: str, data: Path | None, folder: Path) -> tuple[Path, Path]:
    """What to train on and what to validate on."""
    if task == "tag":
        return write_tagged(folder / "train.tsv", 2000, seed=1), write_tagged(folder / "valid.tsv", 300, seed=2)
    if data is None:
        raise SystemExit("loss needs --data, a folder with the data sets")
    own = data / SETS[task]
    if task == "caption":
        (folder / "images").symlink_to((own / "images").resolve())
        for part, count in (("train", 400), ("valid", 100)):
            write_table(folder / f"{part}.tsv", "image\tcaption", first_photos(own / f"{part}.tsv", count))
        own = folder
    return next(path for path in (own / "train.tsv", own / "train.tsv.gz") if path.exists()), own / "valid.tsv"


def step_losses(folder: Path) -> list[float]:
    """The training loss of every step, from what the command wrote for TensorBoard."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]

    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return [float(f"{event.value:.8g}") for event in events.Scalars("train/loss")]


def loss(options: Options) -> Figures:
    """Train each task for a while, and read what was measured."""
    for task in filter(options.wants, SMALLER):
        with tempfile.TemporaryDirectory() as name:
            folder, begun = Path(name), time.monotonic()
            train, valid = (str(path.resolve()) for path in files_of(task, options.data, folder))
            command = [sys.executable, "-m", "sightline", "train", task, "--data", train, "--valid", valid]
            command += ["--out", "run", "--steps", str(STEPS), "--seed", "0", "--threads", "1", "--tensorboard"]
            command += ["--set", f"training.validate_every={STEPS}", *SMALLER[task].split()]
            done = subprocess.run(command, cwd=folder, env=environment(options.source), capture_output=True, text=True)
            if done.returncode:
                print(f"train {task}: {done.stderr.strip()[-500:]}", file=sys.stderr)
                yield task, "error"
                continue
            lines = (folder / "run" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            figures = {"set": SMALLER[task], "seconds": round(time.monotonic() - begun)}
            yield (
                task,
                {
                    **figures,
                    "losses": step_losses(folder / "run" / "tensorboard"),
                    "metrics": [json.loads(one) for one in lines],
                },
            )


# Memory

ROWS = (10_000, 100_000, 1_000_000)
PATIENCE, INTERVAL = 600, 0.02  # seconds
WRITERS = {"tag": write_tagged, "classify": write_labelled}


def count_here(_: Path, file: Path) -> None:
    """In a process of its own: run the command in sys.argv; a line in ``file`` each time that its data is opened."""
    data = os.path.realpath(sys.argv[sys.argv.index("--data") + 1])

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        named = event == "open" and isinstance(arguments[0], str | bytes | os.PathLike)
        if named and os.path.realpath(os.fsdecode(arguments[0])) == data:
            os.write(log, b"open\n")

    log = os.open(file, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    sys.addaudithook(audit)
    sys.exit(run_command())


def anonymous(process: int) -> int:
    """Bytes of memory of a process that are no file's; 0 when it is gone."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    found = re.search(r"RssAnon:\s+(\d+) kB", status)
    return 1024 * int(found[1]) if found else 0


def children(process: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    try:
        listed = [path.read_text() for path in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:
        return
    for child in map(int, " ".join(listed).split()):
        yield child
        yield from children(child)


def watched(options: Options, task: str, data: Path, folder: Path) -> Any:
    """Memory and time until the data of one training is prepared; the training itself is ended there."""
    log, ready = folder / "opened.txt", folder / "run" / "config.json"
    arguments = ["train", task, "--data", data.name, "--out", "run", "--steps", "1", "--threads", "1"]
    begun, peak, whole = time.monotonic(), 0, 0
    process = subprocess.Popen(
        called(options.source, "count-here", log, *arguments),
        cwd=folder,
        env=environment(options.source),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        while not ready.exists() and process.poll() is None and time.monotonic() - begun < PATIENCE:
            own = anonymous(process.pid)
            peak, whole = max(peak, own), max(whole, own + sum(map(anonymous, children(process.pid))))
            time.sleep(INTERVAL)
        seconds, opened = time.monotonic() - begun, log.read_text().count("\n") if log.exists() else 0
        ended = "prepared" if ready.exists() else "error" if process.poll() is not None else "over 10 minutes"
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    megabytes = {"peak_mb": round(peak / 2**20, 1), "peak_with_children_mb": round(whole / 2**20, 1)}
    return {"ended": ended, **megabytes, "seconds": round(seconds, 1), "opened": opened}


def memory(options: Options) -> Figures:
    """Prepare more and more made rows."""
    for task, rows in itertools.product(filter(options.wants, WRITERS), ROWS):
        with tempfile.TemporaryDirectory() as name:
            data = WRITERS[task](Path(name) / "rows.tsv", rows, seed=0)
            figures = watched(options, task, data, Path(name))
            yield f"{task} {rows:,}", {**figures, "file_mb": round(data.stat().st_size / 2**20, 1)}


# All of it

MEASURES = {"size": size, "names": names, "walk": walk, "loss": loss, "memory": memory}


def shown(figure: Any) -> str:
    """A figure on one line: of long lists their length, of losses some."""
    if not isinstance(figure, dict):
        return str(figure)
    if "losses" in figure:
        losses = figure["losses"]
        some = ", ".join(f"{step}: {losses[step - 1]:.4f}" for step in (1, 50, 100, 150, STEPS) if step <= len(losses))
        return f"{len(losses)} losses ({some}); {figure['metrics'][-1]}"
    short = {
        key: value for key, value in figure.items() if not isinstance(value, dict) and key not in ("names", "members")
    }
    return "  ".join(f"{key} {value}" for key, value in (short or figure).items())


def rows_shown(key: str, figure: Any) -> Iterator[str]:
    if key == "jobs":
        for job, row in figure.items():
            yield f"  {job}: {row['definitions']} definitions, {row['lines']} lines"
    else:
        yield f"  {key}: {shown(figure)}"


def main() -> None:
    roles = {"walk-here": walk_here, "count-here": count_here}
    if sys.argv[1:2] and sys.argv[1] in roles:
        role, source, file, *arguments = sys.argv[1:]
        sys.argv, sys.path[0] = (
            ["sightline", *arguments],
            source,
        )  # the folder of this script is no place to import from
        return roles[role](Path(source), Path(file))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measures", nargs="+", choices=MEASURES, metavar="MEASURE", help=", ".join(MEASURES))
    here = Path(__file__).resolve().parent.parent / "src"
    parser.add_argument("--src", type=Path, default=here, metavar="FOLDER", help="what holds the package")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="what holds the data sets; for loss")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE.json", help="where the figures go")
    parser.add_argument("--tasks", nargs="+", default=[], help="of walk, loss and memory, these tasks only")
    given = parser.parse_args()
    if not (given.src / "sightline" / "__init__.py").exists():
        parser.error(f"--src {given.src} holds no package sightline")
    options = Options(given.src.resolve(), given.data, given.tasks)
    results = defaultdict(dict, json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else {})
    for measure in given.measures:
        print(measure, flush=True)
        for key, figure in MEASURES[measure](options):
            results[measure][key] = figure
            given.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
            print("\n".join(rows_shown(key, figure)), flush=True)
    return None


if __name__ == "__main__":
    main()
