"""Fitting a few physical values of a spec to measured runs.

``parameters`` says what may move and how far, ``cases`` times rows under trial values, ``choice`` fits the likings of
the library, ``fit`` alternates these with the physical values and judges the outcome, ``summary`` goes from files to a
report, ``spec_writer`` writes the spec, ``tables`` tells what moved.
"""
