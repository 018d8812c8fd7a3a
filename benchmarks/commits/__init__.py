"""Two commits side by side: workload runs in each checkout, __main__ takes turns and compares."""
