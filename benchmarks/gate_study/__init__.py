"""What the gate is worth, in simulated worlds whose truth is known.

    python -m benchmarks.gate_study run --half tuning
    python -m benchmarks.gate_study report

`families` holds worlds and seeds, `arms` what is compared, `world` and `run` the simulation, `judging` how an
arm decides, `settling` what happens at the end of an epoch, `luck` the check of `expected_null_accepts`,
`report` the tables. Nothing here says anything about a real model.
"""
