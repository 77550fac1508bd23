"""Fitting a few physical values of a spec to measured runs.

``parameters`` says what may move and how far, ``boards`` and ``observations`` what takes part, ``timer`` times rows on
kernels under trial values, ``row_candidates`` ranks the kernels of a row, ``heuristic_bias`` fits the choice of the
library, ``search`` finds physical values, ``fit`` alternates the two and assesses the result, ``report`` states it,
``fit_tables`` makes tables of it, ``spec_writer`` a spec, and ``session`` goes from tables to spec.
"""
