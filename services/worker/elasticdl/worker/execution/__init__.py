"""Executes the commands of the worker's core: one executor per lane, no decisions.

======================  ==========================  ===================================================================
module                  lane                        executes
======================  ==========================  ===================================================================
``compute_lane.py``     ``compute``, main thread    training steps, evaluation, metrics, merge
``exporter.py``         ``compute``                 export of the model and of its versions
``predictor.py``        ``compute``                 the commands of prediction jobs
``input_lane.py``       ``input``                   reads and feeds batches, finds ids
``ps_lane.py``          ``ps``                      pulls, pushes, progress of tasks
``callback_tasks.py``   ``compute``                 hooks of callbacks between two epochs
``broker_lane.py``      ``broker``, ``queue``,      events, acknowledgements, taking tasks, leases
                        ``leases``
``executor.py``         all                         passes each command to its executor; errors become events
======================  ==========================  ===================================================================

``batch_store.py`` keeps tensors, weights and gradients by ``BatchRef``; ``round_steps.py`` computes training steps that
need the other batches of their round. May import everything in ``elasticdl.worker``
except ``model_builder.py`` and the user's model, which arrive as ports; must not import TensorFlow.
"""
