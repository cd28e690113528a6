"""Know what `locust -f` needs to run servebench: the plugin installed, signals answered, one user class."""

from servebench.loadgen.early_stops import answer_stops
from servebench.loadgen.plugin import Plugin
from servebench.loadgen.users import LoadToken

__all__ = ["LoadToken"]

answer_stops()
Plugin().install()
