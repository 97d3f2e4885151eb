#!/usr/bin/env bash
# Start a host's program in a SageMaker training job. pid1.py runs it on every host. The job's environment sets
# GRPO_RECIPE; GRPO_LAUNCHER (a file of accelerate_configs/, or python); with several instance groups GRPO_TRAIN_GROUP,
# GRPO_JUDGE_GROUP; GRPO_RAY=1 for one Ray cluster of all hosts; and GRPO_PROFILE, the words of a
# profile. See docs/sagemaker.md.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fail() { # MESSAGE [EXIT CODE]
    printf '%s\n' "$1" >&2
    printf '%s' "$1" > /opt/ml/output/failure
    exit "${2:-2}"
}

# If the host's driver is older than the image's CUDA driver library, use the library. The image's own entry point would do
# this, but the job's replaces it.
compat=/usr/local/cuda/compat/libcuda.so.1
if [[ -e $compat ]]; then
    image=$(readlink -f "$compat") && image=${image##*libcuda.so.}
    host=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader --id=0 2> /dev/null || true)
    if [[ -n $host && $host != "$image" && $(printf '%s\n%s\n' "$host" "$image" | sort -V | head -n 1) == "$host" ]]; then
        export LD_LIBRARY_PATH=${compat%/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    fi
fi

errors=/tmp/grpo-topology-errors
assignments=$(python3 -m rlvr.sagemaker.container.topology 2> "$errors") || fail "$(cat "$errors")"
eval "$assignments"
if [[ $GRPO_GPUS -gt 0 ]] && ! python3 -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
    fail "torch sees none of the $GRPO_GPUS GPUs of $GRPO_HOST: the driver is too old for the image's CUDA. Use an older image (sagemaker.image)."
fi

recipe=${GRPO_RECIPE:-recipe.yaml}
[[ -f $recipe ]] || fail "The recipe $recipe was not uploaded."
launcher=${GRPO_LAUNCHER:-zero3}
export HF_HOME=${HF_HOME:-/tmp/huggingface}  # on the job's own volume; the root disk is small
if [[ $GRPO_MACHINES -gt 1 ]]; then
    export NCCL_SOCKET_IFNAME=${NCCL_SOCKET_IFNAME:-$GRPO_NETWORK_INTERFACE}
    export GLOO_SOCKET_IFNAME=${GLOO_SOCKET_IFNAME:-$GRPO_NETWORK_INTERFACE}
fi
echo "$GRPO_HOST: $GRPO_ROLE, host $GRPO_HOST_RANK of its role; $GRPO_PROCESSES processes on $GRPO_MACHINES hosts train, led by $GRPO_MAIN_HOST"

# http://judge:8000 in a recipe stands for all judge hosts, whose names only the service knows.
if [[ -n $GRPO_JUDGE_HOSTS ]]; then
    judges=http://${GRPO_JUDGE_HOSTS//,/":\1,http://"}:\\1
    sed "s#http://judge:\([0-9]*\)#$judges#g" "$recipe" > /tmp/grpo-recipe.yaml
    recipe=/tmp/grpo-recipe.yaml
fi

case $GRPO_ROLE in
train)
    if [[ $GRPO_PROCESSES -eq 1 && $launcher == cpu ]]; then
        launcher=python
    fi
    if [[ $launcher == python ]]; then
        [[ $GRPO_PROCESSES -eq 1 ]] || fail "The launcher is python, but the job has $GRPO_PROCESSES training processes. Use ddp, zero2 or zero3 (sagemaker.launcher)."
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
    output=/opt/ml/checkpoints/run
    read -ra profile <<< "${GRPO_PROFILE:-}"
    if [[ -n ${GRPO_PROFILE:-} ]]; then
        output=/tmp/run  # the service would copy what is below /opt/ml/checkpoints to the bucket
    fi
    program=(
        train "${launch[@]}"
        -m rlvr.sagemaker.container.rank run_grpo.py --config "$recipe" --output_dir "$output" "${profile[@]}"
    )
    ;;
judge)
    judge=scripts/serve_rewards.py
    if [[ ${GRPO_RAY:-} == 1 ]]; then
        program=(ray-node)
    elif [[ -f $judge ]]; then
        export PYTHONPATH=$PWD  # rlvr is not installed in the job
        program=(serve python3 "$judge" --config "$recipe" --host 0.0.0.0 --port 8000)
    else
        fail "$GRPO_HOST has the role judge, but its program $judge was not uploaded."
    fi
    ;;
esac

# pip prints hundreds of lines, which matter only if it fails.
log=/tmp/grpo-pip.log
requirements=(--requirement requirements.txt)
if [[ $GRPO_ROLE == train && -f vllm-requirements.txt ]]; then
    requirements+=(--requirement vllm-requirements.txt)
fi
if [[ ${#requirements[@]} -gt 2 ]] || python3 -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("vllm"))'; then
    export PIP_CONSTRAINT=${PIP_CONSTRAINT//job-constraints.txt/vllm-constraints.txt}
fi
python3 -m pip install --disable-pip-version-check "${requirements[@]}" > "$log" 2>&1 || {
    code=$?
    cat "$log" >&2
    error=$(grep -i '^error' "$log" | tail -n 1) || error="it ended with exit code $code. $(tail -n 1 "$log")"
    fail "pip can't install the job's requirements: $error" 1
}
echo "The requirements are installed after $SECONDS s."
exec python3 -m rlvr.sagemaker.container.entrypoint "${program[@]}"
