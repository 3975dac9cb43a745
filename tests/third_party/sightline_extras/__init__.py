"""Two tasks of a package that is not Sightline's: vectors to vectors, and signals in the manner of Morse to text.

Declarations are plain data: this file imports neither torch nor the classes that it names. The package's metadata names
them as entry points of the group ``sightline.task``.
"""

from sightline.tasks.task import Column, Task, Variant

VECTORS = Task(
    name="vectors",
    help="a sequence of vectors for a sequence of vectors, such as the same ones in reverse",
    data="the columns vectors and target, each a list of vectors",
    columns=(
        Column("vectors", "a list of vectors, as long as you like"),
        Column("target", "as many vectors"),
    ),
    variants=(
        Variant(
            input="sightline_extras.vectors:VectorsInput",
            output="sightline_extras.vectors:VectorsOutput",
            config="sightline_extras.vectors:VectorsConfig",
            models={"reader": {"tiny": {"size": 16}, "small": {"size": 64}, "base": {"size": 256}}},
            stored="vectors",
        ),
    ),
    metrics=("r2",),
    rows="sequences",
    counted="sequences",
)

MORSE = Task(
    name="morse",
    help="a signal of short and long tones, frame by frame, to the text that it spells",
    data="the columns frames (a list of lists of numbers) and text",
    columns=(
        Column("frames", "a list of frames, each a list of numbers"),
        Column("text", "what the signal spells"),
    ),
    variants=(
        Variant(
            input="sightline_extras.morse:FramesInput",
            output="sightline_extras.morse:SpelledOutput",
            config="sightline_extras.morse:MorseConfig",
            models={"listener": {"tiny": {"size": 16}, "small": {"size": 64}, "base": {"size": 256}}},
            stored="morse",
        ),
    ),
    metrics=("exact", "chrf"),
    rows="signals",
    counted="tokens",
)
