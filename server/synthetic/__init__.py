"""From a noisy release to rows that anyone may sample: fitting, keeping, drawing."""
