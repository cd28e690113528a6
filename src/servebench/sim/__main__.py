"""Know that `python -m servebench.sim` starts the simulator."""

from servebench.sim.main import main

main()
