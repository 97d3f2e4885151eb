#!/usr/bin/env bash
# What every host of a SageMaker training job runs, in /opt/ml/input/data/code, when its requirements are installed.
# From the job's environment: GRPO_RECIPE, GRPO_LAUNCHER (a file of accelerate_configs/, or python), and in a job with
# several instance groups GRPO_TRAIN_GROUP, GRPO_JUDGE_GROUP, GRPO_ROLLOUT_GROUP; GRPO_RAY=1 makes one Ray cluster of all
# hosts. See docs/sagemaker.md.
set -euo pipefail

fail() {
    printf '%s\n' "$1" >&2
    printf '%s' "$1" > "${SM_OUTPUT_FAILURE:-/opt/ml/output/failure}"  # the first to write it is whom people read
    exit 2
}

# The SDK bypasses the image's own entry point, which would do this: use the image's newer CUDA driver library where the
# host's driver is older than it.
compat=/usr/local/cuda/compat/libcuda.so.1
if [[ -e $compat ]]; then
    image=$(readlink -f "$compat") && image=${image##*libcuda.so.}
    host=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader --id=0 2> /dev/null || true)
    if [[ -n $host && $host != "$image" && $(printf '%s\n%s\n' "$host" "$image" | sort -V | head -n 1) == "$host" ]]; then
        export LD_LIBRARY_PATH=${compat%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi
if [[ ${SM_NUM_GPUS:-0} -gt 0 ]] && ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    fail "torch sees none of the $SM_NUM_GPUS GPUs of ${SM_CURRENT_INSTANCE_TYPE:-this host}: its driver is too old for the image's CUDA. Choose an older image (sagemaker.image)."
fi

words=/tmp/grpo-topology
place=$(python3 -m rlvr.sagemaker.container.topology 2> "$words") || fail "$(cat "$words")"
eval "$place"

recipe=${GRPO_RECIPE:-recipe.yaml}
[[ -f $recipe ]] || fail "There is no recipe $recipe among the uploaded files."
launcher=${GRPO_LAUNCHER:-zero3}
export HF_HOME=${HF_HOME:-/tmp/huggingface}  # on the job's own volume; the root disk is small
if [[ $GRPO_MACHINES -gt 1 ]]; then
    export NCCL_SOCKET_IFNAME=$GRPO_NETWORK_INTERFACE GLOO_SOCKET_IFNAME=$GRPO_NETWORK_INTERFACE
fi
echo "$SM_CURRENT_HOST: $GRPO_ROLE, host $GRPO_HOST_RANK of its role; $GRPO_PROCESSES processes on $GRPO_MACHINES hosts train, led by $GRPO_MAIN_HOST"

# http://judge:8000 in a recipe is whichever hosts judge: the service gives them their numbers.
if [[ -n $GRPO_JUDGE_HOSTS ]]; then
    judges=http://${GRPO_JUDGE_HOSTS//,/":\1,http://"}:\\1
    sed "s#http://judge:\([0-9]*\)#$judges#g" "$recipe" > /tmp/grpo-recipe.yaml
    recipe=/tmp/grpo-recipe.yaml
fi

case $GRPO_ROLE in
train)
    program=(-m rlvr.sagemaker.container.rank run_grpo.py --config "$recipe" --output_dir /opt/ml/checkpoints/run)
    if [[ $GRPO_PROCESSES -eq 1 && $launcher == cpu ]]; then
        launcher=python
    fi
    if [[ $launcher == python ]]; then
        [[ $GRPO_PROCESSES -eq 1 ]] || fail "The launcher is python, but $GRPO_PROCESSES processes should train: use ddp, zero2 or zero3 (sagemaker.launcher)."
        launch=(python3)
    else
        file=accelerate_configs/$launcher.yaml
        [[ -f $file ]] || fail "There is no launcher $launcher: accelerate_configs/ has $(cd accelerate_configs && echo *.yaml)."
        launch=(
            python3 -m accelerate.commands.launch --config_file "$file"
            --num_machines "$GRPO_MACHINES" --machine_rank "$GRPO_HOST_RANK"
            --num_processes "$GRPO_PROCESSES" --main_process_ip "$GRPO_MAIN_HOST" --main_process_port 29500
            --same_network --rdzv_backend static
        )
    fi
    exec python3 -m rlvr.sagemaker.container.entrypoint train "${launch[@]}" "${program[@]}"
    ;;
judge)
    if [[ ${GRPO_RAY:-} == 1 ]]; then
        exec python3 -m rlvr.sagemaker.container.entrypoint lend
    fi
    judge=scripts/serve_rewards.py
    [[ -f $judge ]] || fail "$SM_CURRENT_HOST is to judge, but $judge, which would do it, is not among the uploaded files."
    export PYTHONPATH=$PWD  # rlvr is not installed in the job
    exec python3 -m rlvr.sagemaker.container.entrypoint serve python3 "$judge" --config "$recipe" --host 0.0.0.0 --port 8000
    ;;
*)
    fail "$SM_CURRENT_HOST has the role $GRPO_ROLE, for which this version has no program. Remove its instance group."
    ;;
esac
