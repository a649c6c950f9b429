"""What routed heads are in the circuit's terms: do gates fall on readers, and does the bias open the gate at zero shot?

The circuit was found in few-shot prompts (`readout.circuit`); here its heads are watched at zero shot. Its gate is open
where the labels together have much probability and readers look away from the first token, so both are measured with
and without the bias, beside few-shot prompts of the same queries. A router trained on a random basis is the control.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.stats import rankdata

from readout.errors import ReadoutError
from readout.icr.carriers import RoutedAttention
from readout.icr.methods.base import by_domain
from readout.icr.methods.plain import FewShot
from readout.icr.methods.routed import Routed
from readout.icr.queries import Queries
from readout.icr.routing import Weights
from readout.icr.scores import crossed_bootstrap
from readout.models import LanguageModel, pack
from readout.records.schema import head_name
from readout.statistics import Estimate, generator

Head = tuple[int, int]
Table = Float[np.ndarray, "seeds queries"]
ROWS = 8
"""Prompts of a pass."""
DRAWS = 9999
MEASURES = {
    "label mass": "probability of the answers together",
    "first token": "readers' mean attention to the first token",
    "direct effect": "readers' direct effect on the right answer's logit minus the others' mean, nats",
}


@dataclass(frozen=True)
class CircuitHeads:
    """Heads of a circuit.

    Attributes
    ----------
    readers : tuple of (int, int)
        Layer and head, the strongest first.
    falls : dict of (int, int) to float
        Every head: by how much the logit difference of few-shot prompts falls when it is ablated, nats.
    """

    readers: tuple[Head, ...]
    falls: Mapping[Head, float]

    @classmethod
    def of(cls, report: Mapping[str, Any]) -> CircuitHeads:
        """Take them from ``circuit.json``.

        Raises
        ------
        ReadoutError
            If claim 3 was not tested.
        """
        try:
            claim = report["claims"]["3"]
            sweep = claim["curves"]["sweep"]
            readers = tuple((one["layer"], one["head"]) for one in claim["parts"] if one["role"] == "reader")
            names = [tuple(map(int, name[1:].split("H"))) for name in sweep["heads"]]
        except KeyError as error:
            raise ReadoutError(
                f"the circuit's report has no {error}: test claim 3 (`readout circuit --claims 3`) and give its "
                "circuit.json"
            ) from error
        if not readers:
            raise ReadoutError("the circuit's report names no reader: there is nothing that gates could fall on")
        return cls(readers, {(layer, head): -float(c) for (layer, head), c in zip(names, sweep["change"], strict=True)})


@dataclass(frozen=True)
class GateFall:
    """Where a router's gates fall.

    Attributes
    ----------
    heads : tuple of str
        The routed heads.
    gates : tuple of float
        Mean gate of each over queries and seeds.
    readers : tuple of str
        Readers among them.
    excess : float
        Mean gate of the readers less that of the other heads of their layers; NaN where no routed layer has both.
    excess_by_seed : tuple of float
    p : float
        Two-sided, of the excess: rank among draws of as many random heads of the same layers.
    correlation, correlation_p : float
        Spearman's between gate and fall by ablation over all routed heads, each less its layer's mean; p over
        permutations within layers.
    """

    heads: tuple[str, ...]
    gates: tuple[float, ...]
    readers: tuple[str, ...]
    excess: float
    excess_by_seed: tuple[float, ...]
    p: float
    correlation: float
    correlation_p: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON (NaN becomes None)."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return {name: _plain(value) for name, value in plain.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value


def gate_fall(
    gates: Float[np.ndarray, "seeds layers heads"], layers: Sequence[int], circuit: CircuitHeads, seed: int = 0
) -> GateFall:
    """Compare readers' gates with those of the other heads of their layers.

    Parameters
    ----------
    gates : float [seeds, layers, heads]
        Mean over queries.
    layers : sequence of int
        Their layers.
    circuit : CircuitHeads
    seed : int
        Of the draws.
    """
    n_heads = gates.shape[2]
    routed = [(layer, head) for layer in layers for head in range(n_heads)]
    own = [head for head in circuit.readers if head in routed]
    mark = np.zeros((len(layers), n_heads), bool)
    for layer, head in own:
        mark[list(layers).index(layer), head] = True
    by_seed = np.array([_excess(one, mark) for one in gates])
    mean = gates.mean(0)
    draw = generator(seed)
    excess = float(_excess(mean, mark))
    orders = np.argsort(draw.random((DRAWS, *mark.shape)), axis=2)
    drawn = _excess(mean, np.take_along_axis(np.broadcast_to(mark, orders.shape), orders, 2))
    falls = np.array([circuit.falls.get(head, np.nan) for head in routed]).reshape(mark.shape)
    value, p = _correlation(mean, falls, orders)
    return GateFall(
        tuple(head_name(*head) for head in routed),
        tuple(mean.ravel().tolist()),
        tuple(head_name(*head) for head in own),
        excess,
        tuple(by_seed.tolist()),
        float("nan") if np.isnan(excess) else float((1 + (np.abs(drawn) >= abs(excess) - 1e-12).sum()) / (1 + DRAWS)),
        value,
        p,
    )


def _excess(gates: Float[np.ndarray, "layers heads"], mark: np.ndarray) -> np.ndarray:
    """Mean over marked heads [..., layers, heads] of the gate less the mean of their layer's others."""
    count = mark.sum(-1, keepdims=True)
    # a layer without other heads has nothing to compare with
    mark = mark & (count < gates.shape[1])
    others = np.where(mark, 0.0, gates).sum(-1, keepdims=True) / np.maximum(gates.shape[1] - count, 1)
    n_marked = mark.sum((-2, -1))
    total = np.where(mark, gates - others, 0.0).sum((-2, -1))
    return np.where(n_marked > 0, total / np.maximum(n_marked, 1), np.nan)


