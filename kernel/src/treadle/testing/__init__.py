"""Kits and checks for those who write plugins, and for treadle's own tests. Needs treadle[testing] (pytest).

`faults_of` reads any log and says what is wrong with it. `summary` says what a log means, for comparing.
"""

from treadle.testing.checker import faults_of, prefix_faults, summary

__all__ = ["faults_of", "prefix_faults", "summary"]
