"""The attributes of WITH: one typed table, from which checks, completion and documentation are made.

Attributes without a prefix are the job's options, as ``elasticdl.shared.job`` declares them. Those of SQLFlow are
accepted under their old names. ``model.*`` are the arguments of the model, which the model checks.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from elasticdl.shared.job.options import Seconds, json_schema
from elasticdl.shared.kubernetes.options import KubernetesFlags
from elasticdl.shared.words import listed, plain_number, similar
from elasticdl.sql.jobs import COMMANDS
from elasticdl.sql.statements import Attribute, Evaluate, Explain, Fault, JobStatement, Name, Predict, Train, Value

MODEL = "model."
"""Prefix of the arguments of the model."""
TRAIN, PREDICT, EVALUATE, EXPLAIN = "TRAIN", "PREDICT", "EVALUATE", "EXPLAIN"
_VERBS: Mapping[type, str] = MappingProxyType({Train: TRAIN, Predict: PREDICT, Evaluate: EVALUATE, Explain: EXPLAIN})
_FROM_STATEMENT = frozenset(
    listed(
        "training_data,validation_data,prediction_data,columns,column_types,fill_missing,csv_header,csv_delimiter,"
        "custom_data_reader,data_reader_params,keep_columns,output,output_format,prediction_outputs_processor,model_def,"
        "model_params,model,checkpoint_dir_for_init,label,feed,feed_batch,sample_weight,loss,optimizer,eval_metrics_fn,"
        "initial_model,export_tables,export_weights"
    )
)
"""Options whose values follow from the statement."""
_OF_THE_COMMAND = frozenset(listed("run_dir,report,detach,debug,dry_run,envs,nats_url,checkpoint_dir,yaml,trainingjob"))
"""Options that are no attributes: those of a command line, and those that may have credentials."""
_WITHOUT_EFFECT = frozenset(
    listed(
        "train.verbose,train.log_every_n_iter,train.disk_cache,validation.start_delay_secs,validation.steps,"
        "summary.plot_type,summary.sort"
    )
)
_FORMER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "train.epoch": "num_epochs",
        "train.batch_size": "minibatch_size",
        "train.max_steps": "max_step",
        "train.num_workers": "num_workers",
        "train.num_ps": "num_ps_pods",
        "train.save_checkpoints_steps": "checkpoint_steps",
        "validation.throttle_secs": "evaluation_throttle_secs",
        "predict.num_workers": "num_workers",
        "engine.num_workers": "num_workers",
        "engine.minibatch_size": "minibatch_size",
        "engine.num_minibatches_per_task": "num_minibatches_per_task",
        "optimizer.learning_rate": "model.learning_rate",
    }
)
"""Names that attributes had in SQLFlow."""
_BY_THE_DATA = frozenset(("num_epochs", "minibatch_size", "save_best", "early_stopping_patience"))
"""Options of a training that follow from the data if the statement does not give them."""
_KINDS = {"boolean": "true or false", "integer": "a whole number", "number": "a number", "string": "a text"}


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeType:
    """What is known of an attribute.

    Attributes:
        name: as WITH has it.
        kind: ``boolean``, ``integer``, ``number`` or ``string``.
        statements: verbs of the statements that take it.
        default: as text; empty: none, or it follows from the data.
        meaning: one or two sentences.
        choices: the only texts that it takes; empty: any.
        limits: least and greatest value.
    """

    name: str
    kind: str
    meaning: str
    statements: tuple[str, ...]
    default: str = ""
    choices: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None

    def wrong(self, value: Value) -> str:
        """Why it does not take a value; empty: it does."""
        values = value if isinstance(value, tuple) and self.kind == "string" else (value,)
        return next((wrong for each in values if (wrong := self._wrong(each))), "")

    def _wrong(self, value: Value) -> str:
        spelled = _spelled(value)
        if self.choices:
            return "" if spelled in self.choices else f"is one of {', '.join(self.choices)}, not {spelled}"
        number = _number(value, self.kind)
        fits = isinstance(value, bool) if self.kind == "boolean" else number is not None or self.kind == "string"
        if not fits or value is None or (self.kind == "string" and isinstance(value, bool)):
            return f"is {_KINDS[self.kind]}, not {spelled}"
        if self.limits and number is not None and not self.limits[0] <= number <= self.limits[1]:
            low, high = map(plain_number, self.limits)
            return f"is between {low} and {high}, not {spelled}"
        return ""


_OWN = (
    AttributeType(
        name="validation.select",
        kind="string",
        statements=(TRAIN,),
        meaning="A SELECT whose rows the model is evaluated on. It has the columns of the SELECT of the statement.",
    ),
    AttributeType(
        name="validation.split",
        kind="number",
        statements=(TRAIN,),
        meaning="The part of the rows that the model is evaluated on, and not trained with. 0: none.",
        default="0.2",
        limits=(0, 0.9),
    ),
    AttributeType(
        name="validation.split_by",
        kind="string",
        statements=(TRAIN,),
        meaning="A column: rows with the same value are all in the validation data or all in the training data. "
        "It is no feature of the model.",
    ),
    AttributeType(
        name="validation.metrics",
        kind="string",
        statements=(TRAIN, EVALUATE),
        meaning="Names of the metrics to show, with commas between them.",
        default="all",
    ),
    AttributeType(
        name="predict.probabilities",
        kind="boolean",
        statements=(PREDICT,),
        meaning="Whether the table also gets the probability of each class.",
        default="false",
    ),
    AttributeType(
        name="explain.plot",
        kind="string",
        statements=(EXPLAIN,),
        meaning="File for a plot of the importances, .png or .svg; several with commas between them. Needs the extra "
        "plots of the package.",
    ),
    AttributeType(
        name="table.replace",
        kind="boolean",
        statements=(PREDICT, EVALUATE, EXPLAIN),
        meaning="Whether the table may replace one that no statement has written. It never replaces one that the "
        "SELECT reads, or a view.",
        default="false",
    ),
)


@functools.cache
def attribute_table(verb: str) -> Mapping[str, AttributeType]:
    """The attributes of the statements with a verb, by name, without ``model.*``."""
    flags = COMMANDS.get(verb.lower())  # TO EXPLAIN runs no job.
    schema = {**json_schema(flags)["properties"], **json_schema(KubernetesFlags)["properties"]} if flags else {}
    found = {each.name: each for each in _OWN if verb in each.statements}
    for name, option in schema.items():
        if name not in _FROM_STATEMENT | _OF_THE_COMMAND:
            limits = (option["minimum"], option["maximum"]) if "minimum" in option else None
            found[name] = AttributeType(
                name=name,
                kind=option["type"],
                meaning=option["description"].replace("--", ""),
                statements=(verb,),
                default=_default(verb, name, option.get("default", "")),
                choices=tuple(option.get("enum", ())),
                limits=limits,
            )
    return MappingProxyType(found)


def _default(verb: str, name: str, default: Value) -> str:
    return "by the data" if verb == TRAIN and name in _BY_THE_DATA else _spelled(default)


@dataclass(frozen=True, slots=True)
class CheckedAttributes:
    """Values of the attributes, by kind, and what is wrong with them.

    Attributes:
        options: of the job, by the name of the option.
        settings: ``validation.*`` and ``predict.*``, by name.
        notes: what is accepted and has no effect.
    """

    options: Mapping[str, Value]
    settings: Mapping[str, Value]
    faults: tuple[Fault, ...]
    notes: tuple[str, ...]


def with_current_names(attributes: Iterable[Attribute]) -> tuple[Attribute, ...]:
    """The attributes without SQLFlow's names, and without those of SQLFlow that have no effect here."""
    return tuple(
        replace(each, name=Name(_FORMER_NAMES.get(each.name.text, each.name.text), each.name.position))
        for each in attributes
        if each.name.text not in _WITHOUT_EFFECT
    )


