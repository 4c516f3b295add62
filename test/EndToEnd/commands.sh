# shellcheck shell=bash disable=SC2154,SC2046,SC2086,SC2154 # set by commands.py; words of flags
# What the commands of Inputs/*.txt share. Set before: $root of the project, its $build, $here (this folder), $golden models, a free $port.
train="--data $golden/gpt2/tokens.bin --steps 2 --lr 1e-3 --seed 1 --init $golden/gpt2"
steps="--steps 3 --lr 1e-3 --weight-decay 0.1 --clip 1.0 --seed 1"
from() { echo --init $golden/$1 --data $golden/$1/tokens.bin; } # MODEL
many() { printf "%*s" "$1" '' | sed "s/ /$2/g"; }               # COUNT TEXT
import() { pc-import -o model.mlir --batch 4 --seq 16 "$@"; }
compile() { pc-compile gpt2.mlir -o x "$@"; }
one() { pc-run -n 1 ./train -- $train "$@" $([[ " $* " != *" --save "* ]] || echo --overwrite); }
same() { cmp "$1/model.safetensors" "$2/model.safetensors"; } # CHECKPOINT CHECKPOINT
losses() { pc-compare losses "$1.jsonl" "$2.jsonl" --tolerance "$3"; }
tensors() { python3 "$here/tensors.py" "$@"; }

# edited FOLDER MODEL EDIT...: a folder with a golden model's config.json alone, edited by sed; every edit has to change it.
edited() {
  rm -rf "$1" && mkdir "$1" && cp "$golden/$2/config.json" "$1" || return
  for edit in "${@:3}"; do
    sed -E "$edit" "$1/config.json" >edited.json
    ! cmp -s edited.json "$1/config.json" || { echo "changes nothing: $edit" && return 1; }
    mv edited.json "$1/config.json"
  done
}
config() { edited model "$@" && import model; } # MODEL EDIT...

# program NAME MODEL MESH [BATCH SEQUENCE]: a golden model or a folder, compiled; mesh 1 is one rank.
program() {
  local model=$2 mesh=(--mesh "$3")
  [[ -d $model ]] || model=$golden/$2
  [[ $3 != 1 ]] || mesh=()
  pc-import "$model" -o "$1.mlir" --batch "${4:-4}" --seq "${5:-16}" && pc-compile "$1.mlir" -o "$1" "${mesh[@]}" && echo "$3" >"$1.mesh"
}
ranks_of() { echo $(($(sed -E 's/[a-z]+=//g; s/,/*/g' <<<"$1"))); } # MESH
# learn PROGRAM OUT FLAGS...: runs a program of `program`, which leaves OUT.jsonl and OUT, a checkpoint.
learn() { pc-run -n "$(ranks_of "$(<"$1.mesh")")" "./$1" -- $steps --metrics "$2.jsonl" --save "$2" --overwrite "${@:3}"; }

# by_hand RANKS LAUNCHER COMMAND...: every rank as a process of its own in the environment that `LAUNCHER RANK RANKS` prints; fails where one does.
by_hand() {
  local ranks=() code=0 rank
  for ((rank = $1 - 1; rank >= 0; --rank)); do
    env $("$2" $rank "$1") timeout 60 "${@:3}" &
    ranks+=($!)
  done
  for rank in "${ranks[@]}"; do wait "$rank" || code=$?; done
  return $code
}
torchrun() { echo "RANK=$1 WORLD_SIZE=$2 LOCAL_RANK=$1 LOCAL_WORLD_SIZE=$2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port"; }
