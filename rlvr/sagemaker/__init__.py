"""Run a recipe as an Amazon SageMaker training job.

On the machine that submits: `plan` (what a job needs, costs and what is wrong with it), made of `upload` (the job's
files), `request` (the CreateTrainingJob request), `validation`, `preflight` and `cost`; then `submission`, `follow`,
`fetch` and `cleanup`. `container/` runs inside the job. This file imports nothing, because the container's first
programs have only the standard library.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sagemaker.train import ModelTrainer

    from rlvr.sagemaker.plan import JobPlan


def model_trainer(plan: JobPlan) -> ModelTrainer:
    """A ModelTrainer of the SageMaker Python SDK whose `train()` submits the plan's request.

    `train()` uploads the plan's files first, so the plan must still be open. The job's name is the plan's with another
    time, and all other commands of this project find the job by it.

    Raises:
        InputError: the plan has problems, or the SDK is not installed. `train()` raises it for problems of the account.
    """
    from rlvr.sagemaker.sdk import make_model_trainer

    return make_model_trainer(plan)
