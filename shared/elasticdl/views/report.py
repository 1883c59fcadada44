"""The report of a job: the metrics, the audit, and where the time went. Pure: it follows from the folded log alone.

``--report FILE`` writes it as one JSON object with these keys.

Times are in seconds, sizes in bytes; unknown numbers
are null. A job that was resumed has several runs. "This run" is the last one; "all runs" leaves out the time between
them.

==========================  ==========================================================================================
``job``                     the job's id
``state``                   ``succeeded``, ``failed`` or ``stopped``; until then what the job does, such as ``training``
``kind``                    ``train``, ``evaluate`` or ``predict``
``message``                 why it failed or was stopped, else empty
``interrupted``             whether the user has stopped it
``seed``                    of shuffling and initial weights
``initial_model``           with ``--initial_model``: ``source`` of the weights, and a ``note`` on which variables took
                            them and which did not (empty: the model was not checked before the start); else null
``plan``                    ``fingerprint``; ``epochs`` as requested; ``epochs_run`` with ``--max_step`` applied, and
                            for these ``tasks``, ``batches``, ``records``; ``validation_records`` (0 without
                            validation data)
``audit.exact``             whether every group absorbed every batch of every epoch exactly once, by the ledgers in the
                            final snapshots; false if that was not shown.
                            Of an evaluation or prediction: whether every record of the data's index was evaluated
                            or predicted exactly once
``audit.batches``           batches that each group absorbed, over all epochs; or that were evaluated or predicted
``audit.records``           records that each group absorbed, over all epochs; or that were evaluated or predicted
``audit.groups``            number of ledgers that were compared
``audit.repaired``          tasks that the first audit found missing; a number other than 0 is a bug in ElasticDL
``audit.skipped``           tasks that a resume has skipped, with the range of records of each
``audit.skipped_records``   records of these that were not absorbed
``audit.problems``          one sentence for each thing that is wrong
``audit.replicas``          jobs with AllreduceStrategy: one sentence for each replica that differed from the others
``snapshots.damaged``       for each damaged object of a snapshot: ps, snapshot, object, problem, and instead: the
                            snapshot that the ps used (empty: the audit found the damage, and the ps took another one)
``metrics``                 the latest metrics of the model
``metrics_from``            the data that they are from: ``validation`` or, before any evaluation, ``training``
``metrics_best``            the best possible values on that data; empty unless the data set states them
``best``                    with ``--save_best`` or ``--early_stopping_patience`` the best evaluated model: metric,
                            value, evaluation, epoch (the last complete one), step, and exported: whether this model,
                            and not the last one, is exported; else null
``warnings``                one sentence for each time that the validation loss exploded while the training loss was
                            fine
``history.epochs``          for each epoch, from 1: epoch; batches and records whose loss and metrics are known, each
                            counted once (of a complete epoch all; of an epoch in progress those that workers have
                            reported); loss, the mean over these records; metrics on
                            the training data; validation, the metrics of the model at the end of the epoch, and
                            validation_step, its step (null: this state was not evaluated); learning_rate, the one
                            that callbacks have set (null: there are none); seconds
``history.evaluations``     for each evaluation: evaluation, epoch, epoch_end (whether it is of the model at the end of
                            that epoch), step, final, reason, metrics, seconds
``records_per_second``      of all runs: records, as in the history, by ``train_all_s``
``batches_computed``        batches computed in this run, up to some seconds ago; more than absorbed if some were
                            computed again
``goodput``                 batches absorbed in this run / batches computed in it, at most 1; null before any.
                            A batch counts as absorbed once, and only if the least advanced group has it in the end:
                            batches that a ps absorbed and lost when it died do not count
``worker_seconds``          seconds of all expected workers in this run, until the end of training: ``useful`` and
                            ``recomputed`` work (in proportion to goodput), ``stalled`` (running, but slower than
                            usual), ``starting`` (from the order to start, or the death of the former instance, to the
                            first batch)
``wall_s``                  of this run, from the command to the end, or to the last record if it has not ended; the sum
                            of the next three, if they are known; null: not measured yet
``start_s``                 of this run, from the command to the first gradient that a ps applied, to the second; null:
                            none
``train_s``                 of this run, from there to the end of the last task; null: no task ended in it
``close_s``                 of this run, from there to the end: audit, evaluation and export, or the last snapshots
``train_all_s``             of all runs, from the start of the first task to the end of the last one
``seconds``                 of all runs, where the workers' time for finished tasks went, summed over workers: read,
                            feed, pull, compute, push, total
``staleness``               of all runs, of the batches that were absorbed with a gradient: ``batches``, their number
                            (repeated ones count again); ``mean``, ``p99`` and ``largest`` number of optimizer updates
                            that a ps made between a batch's pull and its absorption, the most of all ps;
                            ``exchange_s``, the time of pulls, of pushes and of waiting for them, for finished tasks,
                            and ``exchange_share``, its share of the workers' time for these; ``workers``, the same by
                            name of the worker; ``bound``, ``--max_staleness`` or one less than the workers that
                            trained (null: none), and ``beyond_bound``, the batches that were later all the same,
                            because a worker died or was too slow
``data``                    of this run, data in object storage: ``requests`` for it, ``fetched_bytes`` that they
                            returned, and ``cached_bytes`` that workers read from their disks instead
``overflows``               of all runs, how many batches were absorbed without gradients, because these overflowed
                            float16 (repeated ones count again); the loss scale was halved each time
``tables``                  table with ``min_count`` or ``expire_after`` -> what it held at the last count: ``rows``;
                            ``candidates``, ids that wait for a row; and since training began the rows that were
                            ``admitted`` and ``expired``, each as often as it happened, and the ``dropped_gradients``
                            of candidates
``services``                of this run, after its end: name -> ``cpu_s``, ``rss_max_bytes``, ``restarts`` (after a
                            death; starts by scaling do not count)
``ring``                    with AllreduceStrategy: ``generations`` of the ring that were formed, and the ``members`` of
                            the last one of this run, its leader first; else null
``resumes``                 how often the job was resumed, according to the log
``log.lost``                for each lost part of the log: ``resumed_s``, when the job was resumed without it;
                            ``after_s``, the last record before it (null: it started with the job); ``until_s``, the
                            last record in it (null: unknown), in seconds since the epoch; ``records``, their number
                            (null: unknown). The progress made in that time is known, its duration is not
``log.unreadable``          messages on the bus that can't be read and were skipped: their ``count``, and of the
                            ``first`` ones ``seq``, their number in their stream, ``sender``, ``subject`` and ``reason``
``predictions``             of a prediction: predicted ``files`` and ``records``, ``format`` of the files; else null
``output``                  folder of the exported model or of the predictions, or empty
``export_tables``           whether tables are in the files of the exported model (``model``) or beside it (``parquet``)
``export_weights``          whether only the weights are exported, as one file
==========================  ==========================================================================================
"""

