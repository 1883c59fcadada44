"""Flags of ElasticDL's first command line (2018 to 2021) that have no counterpart: what to do in their place."""

from __future__ import annotations

from collections.abc import Sequence

from elasticdl.shared.errors import UserError

_ALWAYS = "Remove it: this always happens."
_RESTARTS = "Remove it: the master restarts processes that die or send no heartbeat, and no minibatch is lost."
_SNAPSHOTS = "Remove it: a job keeps its latest snapshots and deletes older ones."

FORMER_FLAGS = {
    "worker_image": "Use --image_name, the image of the workers.",
    "restart_policy": _RESTARTS,
    "relaunch_timeout_worker": _RESTARTS,
    "relaunch_on_worker_failure": _RESTARTS,
    "aux_params": _RESTARTS,
    "task_fault_tolerance": _ALWAYS,
    "need_elasticdl_job_service": _ALWAYS,
    "need_task_manager": _ALWAYS,
    "need_pod_manager": _ALWAYS,
    "use_go_ps": "Remove it: there is one kind of parameter server.",
    "keep_checkpoint_max": _SNAPSHOTS,
    "get_model_steps": "Use --max_staleness=N, which bounds how old the weights of a minibatch may be.",
    "sync_version_tolerance": "Use --max_staleness=N. With --use_async=false gradients are never stale.",
    "populate_env_names": "Use --envs=NAME=value,NAME=value.",
    "cluster_spec_json": "Use --cluster_spec=FILE, which takes YAML and JSON: strategic merge patches of the pods.",
    "force_use_kube_config_file": "Remove it: the kubeconfig is used where there is one.",
    "log_file_path": "Use elasticdl logs JOB, which prints the logs of all processes, also of those that ended.",
    "log_loss_steps": "Remove it: the terminal shows the loss, and --tensorboard_log_dir=DIR writes its curve.",
    "evaluation_start_delay_secs": "Use --evaluation_throttle_secs=S or --evaluation_steps=N.",
    "extra_pypi_index": "Configure pip in the Dockerfile that elasticdl zoo init writes.",
    "job_command": "ElasticDL runs Keras models: write a model file and name it with --model_def.",
    "need_tf_config": "ElasticDL runs Keras models: write a model file and name it with --model_def.",
}


def refuse_former_flags(arguments: Sequence[str]) -> None:
    """Refuse flags of the first command line by name."""
    for argument in arguments:
        name = argument.partition("=")[0].removeprefix("--")
        if argument.startswith("--") and name in FORMER_FLAGS:
            raise UserError(
                f"--{name} is a flag of an earlier ElasticDL and does not exist any more",
                hint=FORMER_FLAGS[name],
                usage=True,
            )
