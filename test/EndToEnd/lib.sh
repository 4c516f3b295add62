# shellcheck shell=bash disable=SC2034
# Shared by the drivers of this folder: where things are, and one line per check.
# A driver sources it, calls pass/fail/check, and ends with finish.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
bin=${PC_BUILD:-$root/build}/bin
golden=$here/golden
passed=0
failed=0

# A folder of its own under the build folder, empty.
fresh_work() {
  work=${PC_BUILD:-$root/build}/end-to-end/$1
  rm -rf "$work"
  mkdir -p "$work"
}

pass() {
  passed=$((passed + 1))
  echo "ok    $1"
}

# fail NAME [LOG]: LOG's first lines say why.
fail() {
  failed=$((failed + 1))
  echo "FAIL  $1"
  if [[ -n ${2:-} && -s $2 ]]; then sed -n 's/^/      /; 1,12p' "$2"; fi
}

# check NAME COMMAND...: one check; a passing command's last line is shown beside the name.
check() {
  local name=$1 log=$work/check.log
  shift
  if "$@" >"$log" 2>&1; then pass "$name${2:+: $(tail -n 1 "$log")}"; else fail "$name" "$log"; fi
}

# ranks MESH: the product of its axes ("dp=2,tp=2" is 4, "1" is 1).
ranks() {
  local product=1 axis
  for axis in ${1//,/ }; do product=$((product * ${axis#*=})); done
  echo $product
}

# PC_TARGET=cuda: programs for CUDA devices, run on the stand-in; PC_STANDIN_SEED chooses an order of its streams.
target_flags=
if [[ ${PC_TARGET:-cpu} == cuda ]]; then
  target_flags="--target=cuda --arch=sm_90a --stand-in"
  export PCRT_CUDA_LIBRARIES=standin:$bin/../lib/libpc_standin.so PCRT_CACHE_DIR=
fi

# mesh_flags MESH: the flags of pc-compile for it (none for one rank) and for the target.
mesh_flags() { echo "$([[ $1 == 1 ]] || echo "--mesh $1")" "$target_flags"; }

# choose [MODEL|MESH]...: sets $models and $meshes to those named, or to all golden models and the usual meshes.
choose() {
  local argument
  models=() meshes=()
  for argument in "$@"; do
    if [[ -d $golden/$argument ]]; then models+=("$argument"); else meshes+=("$argument"); fi
  done
  ((${#models[@]})) || mapfile -t models < <(cd "$golden" && printf '%s\n' */ | tr -d /)
  ((${#meshes[@]})) || meshes=(1 dp=2 tp=2 "dp=2,tp=2" tp=4 dp=4)
}

finish() {
  echo "$passed passed, $failed failed"
  ((failed == 0 && passed > 0))
  exit
}
