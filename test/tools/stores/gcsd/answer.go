package main

import (
	"encoding/json"
	"maps"
	"net/http"
)

// answer is what a client gets, whole.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// refuse is an error in the form of the JSON API.
func refuse(status int, reason, message string) *answer {
	body, err := json.Marshal(map[string]any{"error": map[string]any{
		"code":    status,
		"message": message,
		"errors":  []map[string]string{{"domain": "global", "reason": reason, "message": message}},
	}})
	if err != nil {
		panic(err) // strings and numbers are always JSON
	}
	return &answer{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: body}
}

func (a *answer) send(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body) // a client that is gone needs no answer
}

// edit changes the JSON document of a success; anything else stays as it is.
func (a *answer) edit(change func(document map[string]any)) {
	var document map[string]any
	if a.status != http.StatusOK || json.Unmarshal(a.body, &document) != nil || document == nil {
		return
	}
	change(document)
	body, err := json.Marshal(document)
	if err != nil {
		panic(err) // it has been JSON before
	}
	a.body = body
	a.header.Del("Content-Length")
}
