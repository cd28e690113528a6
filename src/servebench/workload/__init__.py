"""Know what load is wanted: the workload file, arrivals, traces, prompts and the schedule they give."""
