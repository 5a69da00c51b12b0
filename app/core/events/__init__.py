"""The facts a run can leave in its log, one file per family."""
