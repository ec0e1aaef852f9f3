"""Words for what a run, plan or budget promises: for model files, the terminal and pages."""