def check_attributes(statement: JobStatement) -> CheckedAttributes:
    """Check names and values, except those of ``model.*``."""
    verb = _VERBS[type(statement)]
    known = attribute_table(verb)
    notes = tuple(f"{each.name} has no effect." for each in statement.attributes if each.name.text in _WITHOUT_EFFECT)
    options: dict[str, Value] = {}
    settings: dict[str, Value] = {}
    faults: list[Fault] = []
    for given in with_current_names(statement.attributes):
        name = given.name.text
        if name.startswith(MODEL):
            if verb != TRAIN:
                message = f"{name} is an argument of the model, which is trained already."
                faults.append(Fault(message, given.name.position, len(name), "Leave it out."))
            continue
        if name not in known:
            faults.append(_unknown(given.name, verb, known))
        elif wrong := known[name].wrong(given.value):
            faults.append(Fault(f"{name} {wrong}.", given.position, len(_spelled(given.value))))
        elif "." in name:
            settings[name] = given.value
        elif name in options:
            faults.append(Fault(f"{name} is given twice.", given.name.position, len(name)))
        else:
            options[name] = _option(given.value, known[name])
    return CheckedAttributes(MappingProxyType(options), MappingProxyType(settings), tuple(faults), notes)


def _unknown(name: Name, verb: str, known: Mapping[str, AttributeType]) -> Fault:
    text = name.text
    if text in _FROM_STATEMENT:
        message, hint = f"{text} is not an attribute: it follows from the statement.", "Leave it out."
    elif text in _OF_THE_COMMAND:
        message, hint = f"{text} is not an attribute.", "It belongs to the command or to the environment."
    else:
        message = f"{text!r} is not an attribute of TO {verb}."
        meant = similar(text, (*known, *_FORMER_NAMES)) or similar(text.rpartition(".")[2], known, 0.8)
        hint = f"Did you mean {meant}?" if meant else "Arguments of the model begin with model." * (verb == TRAIN)
    return Fault(message, name.position, len(text), hint)


def _number(value: Value, kind: str) -> float | None:
    """A number of this kind; None: it is none. A duration such as ``1.5m`` is a number of seconds."""
    if kind not in ("integer", "number") or isinstance(value, (bool, tuple)) or value is None:
        return None
    try:
        found = float(Seconds(value)) if kind == "number" else float(value)
    except (ValueError, OverflowError):
        return None
    return found if kind == "number" or (isinstance(value, int) or found.is_integer()) else None


def _option(value: Value, attribute: AttributeType) -> Value:
    """A value as the Python API takes it for an option: ``use_async`` is a choice of texts, several names are one."""
    return _spelled(value) if attribute.choices or isinstance(value, tuple) else value


def _spelled(value: Value) -> str:
    """A value as a statement spells it."""
    if isinstance(value, tuple):
        return ",".join(_spelled(each) for each in value)
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
