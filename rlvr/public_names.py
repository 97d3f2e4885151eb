"""The public names of `rlvr`, and the modules that define them."""

MODULES = {
    "AnswerVerdict": "rlvr.verifiers.math.grader",
    "InputError": "rlvr.errors",
    "Judgement": "rlvr.verifiers.code.types",
    "Limits": "rlvr.sandbox.limits",
    "Problem": "rlvr.errors",
    "ProgramRun": "rlvr.verifiers.code.program_run",
    "Recipe": "rlvr.config.recipe",
    "Reward": "rlvr.scoring.reward",
    "Submission": "rlvr.verifiers.code.types",
    "Task": "rlvr.data.task",
    "check_answer": "rlvr.verifiers.math.grader",
    "check_answers": "rlvr.verifiers.math.grader",
    "completion_text": "rlvr.verifiers.completion_text",
    "judge": "rlvr.verifiers.code.judge",
    "judge_many": "rlvr.verifiers.code.judge",
    "load_recipe": "rlvr.config.recipe",
    "load_rewards": "rlvr.scoring.registry",
    "load_tasks": "rlvr.scoring.registry",
    "own_turn": "rlvr.verifiers.completion_text",
    "run_program": "rlvr.verifiers.code.program_run",
}
