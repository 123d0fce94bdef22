package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"time"
)

// bucketChange is the part of a bucket's document that the library does not know.
type bucketChange struct {
	Name            string       `json:"name"`
	RetentionPolicy policyChange `json:"retentionPolicy"`
}

// policyChange tells a policy that is not mentioned from null, which takes it away.
type policyChange struct {
	mentioned bool
	period    time.Duration
}

func (c *policyChange) UnmarshalJSON(data []byte) error {
	var policy struct {
		RetentionPeriod int64 `json:"retentionPeriod,string"` // seconds
	}
	err := json.Unmarshal(data, &policy)
	c.mentioned, c.period = true, time.Duration(policy.RetentionPeriod)*time.Second
	return err
}

func (f *fake) answerBucket(c call) *answer {
	if isRead(c.request) || c.request.Method == http.MethodDelete {
		return f.forward(c)
	}
	var change bucketChange
	if err := json.Unmarshal(c.body, &change); err != nil {
		return refuse(http.StatusBadRequest, "parseError", err.Error())
	}
	name := c.bucket
	if name == "" {
		name = change.Name
	}
	if made := f.forward(c); made.status != http.StatusOK {
		return made
	}
	f.setRules(c, name, change)
	return f.forward(f.read(c, name))
}

func (f *fake) setRules(c call, name string, change bucketChange) {
	rules := f.buckets[name]
	if change.RetentionPolicy.mentioned {
		rules.period = change.RetentionPolicy.period
	}
	if c.request.URL.Query().Get("enableObjectRetention") == "true" {
		rules.objects = true
	}
	f.buckets[name] = rules
}

// read is the request for a bucket's document, which now has the new rules in it.
func (f *fake) read(c call, name string) call {
	request := c.request.Clone(c.request.Context())
	request.Method = http.MethodGet
	request.URL.Path, request.URL.RawPath = "/storage/v1/b/"+name, ""
	return call{request: request, kind: bucket, bucket: name}
}

// addLocks writes into a document of the library what only the fake knows.
func (f *fake) addLocks(document map[string]any) {
	switch document["kind"] {
	case "storage#bucket":
		f.addRules(document)
	case "storage#object":
		f.addLock(document)
	case "storage#objects":
		items, _ := document["items"].([]any)
		for _, item := range items {
			if listed, ok := item.(map[string]any); ok {
				f.addLock(listed)
			}
		}
	}
}

func (f *fake) addRules(document map[string]any) {
	name, _ := document["name"].(string)
	rules := f.buckets[name]
	if rules.objects {
		document["objectRetention"] = map[string]any{"mode": "Enabled"}
	}
	if rules.period > 0 {
		document["retentionPolicy"] = map[string]any{
			"retentionPeriod": strconv.FormatInt(int64(rules.period.Seconds()), 10),
			"effectiveTime":   document["timeCreated"],
		}
	}
}

func (f *fake) addLock(document map[string]any) {
	v := versionIn(document)
	kept := f.locks[v]
	if kept.temporaryHold {
		document["temporaryHold"] = true
	}
	if kept.eventBasedHold {
		document["eventBasedHold"] = true
	}
	delete(document, "retention") // of some uploads the library keeps one, and never changes it
	if kept.retention.Mode != "" {
		document["retention"] = kept.retention
	}
	text, _ := document["timeCreated"].(string)
	created, err := time.Parse(time.RFC3339, text)
	if period := f.buckets[v.bucket].period; err == nil && period > 0 {
		document["retentionExpirationTime"] = created.Add(period).UTC().Format(time.RFC3339)
	}
}

func versionIn(document map[string]any) version {
	var v version
	v.bucket, _ = document["bucket"].(string)
	v.object, _ = document["name"].(string)
	text, _ := document["generation"].(string)
	v.generation, _ = strconv.ParseInt(text, 10, 64)
	return v
}
