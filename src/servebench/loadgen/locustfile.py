"""Know what `locust -f` needs to run servebench: the plugin installed, one user class."""

from servebench.loadgen.plugin import Plugin
from servebench.loadgen.users import LoadToken

__all__ = ["LoadToken"]

Plugin().install()
