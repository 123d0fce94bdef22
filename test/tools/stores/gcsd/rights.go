package main

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Tokens are no secrets: a token says itself what its bearer may. The exchange turns a subject token into a token with
// the same rights, as the Security Token Service does for a workload's own token (RFC 8693).
const (
	tokenPrefix   = "fake-token-"
	subjectPrefix = "fake-subject-"
)

// rights are what a bearer may do.
type rights struct {
	read   bool
	create bool
	change bool // delete, overwrite, update, make buckets
}

var rightsByName = map[string]rights{
	"all":       {read: true, create: true, change: true},
	"no-delete": {read: true, create: true},
	"read-only": {read: true},
	"nothing":   {},
}

func exchangeToken(w http.ResponseWriter, r *http.Request) {
	name, ok := strings.CutPrefix(r.PostFormValue("subject_token"), subjectPrefix)
	if _, known := rightsByName[name]; !ok || !known {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_ = json.NewEncoder(w).Encode(map[string]string{"error": "invalid_grant", "error_description": "unknown token"})
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{
		"access_token":      tokenPrefix + name,
		"issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
		"token_type":        "Bearer",
		"expires_in":        3600,
	})
}

func bearer(r *http.Request) (rights, bool) {
	name, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "+tokenPrefix)
	granted, known := rightsByName[name]
	return granted, ok && known
}

// authorize judges by the method alone; whether a creation would overwrite is seen when it is made.
func authorize(c call) *answer {
	granted, known := bearer(c.request)
	if !known {
		return refuse(http.StatusUnauthorized, "authError", "Invalid Credentials")
	}
	switch {
	case isRead(c.request) && granted.read:
		return nil
	case (c.kind == uploadStart || c.kind == uploadChunk) && granted.create:
		return nil
	case granted.change:
		return nil
	}
	return forbidden(c, permission(c))
}

func permission(c call) string {
	what := "objects"
	if c.kind == bucket {
		what = "buckets"
	}
	switch {
	case c.kind == list:
		return "storage.objects.list"
	case isRead(c.request):
		return "storage." + what + ".get"
	case c.request.Method == http.MethodDelete:
		return "storage." + what + ".delete"
	case c.kind == uploadStart || c.kind == uploadChunk:
		return "storage.objects.create"
	}
	return "storage." + what + ".update"
}

func forbidden(c call, permission string) *answer {
	resource := c.bucket
	if c.object != "" {
		resource += "/" + c.object
	}
	return refuse(http.StatusForbidden, "forbidden",
		"the fake's caller does not have "+permission+" access to "+resource+" (or it may not exist)")
}
