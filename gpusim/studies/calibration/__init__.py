"""Fitting a few physical values of a spec to measured runs.

``parameters`` says what may move and how far, ``boards`` and ``observations`` what takes part, ``timer`` times rows on
kernels under trial values, ``row_candidates`` ranks the kernels of a row, ``heuristic_bias`` fits the choice of the
library, ``row_kernels`` brings these together. ``search`` finds physical values; around them ``linear_model`` is solved
again for a part of the rows, ``identification`` keeps what the rows tell, and ``physics`` knows what no board can do.
``fit`` alternates values and choice, ``assessment`` fits without rows, sources and boards; ``report`` states it all,
``fit_tables`` makes tables of it, ``spec_writer`` a spec, and ``session`` goes from tables to spec. ``library_fit``
finds the weights of the choice that architectures share, and ``library_session`` goes from tables to their file.
"""
