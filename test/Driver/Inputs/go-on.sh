# usage: go-on.sh FOLDER FLAGS...: compiles FOLDER/model to generate text, to each phase and on from there to phase planned.
cd "$1" && shift || exit 1
pc-compile model --mode=generate --size=8 "$@" --to=planned -o planned 2> /dev/null || exit 1
for phase in step placed staged local scheduled; do
  pc-compile model --mode=generate --size=8 "$@" --to=$phase -o $phase 2> /dev/null && pc-compile $phase --to=planned -o again && cmp planned again || {
    echo "from phase $phase: $*"
    exit 1
  }
done
