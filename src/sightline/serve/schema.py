"""The schemas of requests and answers, with the limits. Strict: values are not converted, unknown fields refused."""

from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, create_model, model_validator

from sightline.serve.limits import Limits

SEED = 2**53 - 1  # the largest integer that every JSON parser represents exactly


class Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, frozen=True)


class Error(BaseModel):
    """Why there is no answer, in one sentence."""

    error: str


def predictions(answers: Sequence[Mapping[str, Any]]) -> type[BaseModel]:
    """The answer of /predict; ``answers`` are the runs' schemas of the answer for one item."""
    kinds = [dict(one) for number, one in enumerate(answers) if one not in answers[:number]]
    one = Annotated[Any, WithJsonSchema(kinds[0] if len(kinds) == 1 else {"anyOf": kinds})]
    about = "The predictions of a run, in the order of the items."
    return create_model("Predictions", __doc__=about, run=(str, ...), predictions=(list[one], ...))


class ServedRun(BaseModel):
    """A model that is served."""

    model_config = ConfigDict(title="Run")
    name: str
    model: str = Field(description="Its kind, such as transformer.")
    parameters: int
    task: str
    searches: bool = Field(description="Whether it writes text by beam search.")
    pairs: bool = Field(description="Whether it reads two texts.")
    texts: list[str] = Field(description="The names of its texts, such as question and text; empty for files.")
    tables: bool = Field(description="Whether it reads a table and a question about it.")
    images: bool = Field(description="Whether it reads images.")
    files: str = Field(description="The files that it reads: images, recordings or arrays; empty for texts.")
    labels: list[str] = Field(description="The labels that it may predict; empty if it predicts something else.")


class Health(BaseModel):
    """Whether the server is ready, its runs, and the number of waiting requests."""

    ready: bool
    runs: list[ServedRun]
    waiting: int = Field(description="Requests without an answer yet.")
    most_waiting: int = Field(description="Beyond this many, requests are refused with 503.")
    most_characters: int = Field(description="Of one text.")
    most_beam: int = Field(description="The widest beam.")
    most_table_cells: int = Field(description="Of all tables of a request, where a run reads tables.")


class FileHealth(Health):
    """The same for a server with runs that read files."""

    most_images: int = Field(description="Images or other files in one request.")
    most_image_bytes: int = Field(description="Of all files of a request together.")
    most_pixels: int = Field(description="Of one image.")
    most_sound_seconds: float = Field(description="Of one recording.")


class Predict(Strict):
    """Texts, and options of the search for their outputs."""

    # `predict_request` adds what depends on the limits and the runs.
    run: str
    texts: list[str]
    beam: int = 5
    best: int = 1
    prefix: str = ""
    split: bool = Field(False, description="Cut each text into sentences and predict these; for long texts.")
    keep_unknown: bool = Field(False, description="Leave <unk> where the vocabulary lacks a word.")
    length_penalty: float = Field(1.0, ge=-10, le=10, description="Scores are divided by length to this power.")
    min_length: int = 0
    max_length: int | None = None
    coverage: float = Field(0, ge=0, le=1000, description="Lowers scores for attending to the same words again.")
    no_repeat: int = Field(
        0, ge=0, le=64, description="No run of this many tokens twice; 0 allows all. Left out, summaries have 3."
    )
    sample: bool = Field(False, description="Draw at random, each text by itself, instead of searching.")
    temperature: float = Field(1.0, gt=0, le=100, description="Of samples: below 1 conservative, above 1 diverse.")
    top: int | None = Field(None, ge=1, le=1_000_000, description="With sample: draw from this many tokens.")
    mass: float = Field(1.0, gt=0, le=1, description="With sample: draw from tokens with this much probability.")
    seed: int = Field(0, ge=0, le=SEED, description="With sample: the same seed and text give the same outputs.")

    @model_validator(mode="after")
    def _check_split(self) -> "Predict":
        if self.split and (self.best > 1 or self.prefix):
            raise ValueError("split cannot be combined with best above 1 or with prefix")
        return self


class Explain(Strict):
    """A text whose output is to be explained."""

    run: str
    text: str
    output: str | None = None
    beam: int = 5
    alternatives: int = Field(3, ge=0, le=16, description="How many other outputs of the beam to list.")
    top: int | None = Field(None, ge=1, le=1_000_000, description="Keep only this many weights of each row.")
    shift: Literal[-1, 0, 1] | None = Field(None, description="Move the map by a row; left out, the run's own.")
    measure: bool = Field(False, description="Also measure whether to believe the map: many more passes.")
    form: Literal["json", "page"] = Field(
        "json", description="json: the explanation as plain data; page: the same, packed for the page."
    )