from __future__ import annotations

from typing import Any

from elasticdl.master.core import State
from elasticdl.master.core.evaluation.state import EvaluationPhase
from elasticdl.shared.messages.commands import JobState
from elasticdl.shared.messages.measurements import RunMeasured
from elasticdl.shared.storage import display
from elasticdl.views.history import (
    best_row,
    epoch_rows,
    evaluation_rows,
    final_metrics,
    validation_warnings,
)
from elasticdl.views.incidents import damaged_rows, lost_rows, unreadable_facts
from elasticdl.views.lost_time import goodput_of
from elasticdl.views.progress import records_of
from elasticdl.views.statistics import staleness_facts, table_rows
from elasticdl.views.tasks import skipped_tasks

Report = dict[str, Any]


def build(state: State) -> Report:
    """The report as JSON values, of a job that is running or has ended."""
    spec, training = state.job, state.training
    metrics, metrics_from = final_metrics(state)
    train_all_s = max(0.0, state.trained_s - state.first_step_s) if state.first_step_s else 0.0
    run = state.measured
    useful = goodput_of(run)
    return {
        "job": spec.job,
        "state": _state(state),
        "kind": spec.kind.value,
        "message": message_of(state),
        "interrupted": run is not None and run.is_interrupted,
        "seed": spec.plan.seed,
        "initial_model": {"source": spec.initial.text, "note": spec.initial.note} if spec.initial else None,
        "plan": {
            "fingerprint": spec.plan.fingerprint,
            "tasks": spec.plan.tasks,
            "batches": spec.plan.batches,
            "records": spec.plan.records,
            "epochs": spec.plan.epochs,
            "epochs_run": spec.plan.epochs_run,
            "validation_records": spec.validation.records if spec.validation else 0,
        },
        "audit": _audit(state),
        "snapshots": {"damaged": damaged_rows(state)},
        "metrics": metrics,
        "metrics_from": metrics_from,
        "metrics_best": dict(spec.metrics_best) if metrics_from == "validation" else {},
        "best": best_row(state),
        "warnings": validation_warnings(state),
        "history": {"epochs": epoch_rows(state), "evaluations": evaluation_rows(state)},
        "records_per_second": round(records_of(state) / train_all_s, 1) if train_all_s else None,
        "batches_computed": run.batches_computed if run else 0,
        "data": run.data if run else {},
        "goodput": None if useful is None else round(useful, 4),
        "worker_seconds": _worker_seconds(run) if run else {},
        **_durations(state, run),
        "train_all_s": round(train_all_s, 3),
        "seconds": {part: round(seconds, 3) for part, seconds in sorted(training.statistics.seconds.items())}
        if training
        else {},
        "staleness": staleness_facts(state),
        "overflows": state.training.statistics.overflows if state.training else 0,
        "tables": table_rows(state),
        "services": {
            name: {"cpu_s": each.cpu_s, "rss_max_bytes": each.rss_max_bytes, "restarts": each.restarts}
            for name, each in sorted(state.processes.items())
        },
        "ring": {"generations": state.ring.generation, "members": [one.worker for one in state.ring.members]}
        if spec.has_ring
        else None,
        "resumes": state.resumes,
        "log": {"lost": lost_rows(state), "unreadable": unreadable_facts(state)},
        "predictions": _predictions(state),
        "output": display(spec.output),
        "export_tables": spec.export_tables.value,
        "export_weights": spec.export_weights,
    }


