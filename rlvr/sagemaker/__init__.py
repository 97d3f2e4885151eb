"""Run a recipe as an Amazon SageMaker training job.

On the machine that submits: `plan` (what a job needs, costs and what is wrong with it), made of `upload` (the job's
files), `request` (the CreateTrainingJob request), `validation`, `job_preflight` and `cost`; then `submission` or `sdk`,
`follow`, `fetch` and `cleanup`. `container/` runs inside the job. This file imports nothing, because the container's
first programs have only the standard library.
"""