def _correlation(gates: np.ndarray, falls: np.ndarray, orders: np.ndarray) -> tuple[float, float]:
    if np.isnan(falls).any():
        return float("nan"), float("nan")

    def ranks(table: np.ndarray) -> np.ndarray:
        ranked = rankdata((table - table.mean(1, keepdims=True)).ravel())
        centred = ranked - ranked.mean()
        return np.asarray(centred / max(float(np.linalg.norm(centred)), 1e-12)).reshape(table.shape)

    one, two = ranks(gates), ranks(falls)
    value = float((one * two).sum())
    # a layer's mean stays where its heads change places, so the ranks can be permuted themselves
    drawn = (np.take_along_axis(np.broadcast_to(one, orders.shape), orders, 2) * two).sum((1, 2))
    return value, float((1 + (np.abs(drawn) >= abs(value) - 1e-12).sum()) / (1 + len(orders)))


def watch(
    model: LanguageModel,
    queries: Queries,
    readers: Sequence[Head],
    routed: Routed | None = None,
    few_shot: FewShot | None = None,
) -> dict[str, Float[np.ndarray, " queries"]]:
    """The measures of `MEASURES` for each query: at zero shot, routed, or after demonstrations."""
    heads = [model.heads.index(head) for head in readers]
    effects = not model.wiring.why_no_effect
    found = {name: np.zeros(len(queries)) for name in MEASURES if effects or name != "direct effect"}
    weights = None if routed is None else _weights(routed, queries)
    for rows in _chunks(queries):
        prompts = [_token_ids(model, queries, row, few_shot) for row in rows.tolist()]
        # prompts of a data set share their demonstrations, which are then computed once
        batch = pack([prompts] if few_shot is not None else [[one] for one in prompts])
        options = queries.options[rows]
        ids = torch.from_numpy(np.maximum(options, 0))
        columns = torch.zeros(len(batch.token_ids), 1, dtype=torch.long)
        if routed is None or weights is None:
            reading = model.run(batch, ids, columns, effects)
        else:
            assert isinstance(routed.carrier, RoutedAttention)
            with routed.carrier.routing.on(weights.of(torch.from_numpy(rows)), batch.queries[:, 0]):
                reading = model.run(batch, ids, columns, effects)
        assert reading.attention is not None
        there = options >= 0
        found["label mass"][rows] = np.where(there, reading.log_probabilities.exp().cpu().numpy(), 0.0).sum(1)
        found["first token"][rows] = reading.attention[:, heads, 0].float().mean(1).cpu().numpy()
        if reading.effects is not None:
            own = reading.effects[:, heads].float().mean(1).cpu().numpy()
            right = np.arange(options.shape[1]) == queries.answers[rows][:, None]
            others = np.where(there & ~right, own, 0.0).sum(1) / (there.sum(1) - 1)
            found["direct effect"][rows] = own[right] - others
    return found


def _chunks(queries: Queries) -> list[np.ndarray]:
    """Rows of one data set each, a few at a time."""
    return [rows[start : start + ROWS] for rows in by_domain(queries).values() for start in range(0, len(rows), ROWS)]


def _token_ids(model: LanguageModel, queries: Queries, row: int, few_shot: FewShot | None) -> np.ndarray:
    if few_shot is None:
        return queries.token_ids[row]
    example = queries.examples[row]
    return np.array(model.tokenizer(few_shot.text(example.dataset) + example.prompt).input_ids, np.int64)


