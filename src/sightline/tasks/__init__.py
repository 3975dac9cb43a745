"""What a user has and wants: data in, a trained and scored model out."""

from typing import TYPE_CHECKING

from sightline.lazy import exported

if TYPE_CHECKING:
    from sightline.inputs.base import Input
    from sightline.outputs.base import Output
    from sightline.tasks.configs.base import TaskConfig
    from sightline.tasks.evaluate import Comparison, Evaluation
    from sightline.tasks.explain import ExplainOptions
    from sightline.tasks.registry import task_named, tasks
    from sightline.tasks.run import Run
    from sightline.tasks.task import BadValueError, Column, Example, Option, PredictOptions, Task, Variant
else:
    __getattr__, __dir__ = exported(
        __name__,
        {
            "inputs.base": "Input",
            "outputs.base": "Output",
            "tasks.configs.base": "TaskConfig",
            "tasks.evaluate": "Comparison Evaluation",
            "tasks.explain": "ExplainOptions",
            "tasks.registry": "task_named tasks",
            "tasks.run": "Run",
            "tasks.task": "BadValueError Column Example Option PredictOptions Task Variant",
        },
    )

__all__ = ["BadValueError", "Column", "Comparison", "Evaluation", "Example", "ExplainOptions", "Input", "Option"]
__all__ += ["Output", "PredictOptions", "Run", "Task", "TaskConfig", "Variant", "task_named", "tasks"]
