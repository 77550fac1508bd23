"""Fitting a few physical values of a spec to measured runs.

``parameters`` says what may move and how far, ``cases`` times rows under trial values, ``times`` fits the physical
values, ``choice`` the likings of the library, ``fit`` alternates the two and judges the outcome, ``spec_writer``
writes the spec, ``tables`` tells what moved.
"""
