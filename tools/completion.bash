# Completion for the tools and for the programs that pc-compile makes: their own --help says what there is. Installed under the name
# of every tool, where bash-completion finds it; or source one of them.

# _pc_words COMMAND: its flags ("--flag", or "--flag=" with a value) and the values that are listed below a flag ("--flag=value").
_pc_words() {
  "$1" --help 2>/dev/null | awk '
    /^ +--?[a-z]/ { match($1, /^--?[a-z0-9.-]+/); flag = substr($1, 1, RLENGTH)
                    print flag (substr($1, RLENGTH + 1) ~ /^\[?=/ ? "=" : "") }
    /^ +=[^ ]/ { print flag $1 }'
}

_pc() {
  local line=${COMP_LINE:0:COMP_POINT} command=$1 kind='^[^=]*=?$' word
  local current=${line##*[[:space:]]}
  # After its program, pc-run's flags are the program's.
  if [[ ${command##*/} == pc-run ]]; then
    for word in ${line% *}; do
      if [[ -f $word && -x $word && $word != "$1" ]] && grep -qa pc_program "$word"; then
        command=$word
        break
      fi
    done
  fi
  [[ $current == -* ]] || return
  [[ $current != *=* ]] || kind='=.'
  mapfile -t COMPREPLY < <(compgen -W "$(_pc_words "$command" | grep -E -e "$kind")" -- "$current")
  # What stands before "=" is a word of its own for bash.
  [[ $current != *=* || $COMP_WORDBREAKS != *=* ]] || COMPREPLY=("${COMPREPLY[@]#*=}")
  [[ ${COMPREPLY[0]-} != *= ]] || compopt -o nospace 2>/dev/null
}

_pc_tools=("${BASH_SOURCE[0]%/*}"/../../../bin/pc-*)
complete -o default -F _pc "${_pc_tools[@]##*/}"
unset _pc_tools