def _predictions(state: State) -> dict[str, Any] | None:
    spec, prediction = state.job.prediction, state.prediction
    if spec is None:
        return None
    return {"files": len(prediction.files), "records": prediction.records, "format": spec.format}


def _worker_seconds(run: RunMeasured) -> dict[str, float]:
    """The workers' seconds by name. The share of computed batches that were absorbed in the end is the useful work."""
    useful = goodput_of(run) or 0.0
    parts = {
        "useful": run.working_s * useful,
        "recomputed": run.working_s * (1.0 - useful),
        "stalled": run.stalled_s,
        "starting": run.starting_s,
    }
    return {part: round(seconds, 3) for part, seconds in parts.items()}


def _durations(state: State, run: RunMeasured | None) -> dict[str, float | None]:
    """The durations of the present run and of its parts, each of which starts where the one before ends."""
    durations: dict[str, float | None] = dict.fromkeys(("wall_s", "start_s", "train_s", "close_s"))
    if run is None:
        return durations
    started_s, first_s, trained_s = run.started_s, run.first_gradient_s, state.trained_s
    wall_s = durations["wall_s"] = round((run.ended_s or state.now_s) - started_s, 3)
    if trained_s <= started_s:  # No task has ended in this run.
        durations["start_s"] = round(first_s - started_s, 3) if first_s else None
        return durations
    until_s = round(trained_s - started_s, 3)
    durations["close_s"] = round(wall_s - until_s, 3)
    if first_s:
        # The heartbeat that reports the first gradient may arrive after the last task has ended.
        start_s = durations["start_s"] = round(min(first_s, trained_s) - started_s, 3)
        durations["train_s"] = round(until_s - start_s, 3)
    return durations


def message_of(state: State) -> str:
    """Why a job failed or was stopped; empty after success."""
    if state.measured and state.measured.abort_reason:
        return state.measured.abort_reason
    if state.job_state is JobState.SUCCEEDED:
        return ""
    return state.failure.message if state.failure else state.stop_reason


def state_facts(state: State) -> dict[str, Any]:
    """The status of a job, as JSON values: what its log says at any time."""
    training = state.training
    return {
        "state": state.job_state.value,
        "message": state.failure.message if state.failure else state.stop_reason,
        "tasks": {"finished": len(training.complete) if training else 0, "all": state.plan.tasks if training else 0},
        "epochs": epoch_rows(state),
        "evaluations": evaluation_rows(state),
        "warnings": validation_warnings(state),
        "staleness": staleness_facts(state),
        "tables": table_rows(state),
        "snapshots": {"damaged": damaged_rows(state)},
        "log": {"lost": lost_rows(state), "unreadable": unreadable_facts(state)},
    }


def _state(state: State) -> str:
    run = state.measured
    if run and run.abort_reason and not state.is_final:
        return JobState.STOPPED.value if run.is_interrupted else JobState.FAILED.value
    return state.job_state.value


def _audit(state: State) -> dict[str, Any]:
    if not state.job.kind.trains:
        return _record_audit(state)
    verdict = state.closing.audit
    return {
        "exact": verdict is not None and verdict.exact,
        "batches": verdict.batches if verdict else 0,
        "records": verdict.records if verdict else 0,
        "groups": verdict.groups if verdict else 0,
        "repaired": state.repaired,
        "skipped": skipped_tasks(state),
        "skipped_records": verdict.skipped_records if verdict else 0,
        "problems": list(verdict.problems) if verdict else [],
        "replicas": list(state.ring.differences),
    }


def _record_audit(state: State) -> dict[str, Any]:
    """An evaluation or prediction is done only if it has counted all records of the index."""
    if state.job.prediction:
        done = state.closing.exported or state.job_state is JobState.SUCCEEDED
    else:
        done = any(each.phase is EvaluationPhase.DONE for each in state.evaluations)
    return {
        "exact": done,
        "batches": state.job.work.batches if done else 0,
        "records": records_of(state) if done else 0,
        "groups": 0,
        "repaired": 0,
        "skipped": [],
        "skipped_records": 0,
        "problems": [],
        "replicas": [],
    }
