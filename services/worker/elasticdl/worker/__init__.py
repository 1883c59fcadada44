"""The worker: takes tasks, reads records, computes gradients with Keras, and pushes them to the parameter servers.

===============  ======================================================================================================
package          contents
===============  ======================================================================================================
``core``         all decisions: ``WorkerCore.handle(event, now_s)`` returns commands; no threads, no I/O
``execution``    executes the commands, one thread (lane) per kind of work; the main thread runs the model
``input``        reads and feeds batches and finds their ids
``ps_client``    the client of all parameter servers
``predictions``  files of predictions
``model``        the user's Keras model; with ``model_builder.py`` the only code that imports TensorFlow
===============  ======================================================================================================

``service.py`` connects them. May import ``elasticdl.shared``; must not import any other service.
"""
