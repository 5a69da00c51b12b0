#!/bin/sh
# One round trip with curl alone: a branch, an operate whose stream is broken and resumed, and what is left of it.
# usage: [API_KEY=bl_...] examples/round_trip.sh [URL [MODEL]]     with `bin/run` in another terminal
set -eu
url=${1:-http://127.0.0.1:8000}
model=${2:-local}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# One request; the body of the answer, or, after a refusal, the problem and the end of the script.
call() {
    path=$1
    shift
    status=$(curl -sS -o "$work/body" -w '%{http_code}' ${API_KEY:+-H "Authorization: Bearer $API_KEY"} \
        -H 'Content-Type: application/json' "$@" "$url$path") || exit 1
    case $status in
    2*) cat "$work/body" ;;
    *)
        echo "$path: $status $(cat "$work/body")" >&2
        exit 1
        ;;
    esac
}

# The same as a stream of server-sent events.
stream() {
    path=$1
    shift
    curl -sN ${API_KEY:+-H "Authorization: Bearer $API_KEY"} \
        -H 'Content-Type: application/json' -H 'Accept: text/event-stream' "$@" "$url$path"
}

made=$(call /v1/branches -d "{\"name\": \"round trip\", \"chat_model\": \"$model\", \"tools\": [\"add\"]}")
branch=$(printf '%s\n' "$made" | sed 's/^{"id":"\([^"]*\)".*/\1/')
echo "branch     $branch"

# Leave after the fifth event: the run goes on without us.
stream "/v1/branches/$branch/operate" -d '{
    "instruction": "Call the tool add once with a = 19 and b = 23.",
    "actions": true,
    "model_options": {"temperature": 0}
}' | sed '/^id: .*:5$/{n;n;n;q;}' >"$work/first"
run=$(sed -n 's/^id: \(.*\):1$/\1/p' "$work/first")
[ -n "$run" ] || {
    cat "$work/first" >&2
    exit 1
}
echo "run        $run, left after event 5"

# Go on with event 6, to the end.
stream "/v1/runs/$run/events" -H "Last-Event-ID: $run:5" >"$work/rest"
[ "$(tail -n 3 "$work/rest" | head -n 1)" = 'event: stream.end' ] || {
    echo "the stream was cut; resume it as above, after its last id" >&2
    exit 1
}
numbers=$(sed -n 's/^id: .*:\([0-9]*\)$/\1/p' "$work/first" "$work/rest")
last=$(printf '%s\n' "$numbers" | tail -n 1)
[ "$numbers" = "$(seq "$last")" ] || {
    echo "events are missing or doubled: $numbers" >&2
    exit 1
}
echo "events     1 to $last, none missing, none doubled"

ended=$(call "/v1/runs/$run")
echo "status     $(printf '%s\n' "$ended" | sed 's/.*"status":"\([a-z]*\)","result".*/\1/')"
case $ended in
*'"status":"completed","result"'*) ;;
*)
    printf '%s\n' "$ended" >&2
    exit 1
    ;;
esac
said=$(call "/v1/branches/$branch/messages")
echo "messages   $(printf '%s\n' "$said" | grep -o '"kind":"[a-z_]*"' | cut -d'"' -f4 | tr '\n' ' ')"
calls=$(call "/v1/function-calls?run_id=$run")
echo "calls      $(printf '%s\n' "$calls" | grep -o '"function":"[^"]*"' | cut -d'"' -f4 | tr '\n' ' ')"
