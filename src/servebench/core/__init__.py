"""Know the words every package shares: units, faults, outcomes and the records that cross borders."""