@torch.inference_mode()
def _weights(routed: Routed, queries: Queries) -> Weights:
    """A trained router's weights, at the scale of inference."""
    if routed.reader is None or not isinstance(routed.carrier, RoutedAttention):
        raise ReadoutError(f"{routed.name}: the bridge needs a fitted router of attention logits")
    features = torch.from_numpy(routed.reader(queries.texts, queries.domains)).to(routed.trainer.features.device)
    return routed.trainer.router(features).times(routed.trainer.settings.last_scale)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Bridge:
    """Both answers, with their control.

    Attributes
    ----------
    readers : tuple of str
    falls : dict of str to float
        Fall of the logit difference by each routed head's ablation.
    gates : dict of str to GateFall
        By router.
    level : dict of str to dict of str to Estimate
        By measure, then by condition ("zero-shot", routers, "few-shot").
    change : dict of str to dict of str to Estimate
        The same less zero-shot, paired by query; and "A minus B" of the first two routers.
    """

    readers: tuple[str, ...]
    falls: Mapping[str, float]
    gates: Mapping[str, GateFall]
    level: Mapping[str, Mapping[str, Estimate]]
    change: Mapping[str, Mapping[str, Estimate]]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        tables = {
            name: {one: {key: e.to_dict() for key, e in own.items()} for one, own in getattr(self, name).items()}
            for name in ("level", "change")
        }
        gates = {name: one.to_dict() for name, one in self.gates.items()}
        return {"readers": list(self.readers), "falls": dict(self.falls), "gates": gates, **tables}

    def summary(self) -> str:
        """Both tables on one screen."""
        return summarise_bridge(self.to_dict())


def summarise_bridge(result: Mapping[str, Any]) -> str:
    """The tables of `Bridge.to_dict`."""
    lines = [f"readers of the circuit: {', '.join(result['readers'])}"]
    for name, one in result["gates"].items():
        if one["excess"] is None:
            fall = "no routed layer has readers and others"
        else:
            who = ", ".join(one["readers"])
            fall = f"gates of {who} less their layers' others {one['excess']:+.3f} (p {one['p']:.3f})"
        rank = f"rho {_told(one['correlation'])} (p {_told(one['correlation_p'])})"
        lines.append(f"{name}: {fall}; gate and fall by ablation, within layers: {rank}")
    for measure, by_condition in result["change"].items():
        lines += ["", f"{MEASURES[measure]}; in brackets the change from zero-shot"]
        for name, level in result["level"][measure].items():
            change = by_condition.get(name)
            told = "" if change is None else f"   ({Estimate.from_dict(change).summary()})"
            lines.append(f"  {name:24}{Estimate.from_dict(level).summary()}{told}")
        for name, difference in by_condition.items():
            if name not in result["level"][measure]:
                lines.append(f"  {name}: {Estimate.from_dict(difference).summary()}")
    return "\n".join(lines)


def _told(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def build_bridge(
    model: LanguageModel,
    queries: Queries,
    routers: Mapping[str, Sequence[Routed]],
    circuit: CircuitHeads,
    few_shot: FewShot | None = None,
    seed: int = 0,
) -> Bridge:
    """Measure both.

    Parameters
    ----------
    model : LanguageModel
    queries : Queries
        Of test sets.
    routers : dict of str to sequence of Routed
        Trained ones by name, one a seed; the first two are compared with each other.
    circuit : CircuitHeads
    few_shot : FewShot, optional
        Fitted, for the same measures after demonstrations.
    seed : int
        Of permutations and draws.
    """
    tables: dict[str, dict[str, Table]] = {"zero-shot": _stacked([watch(model, queries, circuit.readers)])}
    gates = {}
    for name, methods in routers.items():
        by_seed = np.stack([_weights(one, queries).gamma.cpu().numpy().mean(0) for one in methods])
        carrier = methods[0].carrier
        assert carrier is not None
        gates[name] = gate_fall(by_seed.astype(np.float64), carrier.layers, circuit, seed)
        tables[name] = _stacked([watch(model, queries, circuit.readers, one) for one in methods])
    if few_shot is not None:
        tables["few-shot"] = _stacked([watch(model, queries, circuit.readers, few_shot=few_shot)])
    level: dict[str, dict[str, Estimate]] = {}
    change: dict[str, dict[str, Estimate]] = {}
    domains = by_domain(queries)
    for measure in tables["zero-shot"]:
        base = tables["zero-shot"][measure]
        level[measure] = {name: _mean(own[measure], domains) for name, own in tables.items()}
        change[measure] = {
            name: _mean(own[measure] - base, domains) for name, own in tables.items() if name != "zero-shot"
        }
        for one, other in list(zip(routers, list(routers)[1:], strict=False))[:1]:
            change[measure][f"{one} minus {other}"] = _mean(tables[one][measure] - tables[other][measure], domains)
    falls = {head_name(*head): value for head, value in circuit.falls.items()}
    return Bridge(tuple(head_name(*head) for head in circuit.readers), falls, gates, level, change)


def _stacked(found: Sequence[Mapping[str, np.ndarray]]) -> dict[str, Table]:
    return {name: np.stack([one[name] for one in found]) for name in found[0]}


def _mean(values: Table, domains: Mapping[str, np.ndarray]) -> Estimate:
    return crossed_bootstrap([values[:, rows] for rows in domains.values()])
