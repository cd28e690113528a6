"""Know the master's side: a run's course, its workers as the master sees them, and how the run is written down."""
