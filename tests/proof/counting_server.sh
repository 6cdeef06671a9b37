#!/bin/sh
# A tool server that appends a line to the file $1 for each execution, in one write: `tool word mark`; its answer names
# the mark. A byte in the pipe $2 tells who waits that it happens. In sh because one is started for each life of the daemon: Python would take twenty times as long to start.
# A line outlives any kill of any process once it is written; what a power cut loses is not looked for here.
n=0
said() {
    printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$1"
}
while IFS= read -r line; do
    id=${line##*'"id":'}
    id=${id%%[,\}]*}
    case $line in
    *'"method":"tools/call"'*)
        tool=${line##*'"name":"'}
        tool=${tool%%'"'*}
        word=${line##*'"word":"'}
        word=${word%%'"'*}
        n=$((n + 1))
        printf '%s %s %s\n' "$tool" "$word" "$PPID.$$.$n" >>"$1"
        printf x 1<>"$2"
        case $word in
        fails*) error=true ;;
        *) error=false ;;
        esac
        said '{"content":[{"type":"text","text":"'"$tool $word $PPID.$$.$n"'"}],"isError":'$error'}'
        ;;
    *'"method":"tools/list"'*)
        schema='"inputSchema":{"type":"object","properties":{"word":{"type":"string"}},"required":["word"]}'
        said '{"tools":[{"name":"look",'"$schema"'},{"name":"read",'"$schema"'},{"name":"write",'"$schema"'}]}'
        ;;
    *'"method":"initialize"'*)
        version=${line##*'"protocolVersion":"'}
        version=${version%%'"'*}
        said '{"protocolVersion":"'"$version"'","capabilities":{"tools":{}},"serverInfo":{"name":"counting","version":"1"}}'
        ;;
    *'"method":"notifications/'*) ;;
    *'"id":'*) said '{}' ;;
    esac
done
