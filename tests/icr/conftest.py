"""The built-in model and a small study of it, shared by the tests of in-context routing."""

import pytest
import torch

from readout.icr.study import TINY, Study, StudySettings
from readout.models import LanguageModel, load_model

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_model() -> LanguageModel:
    return load_model("tiny", device="cpu", self_test=False)


@pytest.fixture(scope="session")
def small() -> StudySettings:
    return StudySettings(**(TINY.__dict__ | {"train": 48, "development": 12, "test": 24, "prompts": 8}))


@pytest.fixture(scope="session")
def study(tiny_model: LanguageModel, small: StudySettings, tmp_path_factory: pytest.TempPathFactory) -> Study:
    return Study(tiny_model, small, tmp_path_factory.mktemp("study"), (0, 1))
