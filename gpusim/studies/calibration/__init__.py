"""Fitting a few physical values of a spec to measured runs.

``parameters`` says what may move and how far, ``observations`` which rows take part, ``timer`` times rows on kernels
under trial values, ``row_candidates`` ranks the kernels of a row, ``heuristic_bias`` fits the choice of the library,
``search`` finds physical values, ``fit`` alternates the two and assesses the result, ``report`` goes from files to a
report, ``spec_writer`` writes the spec, ``fit_tables`` makes the tables.
"""