KINDS = {
    "images": "as a file (JPEG, PNG, WebP, BMP, GIF or TIFF) in base64",
    "recordings": "as a file (WAV, FLAC, OGG or MP3) in base64",
    "arrays": "as a file (.npy) in base64",
    "clips": "as a file (.npy: bytes, frames × height × width) in base64",
}
# The shortest files to try the API with: a GIF, a WAV, an array.
SHORTEST = {
    "images": "R0lGODdhAQABAIAAAAAAAAAAACwAAAAAAQABAAAIBAABBAQAOw==",
    "recordings": "UklGRiwAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQgAAAAAAAAQAAAA8A==",
}


QUESTIONS = "questions"  # the field of questions about tables
TABLE = {"header": ["Year", "Nation"], "rows": [["1994", "Russia"], ["1998", "Germany"]]}  # to try the API with


class SentTable(Strict):
    """A table, all of it text."""

    header: list[str]
    rows: list[list[str]]

    @property
    def cells(self) -> int:
        return len(self.header) + sum(map(len, self.rows))


class SentQuestion(Strict):
    """A question and the table that it is about."""

    question: str
    table: SentTable


def _tables(limits: Limits) -> tuple[Any, Any]:
    """A table, and a question with its table, within the limits."""
    text = _text(limits)

    def checked(rows: Any) -> Any:
        """Before the schema, which would name each of many wrong cells."""
        if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
            raise ValueError("the rows of a table are a list of lists")
        if not all(isinstance(cell, str) and len(cell) <= limits.characters for row in rows for cell in row):
            raise ValueError(f"each cell of a table is a string of at most {limits.characters:,} characters")
        return rows

    row = Annotated[list[text], Field(max_length=limits.table_cells)]  # type: ignore[valid-type]
    table: Any = create_model(
        "Table",
        __base__=SentTable,
        __doc__=SentTable.__doc__,
        header=(row, Field(min_length=1, description="The names of the columns.")),
        rows=(
            Annotated[list[row], BeforeValidator(checked), Field(max_length=limits.table_cells)],
            Field(description=f"Rows of cells; at most {limits.table_cells:,} cells in a request."),
        ),
    )
    about = Field(description="The question.")
    asked: Any = create_model(
        "Question", __base__=SentQuestion, __doc__=SentQuestion.__doc__, question=(text, about), table=(table, ...)
    )
    return table, asked


Files = Mapping[str, str]  # what runs read that read files, by their names


def predict_request(
    runs: list[str], limits: Limits, pairs: bool = False, files: Files | None = None, tables: Collection[str] = ()
) -> type[Predict]:
    """The request of /predict with its limits. ``pairs``: a run reads two texts; ``files``: runs that read files;
    ``tables``: names of runs that read tables."""
    text = _text(limits)
    fields: dict[str, Any] = {
        "run": _run(runs),
        "texts": (Annotated[list[text], Field(min_length=1, max_length=limits.texts)], ...),  # type: ignore[valid-type]
        "beam": (int, Field(min(5, limits.beam), ge=1, le=limits.beam, description="Hypotheses to keep; 1 is greedy.")),
        "best": (int, Field(1, ge=1, le=limits.beam, description="Outputs for each text; no more than beam.")),
        "prefix": (text, Field("", description="Start every output with this text; end it where a word ends.")),
        "min_length": (int, Field(0, ge=0, le=limits.tokens, description="The fewest tokens of an output.")),
        "max_length": (
            Annotated[int, Field(ge=1, le=limits.tokens)] | None,
            Field(None, description="The most tokens of an output; left out, three times the source and twenty."),
        ),
    }
    if pairs:
        about = "Of a run that reads two texts, such as questions and texts: the second of each."
        fields["texts2"] = (list[text] | None, Field(None, max_length=limits.texts, description=about))  # type: ignore[valid-type]
    if tables:
        (_, asked), about = _tables(limits), "Of a run that reads tables."
        asking = Annotated[list[asked], Field(min_length=1, max_length=limits.texts)]  # type: ignore[valid-type]
        fields[QUESTIONS] = (asking | None, Field(None, description=about))
    if files or tables:
        some, file = Annotated[list[text], Field(min_length=1, max_length=limits.texts)], _file(limits)  # type: ignore[valid-type]
        many = Annotated[list[file], Field(min_length=1, max_length=limits.images)]  # type: ignore[valid-type]
        fields["texts"] = (some | None, Field(None, description="Of a run that reads texts."))
        for noun in (files or {}).values():
            about = f"Of a run that reads {noun}: each {KINDS.get(noun, 'as a file in base64')}."
            fields[noun] = (many | None, Field(None, description=about))
    made = create_model("PredictRequest", __base__=Predict, __doc__=Predict.__doc__, **fields)
    return _with_example(made, runs[0], files, tables, "texts")


