"""Makes the site of the documentation: ``make docs`` builds it from docs/, README.md, CHANGELOG.md and the code.

``hooks`` is what MkDocs calls. Each of the other modules writes one kind of page, or prepares the Markdown of docs/,
as a pure function of text or code. The pages of the reference are made whenever the site is built and are not
committed, so they can't be stale. May import everything of ``elasticdl`` that does without TensorFlow.
"""
