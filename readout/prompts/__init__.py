"""Prompts: tasks, label pools, templates, prompt distributions, and tokens by role. Needs no torch."""

from readout.prompts.distribution import PromptDistribution
from readout.prompts.labels import label_pool
from readout.prompts.prompt import Demonstration, Prompt, contexts
from readout.prompts.show import show
from readout.prompts.tasks import Task, known_tasks, load_task
from readout.prompts.tokens import TokenizedPrompt, tokenize

__all__ = [
    "Demonstration",
    "Prompt",
    "PromptDistribution",
    "Task",
    "TokenizedPrompt",
    "contexts",
    "known_tasks",
    "label_pool",
    "load_task",
    "show",
    "tokenize",
]
