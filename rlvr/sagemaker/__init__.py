"""Amazon SageMaker: a recipe as a training job.

On the side of the notebook, where scripts/sagemaker.py runs, settings.py is what the recipe says about the job,
files.py what travels, sdk.py the request, plan.py what is found wrong or costly before anything is uploaded, and
job.py, follow.py, fetch.py and cleanup.py what comes after. On the side of the container there are process_one.py,
topology.py and inside.py, which scripts/run_finetuning.sh calls. Nothing is imported here: the container's side is
standard library only.
"""
