"""What `test_explanation` and other tests share."""

import numpy as np

from sightline.explain.explanation import Belief, Calculation, Choice, Explanation, Finding, HeadCost, OutputStep, Stack
from sightline.records import Record, Tokens

LOOKS = Stack("Looks at the source", "cross", ("decoder.attention",))


def make(stacks=(LOOKS,)):
    rows, columns = Tokens(("x", "</s>"), special=(1,)), Tokens(("a", "b", "</s>"), words=(0, 0, 1), special=(2,))
    weights = np.array([[0.5, 0.25, 0.25], [0.0, 0.0, 1.0]], dtype=np.float32)
    return Explanation(
        title="run",
        task="translate",
        input="ab",
        output="x",
        records=(Record("decoder.attention", 0, 0, rows, columns, weights),),
        stacks=stacks,
        steps=(OutputStep("x", 0.75, (Choice("x", 0.75), Choice("y", 0.125))), OutputStep("</s>", 1.0)),
        calculations=(Calculation("decoder.attention", 0, np.eye(3, 2), np.ones((2, 4)), weights @ np.eye(3, 2), 8),),
        alternatives=(Choice("y", 0.1),),
        belief=Belief(
            "the mean",
            2,
            (Finding("entropy", "Entropy", 1.0, None, "It is."),),
            (HeadCost("decoder.attention", 0, 0.5),),
        ),
        shift=1,
        notes=("a note",),
    )