def explain_request(
    runs: list[str], limits: Limits, pairs: bool = False, files: Files | None = None, tables: Collection[str] = ()
) -> type[Explain]:
    """The request of /explain with its limits; as in `predict_request`."""
    fields: dict[str, Any] = {
        "run": _run(runs),
        "text": (_text(limits), Field(description="The input.")),
        "output": (
            _text(limits) | None,
            Field(None, description="Explain this output instead of the model's own."),
        ),
        "beam": (int, Field(min(5, limits.beam), ge=1, le=limits.beam, description="Hypotheses to keep.")),
    }
    if pairs:
        fields["text2"] = (_text(limits) | None, Field(None, description="Of a run that reads two texts: the second."))
    if tables:
        about = "Of a run that reads tables: the question."
        fields["question"] = (_text(limits) | None, Field(None, description=about))
        fields["table"] = (_tables(limits)[0] | None, Field(None, description="The table of the question."))
    if files or tables:
        fields["text"] = (_text(limits) | None, Field(None, description="Of a run that reads texts: the input."))
        for noun in (files or {}).values():
            about = f"Of a run that reads {noun}: it, {KINDS.get(noun, 'as a file in base64')}."
            fields[noun.removesuffix("s")] = (_file(limits) | None, Field(None, description=about))
    made = create_model("ExplainRequest", __base__=Explain, __doc__=Explain.__doc__, **fields)
    return _with_example(made, runs[0], files, tables, "text")


def _with_example(made: Any, run: str, files: Files | None, tables: Collection[str], texts: str) -> Any:
    """If neither texts nor files are required, an example in the schema shows what to send."""
    if files or tables:
        several, noun = texts == "texts", (files or {}).get(run)
        example = "hello" if noun is None else SHORTEST.get(noun, "")
        field = texts if noun is None else noun if several else noun.removesuffix("s")
        given: dict[str, Any] = {field: [example] if several else example}
        if run in tables:
            asked = {"question": "which nation was first?", "table": TABLE}
            given = {QUESTIONS: [asked]} if several else asked
        made.model_config = ConfigDict(**made.model_config, json_schema_extra={"example": {"run": run, **given}})
        made.model_rebuild(force=True)
    return made


def _run(runs: list[str]) -> tuple[Any, Any]:
    return Literal[tuple(runs)], Field(runs[0], description="Which run; the first by default.")


def _text(limits: Limits) -> Any:
    return Annotated[str, Field(max_length=limits.characters)]


def _file(limits: Limits) -> Any:
    return Annotated[str, Field(min_length=1, max_length=limits.base64)]


STEPS = (
    "Each token of the output with its probability and the likeliest choices. Of a run that copies, copied has gate "
    "(the probability to write, not to copy), share (how much of the token's probability comes from copying) and place "
    "(the column that it is copied from, counted from 0; null where the source does not have it)."
)
EXPLANATION: dict[str, Any] = {
    "title": "Explanation",
    "description": "Input, output and attention maps; with form page, blocks of base64 by name.",
    "type": "object",
    "oneOf": [
        {
            "required": ["title", "task", "input", "output", "records", "stacks", "steps", "alternatives", "belief"],
            "properties": {
                **{name: {"type": "string"} for name in ("title", "task", "input", "output")},
                **{name: {"type": "array"} for name in ("records", "stacks", "alternatives", "calculations")},
                "steps": {"type": "array", "description": STEPS},
                "notes": {"type": "array", "items": {"type": "string"}},
                "shift": {"type": "integer"},
                "belief": {"type": ["object", "null"]},
                "image": {"type": "object", "description": "Of a run that reads images: a small picture, in base64."},
                "recording": {"type": "object", "description": "Of a run that reads recordings: frames and sound."},
                "table": {"type": "object", "description": "Of a run that reads tables: the table and the program."},
            },
        },
        {"required": ["about"], "additionalProperties": {"type": "string"}},
    ],
}
