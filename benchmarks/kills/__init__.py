"""What a run survives: `python -m benchmarks kills`.

`runs` says what a run is that something can happen to, `kinds` lists them, small models on real
storage, and `outcomes` has what can come of a fault. Then a file for each kind of fault:
`kill_and_resume`, with `worker`, whose copies are killed, and `stops`, where in a write they are;
`disks` that are full or read only; `damage` of files; `writers`, two at once; `power_cut`,
with `recorder`, which replays a part of what was written. `memory` measures long runs, `command`
puts all on the command line.
"""
