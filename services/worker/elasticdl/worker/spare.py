"""``python -m elasticdl.worker.spare``: has imported everything and built the model, and waits to become a worker.

The launcher starts ``--spare_workers`` of these once the workers run, and gives one of them the place of a worker that
has died (``elasticdl.shared.process.spares``). So a death costs no time of imports and of building the model. A
spare that can't build the model ends; workers are then started without it.
"""

from __future__ import annotations

import importlib
import os
import sys

from elasticdl.shared.errors import ElasticDLError
from elasticdl.shared.messages.codec import decode_spec
from elasticdl.shared.process import model_check, spares
from elasticdl.shared.process.exit_codes import exit_code, leave
from elasticdl.shared.process.fork_server import Handover
from elasticdl.shared.storage.atomic import replace_text
from elasticdl.worker import main as worker
from elasticdl.worker.model_check import place, running_batches
from elasticdl.worker.model_imports import import_model_code


def main() -> int:
    """Entry point."""
    folder, number = place()
    handover = Handover(model_check.pipe_of(folder, number))
    import_model_code()
    from elasticdl.worker.model_builder import build
    from elasticdl.worker.model_trial import try_model

    spec = decode_spec((folder / model_check.SPEC_FILE).read_bytes())
    try:
        with running_batches(spec) as running:
            built = build(spec, running)
            try_model(built, running)  # TensorFlow compiles a function when it is called for the first time.
    except ElasticDLError as error:
        sys.stderr.write(f"{error}\n")
        return exit_code(error)
    built.runner.forget()
    if spec.has_ring:
        importlib.import_module("elasticdl.worker.replica.ring_worker")
    replace_text(spares.ready_file(folder, number), str(os.getpid()))
    environment = dict(handover.wait())
    spares.redirect_output(environment)
    os.environ.clear()
    os.environ.update(environment)
    return worker.main(built)


if __name__ == "__main__":
    leave(main())
