# A package of its own: smdebug-rulesconfig, which the SageMaker SDK depends on, installs one called `tests` as well.
