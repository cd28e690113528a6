"""Know what a workload may ask for that the load generator of this version cannot drive.

The file format, the model and the schedule know these things already. Whoever teaches the load generator one of them
takes its line out here.
"""

from servebench.workload.model import Workload
from servebench.workload.places import Wrong


def undriven(workload: Workload) -> list[Wrong]:
    """Return what of a workload would not be sent as it is meant, each with its place in the file."""
    del workload  # everything that the file can say today is driven
    return []
